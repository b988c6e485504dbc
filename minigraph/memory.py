"""Where the values of a plan live: offsets in one block of memory, which the runs of an executor share.

A large temporary has a place in the block from the step that writes it to the last one that reads it or a view of it;
then another may take the place. So in steady state the pages of a run are there already. What the caller gets or the
scope keeps is not placed, nor what may share memory with something else, nor small values, which NumPy makes quicker
than it fills them into given arrays.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigraph.lowering import Step, Steps, Value
from minigraph.types import product

LEAST_BYTES = 1024 * 1024
"""Smaller values are not worth a place."""

_ALIGNMENT = 64


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

    def arrays(self, block: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """The places as arrays, views of `block`."""
        return [
            block[offset : offset + product(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for offset, dtype, shape in self.places
        ]


def place_values(steps: Steps) -> Layout:
    """A layout for the values of `steps` that kernels can write to given memory."""
    layout, free = Layout(), _Free()
    kept = {id(v.root) for v in (*steps.fetches, *steps.new_state.values())}
    taken: dict[int, tuple[int, int]] = {}
    for step, gone in zip(steps.steps, _last_uses(steps), strict=True):
        for value in step.values_written() if _takes_places(step, kept) else ():
            size = _aligned(_bytes(value))
            offset = free.take(size)
            if offset is None:
                offset, layout.size = layout.size, layout.size + size
            taken[id(value)] = offset, size
            layout.place_of[id(value)] = len(layout.places)
            layout.places.append((offset, value.tensor_type.dtype.numpy, value.tensor_type.shape))
        # Given back only now: no kernel writes over what it reads.
        for root in gone:
            if root in taken:
                free.give(*taken.pop(root))
    return layout


def _takes_places(step: Step, kept: set[int]) -> bool:
    """Whether all that `step` writes can have a place, and something of it is large enough to be worth one."""
    if not step.kernel.takes_out or step.in_place or any(slot.duplicable for slot in step.op.definition.outputs):
        return False
    values = step.values_written()
    can = all(v.storage is None and v.has_known_size and id(v) not in kept for v in values)
    return can and any(_bytes(value) >= LEAST_BYTES for value in values)


def _bytes(value: Value) -> int:
    return product(value.tensor_type.shape) * value.tensor_type.dtype.numpy.itemsize


def _last_uses(steps: Steps) -> list[list[int]]:
    """For each step the identities of the values whose memory nothing reads later."""
    leaving: list[list[int]] = [[] for _ in steps.steps]
    seen: set[int] = set()
    for index in range(len(steps.steps) - 1, -1, -1):
        step = steps.steps[index]
        for value in (*step.values_read(), *step.values_written()):
            root = id(value.root)
            if root not in seen:
                seen.add(root)
                leaving[index].append(root)
    return leaving


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
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class Blocks:
    """The memory of an executor: blocks that runs borrow, one at a time each.

    Runs in several threads get blocks of their own.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray[Any, Any]] = []

    def borrow(self, size: int) -> np.ndarray[Any, Any]:
        """A block of at least `size` bytes; a smaller one that is free is let go."""
        try:
            block = self._free.pop()
        except IndexError:
            block = _new_block(0)
        return block if block.size >= size else _new_block(size)

    def give_back(self, block: np.ndarray[Any, Any]) -> None:
        self._free.append(block)


def _new_block(size: int) -> np.ndarray[Any, Any]:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]


class Buffers:
    """The arrays of one plan's layout in the block that it was last run with."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._made: tuple[np.ndarray[Any, Any], Sequence[Any]] | None = None

    def in_block(self, block: np.ndarray[Any, Any]) -> Sequence[Any]:
        made = self._made
        if made is None or made[0] is not block:
            made = self._made = block, self.layout.arrays(block)
        return made[1]
