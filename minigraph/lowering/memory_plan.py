"""Memory plan: offsets of values in one block of memory, which the runs of an executor share.

A large temporary has a place in the block from the step that writes it to the last step that reads it or a view of it;
then another value may take the place. So a later run touches no new pages of memory. Fetches and state have no place,
nor have values that may share memory with others. Small values have none either: NumPy allocates them faster than it
fills a given array. The rounds of a loop share a block; values that go from round to round have no place in it.
"""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from minigraph.lowering.costs import size_in_bytes
from minigraph.lowering.flat_buffers import NO_FLAT_BUFFERS, FlatBuffers, FlatView, can_be_placed, is_state
from minigraph.lowering.liveness import Liveness
from minigraph.lowering.output_buffers import NO_OUTPUTS, OutputPlan
from minigraph.lowering.resized import Resized
from minigraph.lowering.steps import Steps, Storage, Value
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
    uses: Uses
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
            return BufferPlan(flat, outputs, storage, liveness, before.uses, _layout(before.uses, resized.twin_of))
    uses = Uses(steps, flat, storage)
    return BufferPlan(flat, outputs, storage, liveness, uses, _layout(uses, lambda value: value))


class Uses:
    """The operators that write the memory of values, and those that read it last; places depend on them and on sizes.

    A plan for other sizes asks those of the earlier plan, about that plan's values.
    """

    def __init__(self, steps: Steps, flat: FlatBuffers, storage: Storage) -> None:
        self.steps, self.flat, self.storage = steps.steps, flat, storage
        self._ends = (*steps.fetches, *steps.new_state.values())
        self.buffer_of: dict[Value, Sequence[Value]] = {}
        """The flat buffer of a value that is no state, or of an alias."""
        for values in flat.buffers:
            if not is_state(values):  # state lies in the scope
                self.buffer_of.update(dict.fromkeys(values, values))
        self.over: defaultdict[Value, list[Value | FlatView]] = defaultdict(list)
        """Vectors and aliases, by the first of the values that they lie over."""
        for view in flat.views:
            self.over[view.parts[0]].append(view)
        for whole, parts in flat.aliases.items():
            self.over[parts[0]].append(whole)
            self.buffer_of[whole] = self.buffer_of[parts[0]]

    @cached_property
    def kept(self) -> set[Value]:
        """Roots whose memory outlives the run."""
        return set(map(self.storage.root, self._ends))

    @cached_property
    def last(self) -> Mapping[Value, int]:
        """Number of the last step that uses the memory of a root."""
        root, steps = self.storage.root, enumerate(self.steps)
        return {
            root(value): number for number, step in steps for values in (step.reads, step.writes) for value in values
        }

    @cached_property
    def last_of_buffer(self) -> Mapping[Value, int | None]:
        """Number of the last step that uses a flat buffer, by its first value; None if it outlives the run."""
        roots: defaultdict[Value, set[Value]] = defaultdict(set)
        for value, values in self.buffer_of.items():
            roots[values[0]].add(self.storage.root(value))
        return {
            first: None if not self.kept.isdisjoint(found) else max([self.last[root] for root in found])
            for first, found in roots.items()
        }

    @cached_property
    def into_buffers(self) -> Mapping[int, Sequence[Value]]:
        """Values that a step, or a copy in front of it, writes to flat buffers, by its number."""
        found: dict[int, Sequence[Value]] = {}
        for number, step in enumerate(self.steps if self.buffer_of else ()):
            copied = self.flat.copies.get(step)
            if copied or not self.buffer_of.keys().isdisjoint(step.writes):
                found[number] = [value for value in (*step.writes, *(copied or ())) if value in self.buffer_of]
        return found

    @cached_property
    def writers(self) -> Mapping[int, tuple[Value, Sequence[int]]]:
        """A value of each type, and the numbers of the steps that write such values, by `id` of the type."""
        found: dict[int, tuple[Value, list[int]]] = {}
        for number, step in enumerate(self.steps):
            for value in step.writes:
                _, numbers = found.setdefault(id(value.tensor_type), (value, []))
                numbers.append(number)
        return found


def _layout(uses: Uses, twin_of: Callable[[Any], Any]) -> Layout:
    """Places for the twins of values: the values themselves, or those with the sizes of another plan."""
    # One value stands for each type: a program has far fewer types than values.
    large = {key for key, (value, _) in uses.writers.items() if size_in_bytes(twin_of(value)) >= LEAST_BYTES}
    if not uses.flat.buffers and not large:
        return Layout()
    placer = _Placer(uses, twin_of, large)
    for number in sorted({*uses.into_buffers, *[number for key in large for number in uses.writers[key][1]]}):
        placer.place(number)
    return placer.layout()


class _Placer:
    """Places the values of one step after the other."""

    def __init__(self, uses: Uses, twin_of: Callable[[Any], Any], large: set[int]) -> None:
        self._uses, self._twin_of = uses, twin_of
        self._large = large
        """Types of at least `LEAST_BYTES`, by `id`."""
        self._size = 0
        self._places: dict[Value | FlatView, Extent] = {}
        self._flat_places: dict[Value | FlatView, Extent] = {}
        """Places of the values in flat buffers, and of vectors over them."""
        self._free = _FreeList()
        self._taken: list[tuple[int, int, int]] = []
        """Pieces of the block that are given back: number of the last step that uses it, size and offset."""
        self._buffers: set[Value] = set()
        """First values of the flat buffers that have a place."""

    def layout(self) -> Layout:
        """All places. Those in flat buffers come first, so that their numbers are the same at all sizes."""
        found = self._flat_places | self._places
        return Layout(self._size, list(found.values()), {value: number for number, value in enumerate(found)})

    def place(self, number: int) -> None:
        uses = self._uses
        # Given back only after the last step: no kernel writes over what it reads.
        while self._taken and self._taken[0][0] < number:
            _, size, offset = heapq.heappop(self._taken)
            self._free.give(offset, size)
        for value in uses.into_buffers.get(number, ()):
            values = uses.buffer_of[value]
            if values[0] not in self._buffers:
                self._place_buffer(values)
        step = uses.steps[number]
        rest = [value for value in step.writes if value not in uses.buffer_of]
        if self._large.isdisjoint([id(value.tensor_type) for value in rest]):
            return
        # All results or none: a kernel that is given memory is given it for all that it computes.
        can = {value for value in can_be_placed(step, uses.storage) if value not in uses.kept}
        if can.issuperset(rest):
            for value in rest:
                twin = self._twin_of(value)
                self._places[twin] = _place(self._take(size_in_bytes(twin), uses.last[value]), twin)

    def _place_buffer(self, values: Sequence[Value]) -> None:
        """Side by side, without gaps."""
        self._buffers.add(values[0])
        twins = list(map(self._twin_of, values))
        offset = self._take(sum(map(size_in_bytes, twins)), self._uses.last_of_buffer[values[0]])
        for value, twin in zip(values, twins, strict=True):
            self._flat_places[twin] = _place(offset, twin)
            for whole in map(self._twin_of, self._uses.over.get(value, ())):
                self._flat_places[whole] = _place(offset, whole)
            offset += size_in_bytes(twin)

    def _take(self, size: int, last: int | None) -> int:
        """The offset of room for `size` bytes, which the step of number `last` is the last to use."""
        size = room_for(size)
        offset = self._free.take(size)
        if offset is None:
            offset, self._size = self._size, self._size + size
        if last is not None:
            heapq.heappush(self._taken, (last, size, offset))
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
