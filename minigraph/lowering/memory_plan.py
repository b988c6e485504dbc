"""Where the values of a plan live: offsets in one block of memory, which the runs of an executor share.

A large temporary has a place in the block from the step that writes it to the last one that reads it or a view of it;
then another may take the place. So in steady state the pages of a run are there already. What the caller gets or the
scope keeps is not placed, nor what may share memory with something else, nor small values, which NumPy makes quicker
than it fills them into given arrays. The rounds of a loop share a block too, in which what goes from round to round has
no place.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from minigraph.lowering.flat_buffers import can_be_placed, is_state
from minigraph.lowering.liveness import last_uses
from minigraph.lowering.steps import Joined, Step, Steps, Value
from minigraph.runtime.place import ALIGNMENT, Place
from minigraph.types import TensorType, product

LEAST_BYTES = 1024 * 1024
"""Smaller values are not worth a place."""


@dataclass(eq=False)
class Layout:
    """The places of a plan's values.

    Attributes
    ----------
    size : int
        Bytes of the block.
    places : list of (offset, dtype, shape)
    place_of : dict
        Identity of a value to the number of its place.
    """

    size: int = 0
    places: list[tuple[int, Any, tuple[int, ...]]] = field(default_factory=list)
    place_of: dict[int, int] = field(default_factory=dict)

    def arrays(self, block: Any) -> list[Any]:
        """The places as arrays, views of `block`."""
        return [
            block[offset : offset + product(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for offset, dtype, shape in self.places
        ]


def place_values(steps: Steps) -> Layout:
    """A layout for the values of `steps` that kernels can write to given memory."""
    if not steps.arenas and not any(_size(tensor_type) >= LEAST_BYTES for tensor_type in _types_written(steps)):
        return Layout()
    placer = _Placer(steps)
    for number, (step, gone) in enumerate(zip(steps.steps, last_uses(steps), strict=True)):
        placer.place(step, steps.copied.get(number, []))
        # Given back only now: no kernel writes over what it reads.
        placer.release(gone)
    return placer.layout


class _Placer:
    """Gives values their places while the steps pass by."""

    def __init__(self, steps: Steps) -> None:
        self.layout = Layout()
        self._free = _Free()
        self._kept = {id(v.root) for v in (*steps.fetches, *steps.new_state.values())}
        self._taken: dict[int, tuple[int, int]] = {}
        """By identity of a value or of an arena the piece of the block."""
        arenas = [arena for arena in steps.arenas if not is_state(arena)]
        self._arena_of = {id(value): arena for arena in arenas for value in arena}
        self._over: defaultdict[int, list[Value | Joined]] = defaultdict(list)
        """By first part what covers it and those behind."""
        for vector in steps.vectors:
            self._over[id(vector.parts[0])].append(vector)
        self._roots = {id(arena): {id(value.root) for value in arena} for arena in arenas}
        """By arena the values that must be gone before it is."""
        for whole, parts in steps.covers:
            self._over[id(parts[0])].append(whole)
            self._arena_of[id(whole)] = arena = self._arena_of[id(parts[0])]
            self._roots[id(arena)].add(id(whole.root))
        self._arenas_at: defaultdict[int, list[list[Value]]] = defaultdict(list)
        for arena in arenas:
            for root in self._roots[id(arena)]:
                self._arenas_at[root].append(arena)

    def place(self, step: Step, copied: Sequence[Value]) -> None:
        for value in (*step.values_written(), *copied):
            arena = self._arena_of.get(id(value))
            if arena is not None and id(arena) not in self._taken:
                self._place_arena(arena)
        rest = [value for value in step.values_written() if id(value) not in self.layout.place_of]
        can = [value for value in can_be_placed(step) if id(value) not in self._kept]
        if all(value in can for value in rest) and any(_bytes(value) >= LEAST_BYTES for value in rest):
            for value in rest:
                self._set(value, self._take(id(value), _bytes(value)))

    def release(self, gone: Sequence[int]) -> None:
        """Give back the places of values that nothing reads later, by the identities of their roots."""
        for root in gone:
            if root in self._taken:
                self._free.give(*self._taken.pop(root))
            for arena in self._arenas_at.pop(root, ()):
                roots = self._roots[id(arena)]
                if root not in self._kept:
                    roots.discard(root)
                if not roots:
                    self._free.give(*self._taken[id(arena)])

    def _place_arena(self, arena: list[Value]) -> None:
        """Side by side, without gaps."""
        offset = self._take(id(arena), sum(map(_bytes, arena)))
        for value in arena:
            self._set(value, offset)
            for whole in self._over[id(value)]:
                self._set(whole, offset)
            offset += _bytes(value)

    def _take(self, owner: int, size: int) -> int:
        """The offset of room for `size` bytes."""
        size = _aligned(size)
        offset = self._free.take(size)
        if offset is None:
            offset, self.layout.size = self.layout.size, self.layout.size + size
        self._taken[owner] = offset, size
        return offset

    def _set(self, value: Value | Joined, offset: int) -> None:
        self.layout.place_of[id(value)] = len(self.layout.places)
        self.layout.places.append((offset, value.tensor_type.dtype.numpy, value.tensor_type.shape))


def _bytes(value: Value) -> int:
    return _size(value.tensor_type)


def _size(tensor_type: TensorType) -> int:
    return product(tensor_type.shape) * tensor_type.dtype.numpy.itemsize


def _types_written(steps: Steps) -> set[TensorType]:
    return {value.tensor_type for step in steps.steps for value in step.values_written()}


class _Free:
    """Free pieces of a block, smallest first."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int]] = []

    def take(self, size: int) -> int | None:
        """The offset of the smallest piece that is large enough; what is left of it stays free."""
        at = bisect.bisect_left(self._pieces, (size, -1))
        if at == len(self._pieces):
            return None
        found, offset = self._pieces.pop(at)
        if found > size:
            self.give(offset + size, found - size)
        return offset

    def give(self, offset: int, size: int) -> None:
        bisect.insort(self._pieces, (size, offset))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Blocks:
    """The memory of an executor: blocks that runs borrow, one at a time each.

    Runs in several threads get blocks of their own.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._free: list[Any] = []

    def borrow(self, size: int) -> Any:
        """A block of at least `size` bytes; a smaller one that is free is let go."""
        try:
            block = self._free.pop()
        except IndexError:
            return self._place.bytes(size)
        return block if block.size >= size else self._place.bytes(size)

    def give_back(self, block: Any) -> None:
        self._free.append(block)

    @contextmanager
    def lent(self, buffers: Buffers) -> Iterator[Sequence[Any]]:
        """Inside, the arrays of a plan's layout in a block that nobody else has."""
        if not buffers.layout.places:
            yield ()
            return
        block = self.borrow(buffers.layout.size)
        try:
            yield buffers.in_block(block)
        finally:
            self.give_back(block)


class Buffers:
    """The arrays of one plan's layout in the block that it was last run with."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._made: tuple[Any, Sequence[Any]] | None = None

    def in_block(self, block: Any) -> Sequence[Any]:
        made = self._made
        if made is None or made[0] is not block:
            made = self._made = block, self.layout.arrays(block)
        return made[1]
