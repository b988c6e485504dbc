"""What is to lie side by side in memory: the parameters, gradients and states of a merged update, and what is joined.

One vector then stands for a list of arrays, and norm, clip and update are a few calls, however many parameters there
are. To join arrays along their first dimension, or to split one, is no work at all. An arena is a list of values, all
of them state or none; `minigraph.executor.state_binding` keeps those of state together in the scope,
`minigraph.lowering.memory_plan` places the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby

from minigraph.kernels.norm import kind_if_short
from minigraph.lowering.steps import Joined, Step, Steps, Value
from minigraph.ops.merged_updates import own_slots
from minigraph.types import TensorType, product

IN_PLACE = frozenset({"clip", "clip_by_norm", "clip_by_axis_norm"})
"""Operators of one input whose kernels may write over it."""

_FEW_COPIED = 16384
"""So many elements of an arena, or a tenth of all, may be copied to it because their kernel cannot write there."""


def form_arenas(steps: Steps) -> None:
    """Decide which values lie side by side, and which steps get vectors over them."""
    builder = _Builder(steps)
    for step in steps.steps:
        if step.kernel.joins == "all" and step.in_place:
            builder.join_all(step)
    for step in steps.steps:
        if step.kernel.joins == "short" and step.in_place:
            builder.enter_state(step)
    for step in steps.steps:
        if step.op.type == "concat":
            builder.join_for_concat(step)
        elif step.op.type == "split":
            builder.join_for_split(step)
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
        self._at: dict[int, tuple[int, int]] = {}
        """Of the values in arenas the number of the arena and the position there."""
        self._vectors: dict[tuple[int, int, int], Joined] = {}
        self._covers: set[int] = set()

    @cached_property
    def _writable(self) -> set[int]:
        """The identities of values that can be written to a given place."""
        found = {id(value) for step in self.steps.steps for value in can_be_placed(step)}
        return found - {id(value.root) for value in self.steps.new_state.values()}

    @cached_property
    def _sharing(self) -> set[int]:
        """The identities of values that share an argument's memory if they have no place of their own."""
        kept = {id(value) for value in self.steps.new_state.values()}
        found = {id(value) for step in self.steps.steps if _may_copy(step) for value in step.values_written()}
        return found - kept

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
        step.targets = [[of_state[id(slot[0].storage)]] if slot and slot[0] else [] for slot in step.outputs]

    def enter_state(self, step: Step) -> None:
        """Let the state that a joint clip writes over lie side by side."""
        values = _given(step.inputs[0])
        if len(values) > 1 and self._can_join(values) and values[0].origin == "state":
            self._enter(values)

    def join_short(self, step: Step) -> None:
        """Let a norm have vectors for the runs of short arrays that it would join itself."""
        for i, entry in enumerate(step.inputs):
            values = _given(entry)
            found: list[Value | Joined | None] = []
            for kind, group in groupby(values, key=_kind_if_short):
                run = list(group)
                joins = kind is not None and len(run) > 1 and self._are_neighbours(run)
                found.extend([self._join(run)] if joins else run)
            if len(found) < len(values):
                step.joined[i] = found
                if step.in_place:  # its first output has the memory of its first input
                    step.targets = [[each for each in found if each is not None], *[[] for _ in step.outputs[1:]]]

    def join_for_concat(self, step: Step) -> None:
        """Let what a step joins lie side by side, if nobody outside sees the whole."""
        parts, (whole,) = _given(step.inputs[0]), step.outputs[0]
        if whole is not None and id(whole) in self._writable - self._at.keys() and self._is_along_rows(step, parts):
            self._cover(step, whole, parts)

    def join_for_split(self, step: Step) -> None:
        """Let the parts that a step makes lie side by side, where the whole was."""
        whole, parts = step.inputs[0], _given(step.outputs[0])
        if (
            isinstance(whole, Value)
            and id(whole) in self._writable - self._at.keys()
            and self._is_along_rows(step, parts)
        ):
            self._writable.update(map(id, parts))
            self._cover(step, whole, parts)

    def _is_along_rows(self, step: Step, parts: list[Value]) -> bool:
        """Whether `parts`, none of them state, are along the first dimension of the whole."""
        ranks = {len(part.tensor_type.shape) for part in parts}
        is_first = len(ranks) == 1 and step.op.attr("axis") in (0, -min(ranks)) and not step.op.inputs.get("AxisTensor")
        is_free = all(v.origin != "state" and v.has_known_size and id(v) not in self._covers for v in parts)
        return is_first and is_free and len({part.tensor_type.dtype for part in parts}) == 1

    def _cover(self, step: Step, whole: Value, parts: list[Value]) -> None:
        """Let `whole` be in the memory of `parts`, so that `step` has nothing to do."""
        is_new = not any(id(part) in self._at for part in parts) and len(set(map(id, parts))) == len(parts)
        if (is_new and len(parts) > 1) or self._are_neighbours(parts):
            self._enter(parts)
            self._writable.discard(id(whole))
            self._covers.add(id(whole))
            self.steps.covers.append((whole, parts))
            step.is_free = True

    def note_copies(self) -> None:
        """Say what no kernel writes to its place in an arena: it is copied there before the first vector over it."""
        copied: set[int] = set()
        for number, step in enumerate(self.steps.steps):
            runs = [each.parts for entry in step.joined.values() for each in entry if isinstance(each, Joined)]
            if step.is_free and step.op.type == "concat":
                runs.append(_given(step.inputs[0]))
            for value in [part for run in runs if not is_state(run) for part in run]:
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
        copied = sum(_size(v) for v in values if id(v) not in self._writable and id(v) not in self._sharing)
        return copied <= max(_FEW_COPIED, sum(map(_size, values)) // 10)

    def _are_neighbours(self, values: list[Value]) -> bool:
        arena, first = self._at.get(id(values[0]), (-1, -1))
        return arena >= 0 and [self._at.get(id(v)) for v in values] == [(arena, first + i) for i in range(len(values))]

    def _enter(self, values: list[Value]) -> None:
        """Let `values` be an arena, if they are in none."""
        if id(values[0]) not in self._at:
            for value in values:
                if id(value) in self._sharing:  # it need not share the argument's memory
                    value.storage = None
                    self._writable.add(id(value))
            self._at.update({id(value): (len(self.steps.arenas), i) for i, value in enumerate(values)})
            self.steps.arenas.append(values)

    def _join(self, values: list[Value]) -> Joined:
        """The vector over `values`, which come to lie in an arena if they do not yet."""
        self._enter(values)
        key = *self._at[id(values[0])], len(values)
        if key not in self._vectors:
            kind = TensorType(values[0].tensor_type.dtype, (sum(map(_size, values)),))
            self._vectors[key] = Joined(f"{values[0].name}_and_{len(values) - 1}", kind, values)
            self.steps.vectors.append(self._vectors[key])
        return self._vectors[key]


def _may_copy(step: Step) -> bool:
    """Whether a step that may return its argument writes to a given place as well: one that clips by a norm."""
    return (
        step.op.type in IN_PLACE
        and step.kernel.view_of is not None
        and step.outputs[0][0] is not None
        and all(value.has_known_size for value in step.values_written())
    )


def can_be_placed(step: Step) -> list[Value]:
    """Which of the values that a step writes can be written to a given place."""
    if not step.kernel.takes_out or step.in_place or any(slot.duplicable for slot in step.op.definition.outputs):
        return []
    return [v for v in step.values_written() if v.storage is None and v.has_known_size]


def _given(entry: Value | list[Value | None] | None) -> list[Value]:
    """The values of a list; none if it is no list or has gaps."""
    values = [value for value in entry if value is not None] if isinstance(entry, list) else []
    return values if isinstance(entry, list) and len(values) == len(entry) else []


def _kind_if_short(value: Value) -> str | None:
    return kind_if_short(value.tensor_type.dtype.numpy, _size(value))


def _size(value: Value) -> int:
    return product(value.tensor_type.shape)
