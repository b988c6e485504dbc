"""What is to lie side by side in memory: the parameters, gradients and states of a merged update.

One vector then stands for a list of arrays, and norm, clip and update are a few calls, however many parameters there
are. An arena is a list of values, all of them state or none; `minigraph.binding` keeps those of state together in the
scope, `minigraph.memory` places the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from minigraph.kernels.norm import SHORT
from minigraph.lowering import Joined, Step, Steps, Value
from minigraph.ops.merged_updates import own_slots
from minigraph.types import DType, TensorType, product

_FEW_COPIED = 16384
"""So many elements of an arena, or a tenth of all, may be copied to it because their kernel cannot write there."""


def form_arenas(steps: Steps) -> None:
    """Decide which values lie side by side, and which steps get vectors over them."""
    builder = _Builder(steps)
    for step in steps.steps:
        if step.kernel.joins == "all" and step.in_place:
            builder.join_all(step)
    if steps.arenas:
        for step in steps.steps:
            if step.kernel.joins == "short":
                builder.join_short(step)
    builder.note_copies()


def is_state(arena: Sequence[Value]) -> bool:
    return arena[0].origin == "state"


class _Builder:
    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self._writable = {id(value) for step in steps.steps for value in can_be_placed(step)}
        self._writable -= {id(value.root) for value in steps.new_state.values()}
        self._at: dict[int, tuple[int, int]] = {}
        """Of the values in arenas the number of the arena and the position there."""
        self._vectors: dict[tuple[int, int, int], Joined] = {}

    def join_all(self, step: Step) -> None:
        """Let a merged update have vectors for all its lists, or for none."""
        own = own_slots(step.op.definition)
        entries = {i: step.inputs[i] for i, slot in enumerate(step.op.definition.inputs) if slot.name in own}
        lists = {i: values for i, entry in entries.items() if (values := _given(entry))}
        if not all(map(self._can_join, lists.values())):
            return
        vectors = {i: self._join(values) for i, values in lists.items()}
        step.joined.update({i: [vector] for i, vector in vectors.items()})
        of_state = {id(vector.parts[0]): vector for vector in vectors.values()}
        step.targets = [of_state[id(slot[0].storage)] if slot and slot[0] else None for slot in step.outputs]

    def join_short(self, step: Step) -> None:
        """Let a norm have vectors for the runs of short arrays that it would join itself."""
        for i, entry in enumerate(step.inputs):
            values = _given(entry)
            found: list[Value | Joined | None] = []
            for dtype, group in groupby(values, key=_dtype_if_short):
                run = list(group)
                joins = dtype is not None and len(run) > 1 and self._are_neighbours(run)
                found.extend([self._join(run)] if joins else run)
            if len(found) < len(values):
                step.joined[i] = found

    def note_copies(self) -> None:
        """Say what no kernel writes to its place in an arena: it is copied there before the first vector over it."""
        copied: set[int] = set()
        for number, step in enumerate(self.steps.steps):
            vectors = [each for entry in step.joined.values() for each in entry if isinstance(each, Joined)]
            for value in [part for vector in vectors if not is_state(vector.parts) for part in vector.parts]:
                if id(value) not in self._writable and id(value) not in copied:
                    copied.add(id(value))
                    self.steps.copied.setdefault(number, []).append(value)

    def _can_join(self, values: list[Value]) -> bool:
        if len({id(value) for value in values}) < len(values):
            return False
        if any(id(value) in self._at for value in values):
            return self._are_neighbours(values)
        if any(value.origin == "state" for value in values):
            return all(value.origin == "state" for value in values)
        copied = sum(_size(value) for value in values if id(value) not in self._writable)
        return copied <= max(_FEW_COPIED, sum(map(_size, values)) // 10)

    def _are_neighbours(self, values: list[Value]) -> bool:
        arena, first = self._at.get(id(values[0]), (-1, -1))
        return arena >= 0 and [self._at.get(id(v)) for v in values] == [(arena, first + i) for i in range(len(values))]

    def _join(self, values: list[Value]) -> Joined:
        """The vector over `values`, which come to lie in an arena if they do not yet."""
        if id(values[0]) not in self._at:
            self._at.update({id(value): (len(self.steps.arenas), i) for i, value in enumerate(values)})
            self.steps.arenas.append(values)
        key = *self._at[id(values[0])], len(values)
        if key not in self._vectors:
            kind = TensorType(values[0].tensor_type.dtype, (sum(map(_size, values)),))
            self._vectors[key] = Joined(f"{values[0].name}_and_{len(values) - 1}", kind, values)
            self.steps.vectors.append(self._vectors[key])
        return self._vectors[key]


def can_be_placed(step: Step) -> list[Value]:
    """Which of the values that a step writes can be written to a given place."""
    if not step.kernel.takes_out or step.in_place or any(slot.duplicable for slot in step.op.definition.outputs):
        return []
    return [v for v in step.values_written() if v.storage is None and v.has_known_size]


def _given(entry: Value | list[Value | None] | None) -> list[Value]:
    """The values of a list; none if it is no list or has gaps."""
    values = [value for value in entry if value is not None] if isinstance(entry, list) else []
    return values if isinstance(entry, list) and len(values) == len(entry) else []


def _dtype_if_short(value: Value) -> DType | None:
    return value.tensor_type.dtype if _size(value) <= SHORT else None


def _size(value: Value) -> int:
    return product(value.tensor_type.shape)
