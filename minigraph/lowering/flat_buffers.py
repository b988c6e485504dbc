"""Flat buffers: values that are neighbours in memory, so that one vector replaces a list of arrays.

Flat buffers hold the parameters, gradients and states of a merged update, the gradients that ranks exchange, and what
is joined or split along the first dimension. Norm, clip, exchange and update then are a few calls, however many
parameters there are, and joining and splitting cost nothing. The values of a flat buffer are all state or none:
`minigraph.executor.state_binding` keeps state together in the scope, `minigraph.lowering.memory_plan` places the other
values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from minigraph.kernels.norm import kind_if_short
from minigraph.lowering.resized import Resized
from minigraph.lowering.steps import Step, Steps, Storage, Value, at_all_sizes
from minigraph.ops.merged_updates import own_slots
from minigraph.types import TensorType, product

IN_PLACE = frozenset({"clip", "clip_by_norm", "clip_by_axis_norm"})
"""Operators of one input whose kernels may write over it."""

_FEW_COPIED = 16384
"""Maximum elements, or a tenth of all, that may be copied to a flat buffer because no kernel writes them there."""


@dataclass(frozen=True, eq=False, slots=True)
class FlatView:
    """Vector over values that are neighbours in memory."""

    name: str
    tensor_type: TensorType
    parts: Sequence[Value]


@dataclass(frozen=True, eq=False)
class FlatBuffers:
    """Values that are neighbours in memory, and the consequences for steps."""

    buffers: Sequence[Sequence[Value]] = ()
    """The values of each buffer, in order."""
    views: Sequence[FlatView] = ()
    """All vectors over parts of buffers."""
    aliases: Mapping[Value, Sequence[Value]] = field(default_factory=dict)
    """Values in the memory of other values, with these values, which are neighbours."""
    copies: Mapping[Step, Sequence[Value]] = field(default_factory=dict)
    """Values that must be copied to their places before a step."""
    inputs: Mapping[Step, Mapping[int, Sequence[Value | FlatView]]] = field(default_factory=dict)
    """List that a kernel gets instead of an input, with vectors for some values; by step and position of the input."""
    targets: Mapping[Step, Sequence[Sequence[Value | FlatView]]] = field(default_factory=dict)
    """Vectors that a kernel writes instead of a list of values; by step and slot."""
    free: Collection[Step] = frozenset()
    """Steps with nothing to do: the values that they join or split are side by side already."""
    over: Collection[Step] = frozenset()
    """Steps whose only list is one vector, which they write their results over."""
    apart: Collection[Value] = frozenset()
    """Values that would share the memory of an argument if they were in no buffer."""

    @cached_property
    def copied(self) -> Collection[Value]:
        """All values that are copied to their places."""
        return {value for values in self.copies.values() for value in values}


NO_FLAT_BUFFERS = FlatBuffers()


def form_flat_buffers(steps: Steps) -> FlatBuffers:
    """Choose the values that become neighbours in memory, and the steps that get vectors over them."""
    builder, joining = _Builder(steps), _joining(steps)
    # Updates come first: a value is in one buffer, and an update gets vectors for all its lists or for none. Exchanges
    # stand before them, and have the gradients in the same order.
    for step in joining:
        if step.kernel.joins == "over":
            builder.join_over(step)
        elif step.kernel.joins == "all" and step.in_place:
            builder.join_all(step)
    for step in joining:
        if step.kernel.joins == "short" and step.in_place:
            builder.enter_state(step)
    for step in joining:
        if step.op.type == "concat":
            builder.join_for_concat(step)
        elif step.op.type == "split":
            builder.join_for_split(step)
    # Norms come last: they form no buffer, but use the ones that exist.
    if builder.buffers:
        for step in joining:
            if step.kernel.joins == "short":
                builder.join_short(step)
    return builder.result()


def flat_buffers_like(flat: FlatBuffers, resized: Resized) -> FlatBuffers:
    """The flat buffers for resized steps: the same ones, unless a step that joins values has other sizes."""
    pairs = [(resized.before.steps[number], resized.steps.steps[number]) for number in _numbers(resized.before)]
    # Whether a concat or split is free does not depend on sizes.
    is_same = all(old is new or (not old.kernel.joins and old not in flat.free) for old, new in pairs)
    return flat if is_same else form_flat_buffers(resized.steps)


def _joining(steps: Steps) -> Sequence[Step]:
    """The steps that flat buffers are made for."""
    return [steps.steps[number] for number in _numbers(steps)]


@at_all_sizes
def _numbers(steps: Steps) -> Sequence[int]:
    return [n for n, step in enumerate(steps.steps) if step.kernel.joins or step.op.type in ("concat", "split")]


def is_state(values: Sequence[Value]) -> bool:
    """Tell whether the values of a flat buffer are state."""
    return values[0].origin == "state"


class _Builder:
    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.buffers: list[Sequence[Value]] = []
        self._at: dict[Value, tuple[int, int]] = {}
        """Number of the buffer of a value and position there."""
        self._views: dict[tuple[int, int, int], FlatView] = {}
        self._aliases: dict[Value, Sequence[Value]] = {}
        self._inputs: defaultdict[Step, dict[int, Sequence[Value | FlatView]]] = defaultdict(dict)
        self._targets: dict[Step, Sequence[Sequence[Value | FlatView]]] = {}
        self._free: set[Step] = set()
        self._over: set[Step] = set()
        self._apart: set[Value] = set()

    def result(self) -> FlatBuffers:
        views, inputs = list(self._views.values()), dict(self._inputs)
        return FlatBuffers(
            self.buffers, views, self._aliases, self._copies(), inputs, self._targets, self._free, self._over,
            self._apart,
        )  # fmt: skip

    @cached_property
    def _writable(self) -> set[Value]:
        """Values that can be written to a given place."""
        found = {value for step in self.steps.steps for value in can_be_placed(step, self.steps.storage)}
        # New state outlives the run, and the block of temporaries belongs to the next one.
        return found - set(map(self.steps.storage.root, self.steps.new_state.values()))

    @cached_property
    def _sharing(self) -> set[Value]:
        """Values that share an argument's memory if they have no place of their own."""
        found = {value for step in self.steps.steps if _may_copy(step) for value in step.writes}
        return found - set(self.steps.new_state.values())

    def join_over(self, step: Step) -> None:
        """Give a step one vector to write its results over, if nothing reads later what lies there."""
        given, results = _given(step.inputs[0]), _given(step.outputs[0])
        if not given or is_state(given) or not self._can_join(given) or self._is_read_later(step, given, results):
            return
        self._inputs[step][0] = [self._join(given)]
        self._over.add(step)
        for value, result in zip(given, results, strict=True):
            self._at[result] = self._at[value]
            self._aliases[result] = self._aliases.get(value, [value])

    def _is_read_later(self, step: Step, values: Sequence[Value], results: Sequence[Value]) -> bool:
        """Whether the memory of `values` is read after `step` in another way than as `results`."""
        root = self.steps.storage.without(results).root
        later = self.steps.steps[self.steps.steps.index(step) + 1 :]
        read = [*self.steps.fetches, *self.steps.new_state.values(), *[v for each in later for v in each.reads]]
        return not {root(value) for value in read}.isdisjoint(values)

    def join_all(self, step: Step) -> None:
        """Let a merged update have vectors for all its lists, or for none."""
        own = own_slots(step.op.definition)
        entries = {i: step.inputs[i] for i, slot in enumerate(step.op.definition.inputs) if slot.name in own}
        lists = {i: values for i, entry in entries.items() if (values := _given(entry))}
        if not all(map(self._can_join, lists.values())):
            return
        views = {i: self._join(values) for i, values in lists.items()}
        self._inputs[step].update({i: [view] for i, view in views.items()})
        # The outputs are written over the state, so their vectors are those of the inputs.
        of_state = {view.parts[0]: view for view in views.values()}
        old = self.steps.storage.shared
        self._targets[step] = [[of_state[old[slot[0]]]] if slot and slot[0] else [] for slot in step.outputs]

    def enter_state(self, step: Step) -> None:
        """Put the state that a joint clip writes over side by side."""
        values = _given(step.inputs[0])
        if len(values) > 1 and self._can_join(values) and is_state(values):
            self._enter(values)

    def join_short(self, step: Step) -> None:
        """Give a norm vectors for the runs of short arrays that it would join itself."""
        if step.op.definition.outputs[0].duplicable and not step.in_place:
            return  # it returns an array for each that it is given
        for i, entry in enumerate(step.inputs):
            values = _given(entry)
            found: list[Value | FlatView] = []
            for kind, group in groupby(values, key=_kind_if_short):
                run = list(group)
                joins = kind is not None and len(run) > 1 and self._are_neighbours(run)
                found.extend([self._join(run)] if joins else run)
            if len(found) < len(values):
                self._inputs[step][i] = found
                if step.in_place:  # its first output has the memory of its first input
                    self._targets[step] = [found, *[[] for _ in step.outputs[1:]]]

    def join_for_concat(self, step: Step) -> None:
        """Put what a step joins side by side, if the whole is neither fetched nor state."""
        parts, (whole,) = _given(step.inputs[0]), step.outputs[0]
        if whole is not None and self._may_cover(step, whole, parts):
            self._cover(step, whole, parts)

    def join_for_split(self, step: Step) -> None:
        """Put the parts that a step makes side by side, in the memory of the whole."""
        whole, parts = step.inputs[0], _given(step.outputs[0])
        if isinstance(whole, Value) and self._may_cover(step, whole, parts):
            # The kernel of the whole writes the parts.
            self._writable.update(parts)
            self._cover(step, whole, parts)

    def _may_cover(self, step: Step, whole: Value, parts: Sequence[Value]) -> bool:
        """Whether `whole` may be in the memory of `parts`, none of them state, along its first dimension."""
        if whole not in self._writable or whole in self._at:
            return False
        # An array lies row by row, so its parts are contiguous along the first dimension only.
        ranks = {len(part.tensor_type.shape) for part in parts}
        is_first = len(ranks) == 1 and step.op.attr("axis") in (0, -min(ranks)) and not step.op.inputs.get("AxisTensor")
        is_free = all(v.origin != "state" and v.has_known_size and v not in self._aliases for v in parts)
        return is_first and is_free and len({part.tensor_type.dtype for part in parts}) == 1

    def _cover(self, step: Step, whole: Value, parts: Sequence[Value]) -> None:
        """Let `whole` be in the memory of `parts`, so that `step` has nothing to do."""
        is_new = not any(part in self._at for part in parts) and len(set(parts)) == len(parts)
        if (is_new and len(parts) > 1) or self._are_neighbours(parts):
            self._enter(parts)
            # A value has one place, so the whole may not be covered again.
            self._writable.discard(whole)
            self._aliases[whole] = parts
            self._free.add(step)

    def _copies(self) -> dict[Step, Sequence[Value]]:
        """Values that no kernel writes to their places, by the step that reads the first vector over them."""
        copied: set[Value] = set()
        found: dict[Step, Sequence[Value]] = {}
        for step in self.steps.steps if self.buffers else ():
            lists = self._inputs.get(step, {}).values()
            runs = [each.parts for entry in lists for each in entry if isinstance(each, FlatView)]
            if step in self._free and step.op.type == "concat":
                runs.append(_given(step.inputs[0]))
            parts = dict.fromkeys(part for run in runs if not is_state(run) for part in run)
            new = [part for part in parts if part not in self._writable and part not in copied]
            if new:
                copied.update(new)
                found[step] = new
        return found

    def _can_join(self, values: Sequence[Value]) -> bool:
        if len(set(values)) < len(values):
            return False
        if any(value in self._at for value in values):
            return self._are_neighbours(values)
        if any(value.origin == "state" for value in values):
            return all(value.origin == "state" for value in values)
        copied = sum(_size(v) for v in values if v not in self._writable and v not in self._sharing)
        return copied <= max(_FEW_COPIED, sum(map(_size, values)) // 10)

    def _are_neighbours(self, values: Sequence[Value]) -> bool:
        buffer, first = self._at.get(values[0], (-1, -1))
        return buffer >= 0 and [self._at.get(v) for v in values] == [(buffer, first + i) for i in range(len(values))]

    def _enter(self, values: Sequence[Value]) -> None:
        """Make `values` a buffer, if they are in none."""
        if values[0] not in self._at:
            sharing = self._sharing.intersection(values)  # a clip copies to a given place what it does not scale
            self._apart |= sharing
            self._writable.update(sharing)
            self._at.update({value: (len(self.buffers), i) for i, value in enumerate(values)})
            self.buffers.append(values)

    def _join(self, values: Sequence[Value]) -> FlatView:
        """The vector over `values`, which become a buffer if they are in none."""
        self._enter(values)
        buffer, first = self._at[values[0]]
        key = buffer, first, len(values)
        if key not in self._views:
            values = self.buffers[buffer][first : first + len(values)]  # not the values that are written over
            kind = TensorType(values[0].tensor_type.dtype, (sum(map(_size, values)),))
            self._views[key] = FlatView(f"{values[0].name}_and_{len(values) - 1}", kind, values)
        return self._views[key]


def _may_copy(step: Step) -> bool:
    """Whether a step may return its argument, but copies it when a place is given: a clip by a norm."""
    return (
        step.op.type in IN_PLACE
        and step.kernel.view_of is not None
        and step.outputs[0][0] is not None
        and all(value.has_known_size for value in step.writes)
    )


def can_be_placed(step: Step, storage: Storage) -> list[Value]:
    """The values that a step can write to a given place."""
    if not step.kernel.takes_out or step.in_place or any([slot.duplicable for slot in step.op.definition.outputs]):
        return []
    return [v for v in step.writes if v not in storage.shared and v.has_known_size]


def _given(entry: Value | Sequence[Value | None] | None) -> list[Value]:
    """The values of a list; none if it is no list or has gaps."""
    if entry is None or isinstance(entry, Value) or None in entry:
        return []
    return list(entry)  # type: ignore[arg-type]  # has no gaps


def _kind_if_short(value: Value) -> str | None:
    return kind_if_short(value.tensor_type.dtype.numpy, _size(value))


def _size(value: Value) -> int:
    return product(value.tensor_type.shape)
