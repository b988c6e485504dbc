"""Memory plan: offsets of values in one block of memory, which the runs of an executor share.

A large temporary has a place in the block from the step that writes it to the last step that reads it or a view of it;
then another value may take the place. So a later run touches no new pages of memory. Fetches and state have no place,
nor have values that may share memory with others. Small values have none either: NumPy allocates them faster than it
fills a given array. The rounds of a loop share a block; values that go from round to round have no place in it.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from minigraph.lowering.costs import size_in_bytes
from minigraph.lowering.flat_buffers import NO_FLAT_BUFFERS, FlatBuffers, FlatView, can_be_placed, is_state
from minigraph.lowering.liveness import Liveness
from minigraph.lowering.output_buffers import NO_OUTPUTS, OutputPlan
from minigraph.lowering.steps import Resized, Step, Steps, Storage, Value
from minigraph.support.alignment import room_for
from minigraph.types import product

LEAST_BYTES = 128 * 1024
"""Minimum bytes of one value of a step that gives its results places.

A C library may ask the system for as much in each run, and the system clears it page by page.
"""


Extent: TypeAlias = "tuple[int, Any, tuple[int, ...]]"
"""Offset, dtype and shape."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Places of a plan's values in a block.

    Attributes
    ----------
    size : int
        Bytes of the block.
    places : list of Extent
    place_of : mapping
        Value or flat view to the number of its place.
    """

    size: int = 0
    places: Sequence[Extent] = ()
    place_of: Mapping[Value | FlatView, int] = field(default_factory=dict)

    def arrays(self, block: Any) -> list[Any]:
        """The places as arrays, views of `block`."""
        return [
            block[offset : offset + product(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for offset, dtype, shape in self.places
        ]


@dataclass(frozen=True, eq=False)
class BufferPlan:
    """Decisions on the memory of values, by stage."""

    flat: FlatBuffers
    outputs: OutputPlan
    storage: Storage
    """Values that share memory after these two stages."""
    liveness: Liveness
    layout: Layout


def plan_buffers(
    steps: Steps,
    flat: FlatBuffers = NO_FLAT_BUFFERS,
    outputs: OutputPlan = NO_OUTPUTS,
    like: tuple[BufferPlan, Resized] | None = None,
) -> BufferPlan:
    """Find the last uses of values and memory, and place the values that kernels can write to a given place.

    `like` is the plan for the steps that these are resized from, with the same flat buffers.
    """
    storage = steps.storage.without({*flat.apart, *outputs.apart})
    liveness = Liveness(steps, storage)
    if like is not None:
        before, resized = like
        if outputs.apart == set(map(resized.twin_of, before.outputs.apart)):
            liveness = before.liveness.resized(resized, storage)
    return BufferPlan(flat, outputs, storage, liveness, _layout(steps, flat, liveness))


def _layout(steps: Steps, flat: FlatBuffers, liveness: Liveness) -> Layout:
    # One value stands for each type: a program has far fewer types than values.
    types = [[id(value.tensor_type) for value in step.writes] for step in steps.steps]
    of_type = {id(value.tensor_type): value for step in steps.steps for value in step.writes}
    large = {key for key, value in of_type.items() if size_in_bytes(value) >= LEAST_BYTES}
    if not flat.buffers and not large:
        return Layout()
    placer, leaving = _Placer(steps, flat, liveness.storage, large), liveness.leaving.get
    for step, written in zip(steps.steps, types, strict=True):
        placer.place(step, has_large=not large.isdisjoint(written))
        # Given back only now: no kernel writes over what it reads.
        placer.release(leaving(step, ()))
    return placer.layout()


class _Placer:
    """Places the values of one step after the other."""

    def __init__(self, steps: Steps, flat: FlatBuffers, storage: Storage, large: set[int]) -> None:
        self._size = 0
        self._places: dict[Value | FlatView, Extent] = {}
        self._flat_places: dict[Value | FlatView, Extent] = {}
        """Places of the values in flat buffers, and of vectors over them."""
        self._free = _FreeList()
        self._flat, self._storage, root = flat, storage, storage.root
        self._large = large
        """Types of at least `LEAST_BYTES`, by `id`."""
        self._kept = {root(v) for v in (*steps.fetches, *steps.new_state.values())}
        self._taken: dict[Value, tuple[int, int]] = {}
        """The piece of the block of a value, or of a flat buffer by its first value."""
        self._buffer_of: dict[Value, Sequence[Value]] = {}
        self._roots: dict[Value, set[Value]] = {}
        """Roots that must be gone before a flat buffer is given back; by its first value."""
        for values in flat.buffers:
            if not is_state(values):  # state lies in the scope
                self._buffer_of.update(dict.fromkeys(values, values))
                self._roots[values[0]] = set(map(root, values))
        self._over: defaultdict[Value, list[Value | FlatView]] = defaultdict(list)
        """Vectors and aliases, by the first of the values that they lie over."""
        for view in flat.views:
            self._over[view.parts[0]].append(view)
        for whole, parts in flat.aliases.items():
            self._over[parts[0]].append(whole)
            self._buffer_of[whole] = values = self._buffer_of[parts[0]]
            self._roots[values[0]].add(root(whole))
        self._buffers_at: defaultdict[Value, list[Value]] = defaultdict(list)
        """First values of the flat buffers that a root is in, by root."""
        for first, roots in self._roots.items():
            for each in roots:
                self._buffers_at[each].append(first)

    def layout(self) -> Layout:
        """All places. Those in flat buffers come first, so that their numbers are the same at all sizes."""
        found = self._flat_places | self._places
        return Layout(self._size, list(found.values()), {value: number for number, value in enumerate(found)})

    def place(self, step: Step, has_large: bool) -> None:
        copied = self._flat.copies.get(step)
        if copied or not self._buffer_of.keys().isdisjoint(step.writes):
            for value in (*step.writes, *(copied or ())):
                values = self._buffer_of.get(value)
                if values is not None and values[0] not in self._taken:
                    self._place_buffer(values)
        if not has_large:
            return
        rest = [value for value in step.writes if value not in self._flat_places]
        if self._large.isdisjoint([id(value.tensor_type) for value in rest]):
            return
        # All results or none: a kernel that is given memory is given it for all that it computes.
        can = {value for value in can_be_placed(step, self._storage) if value not in self._kept}
        if can.issuperset(rest):
            for value in rest:
                self._places[value] = _place(self._take(value, size_in_bytes(value)), value)

    def release(self, gone: Sequence[Value]) -> None:
        """Give back the places of the roots that nothing reads later."""
        if self._taken.keys().isdisjoint(gone) and self._buffers_at.keys().isdisjoint(gone):
            return
        for root in gone:
            for first in self._buffers_at.pop(root, ()):
                roots = self._roots[first]
                # A root that is kept never leaves, so nothing else gets its buffer.
                if root not in self._kept:
                    roots.discard(root)
                if not roots:
                    self._free.give(*self._taken[first])
            # `_taken` has buffers under their first values, which are given back above.
            if root in self._taken and root not in self._buffer_of:
                self._free.give(*self._taken.pop(root))

    def _place_buffer(self, values: Sequence[Value]) -> None:
        """Side by side, without gaps."""
        offset = self._take(values[0], sum(map(size_in_bytes, values)))
        for value in values:
            self._flat_places[value] = _place(offset, value)
            for whole in self._over[value]:
                self._flat_places[whole] = _place(offset, whole)
            offset += size_in_bytes(value)

    def _take(self, owner: Value, size: int) -> int:
        """The offset of room for `size` bytes."""
        size = room_for(size)
        offset = self._free.take(size)
        if offset is None:
            offset, self._size = self._size, self._size + size
        self._taken[owner] = offset, size
        return offset


def _place(offset: int, value: Value | FlatView) -> Extent:
    return offset, value.tensor_type.dtype.numpy, value.tensor_type.shape


class _FreeList:
    """Free pieces of a block, smallest first."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int]] = []

    def take(self, size: int) -> int | None:
        """The offset of the smallest piece that is large enough; what is left of it stays free."""
        # -1 sorts before every offset, so that a piece of just this size is found.
        at = bisect.bisect_left(self._pieces, (size, -1))
        if at == len(self._pieces):
            return None
        found, offset = self._pieces.pop(at)
        if found > size:
            self.give(offset + size, found - size)
        return offset

    def give(self, offset: int, size: int) -> None:
        bisect.insort(self._pieces, (size, offset))
