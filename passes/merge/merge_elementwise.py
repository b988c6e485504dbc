"""Merge equal groups of elementwise operators that update variables, such as an optimizer that is written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from math import inf, prod
from typing import Any, NamedTuple

from minigraph.ir import Operator, Parameter, Program, VarKind
from minigraph.kernels.formulas import TYPES
from minigraph.opdef import EMPTY
from minigraph.ops.merged_elementwise import LISTS, NUMBERS, RESULTS, SHARED, TYPE
from minigraph.passes.base import Pass
from minigraph.passes.canonical.dead_ops import remove_dead
from minigraph.passes.merge.fuse_elementwise import call_in_group, is_plain
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.support.fused_calls import FusedCall
from minigraph.types import DType, TensorType

_FLOATS = (DType.FP32, DType.FP64)

FORWARD = frozenset(type for type in TYPES if not type.endswith("_grad")) - {"assign"}
"""Operators of a group; gradients belong to the layers before the update."""

_MOST_OPERATORS = 32
"""Maximum operators in a group: longer ones take long to compile, and no optimizer has more."""


class MergeElementwise(Pass):
    """Make one ``merged_elementwise`` of equal groups of operators, each of which updates variables.

    A group is the elementwise operators that compute the new values of persistable variables of one type: from these
    variables, from other values of this type such as a gradient, and from single elements. Groups share these, or each
    has its own, such as the powers of Adam, and what it alone computes from them. So Adam that is written out, or a
    moving average, takes one operator for all parameters. ``sgd`` may end a group.

    Law: every value keeps its bits, because the same operators compute each element. Nothing outside of a group reads
    the values within it. The merged operator stands where the last of the groups ended; no operator between a group and
    it reads or writes what the group writes, or writes what it reads. Selected rows, other types than float32 and
    float64, and unknown shapes are left alone.
    """

    def apply(self, program: Program) -> bool:
        writers = list(_writers(program))
        if len(writers) < 2:
            return False
        # A variable that is written twice may not need the first value, since `CleanUp` lets readers read its source.
        is_twice = len({op.output_arg_names[0] for op in writers}) < len(writers)
        changed = is_twice and remove_dead(program)
        # The numbers of a group may change between it and the next one, until their own changes are one operator.
        for _ in range(2):
            groups = _Groups(Values(program))
            merged = [each for each in _alike(groups.updates()) if len(each) > 1]
            for updates in merged:
                _merge(updates)
            changed |= bool(merged)
            if not merged or sum(map(len, merged)) == groups.count:
                break
        return changed


def _writers(program: Program) -> Iterator[Operator]:
    """Yield the operators that may end a group: they write persistable variables.

    Descents along gradients that no operator of a group computes are left to `MergeUpdates`.
    """
    block = program.global_block()
    by_type = block.ops.by_type
    for op in (op for type, ops in by_type.items() if type in FORWARD or type == "assign" for op in ops):
        var = block.vars.get(op.outputs["Out"][0])
        if var is not None and var.persistable and var.dtype in _FLOATS:
            yield op
    if "sgd" in by_type:
        computed = {
            name for type, ops in by_type.items() if type in FORWARD for op in ops for name in op.outputs["Out"]
        }
        yield from (op for op in by_type["sgd"] if op.inputs["Grad"][0] in computed)


@dataclass(eq=False)
class _Group:
    """Operators whose results have one type."""

    kind: TensorType
    ops: list[Operator] = field(default_factory=list)


class _Update(NamedTuple):
    """Description of a group. Two groups with equal keys do the same arithmetic on different variables."""

    key: tuple[Any, ...]
    lists: Sequence[str]
    """The variables, and what else has their type."""
    numbers: Sequence[str]
    """Single elements that no other group reads."""
    shared: Sequence[str]
    results: Sequence[str]
    attrs: Mapping[str, Any]
    size: int
    ops: Sequence[Operator]
    """In order."""
    end: int
    """Position of the last operator."""
    limit: float
    """Position of the first operator that must come later: it reads a result, or writes what the group reads."""


class _Groups:
    """Find the groups of a block, from the last operator of each back to the first."""

    def __init__(self, values: Values) -> None:
        self._values, self._type_of = values, cache(values.type_of)
        self._of: dict[Operator, _Group] = {}
        self._read: dict[Operator, list[Value]] = {}
        """The values that an operator reads, once they are known."""
        self._results: dict[Operator, Value] = {}
        """The value that it writes."""
        self._lines: dict[Any, list[str]] = {}
        """The calls of operators as text; groups that are alike share it, because to write it takes long."""
        self._ends = set(_writers(values.block.program))
        pending = sorted((-values.position[op], op) for op in self._ends)
        seen = set(self._ends)
        while pending:
            # The last operator that is left, so that it is known which readers of its result belong to a group.
            _, op = heappop(pending)
            for maker in self._makers(op) if self._add(op) else ():
                if maker not in seen:
                    seen.add(maker)
                    heappush(pending, (-values.position[maker], maker))

    def updates(self) -> list[_Update]:
        """Describe the groups that can be merged, by their ends."""
        groups = [each for each in dict.fromkeys(self._of.values()) if len(each.ops) <= _MOST_OPERATORS]
        self.count = len(groups)
        found = [update for each in groups if (update := self._update(each)) is not None]
        return sorted(found, key=lambda update: update.end)

    def _add(self, op: Operator) -> bool:
        """Try to add an operator to a group; returns whether it fits.

        Groups that read its result become one, and it joins that. An operator that ends a group may start one.
        """
        values = self._values
        result = self._results[op] = values.written(op.output_arg_names[0], op)
        readers = {self._of.get(reader) for reader in values.readers[result]}
        if op not in self._ends and (None in readers or values.is_live_out(result)):
            return False
        self._read[op] = [values.read(name, op) for name in op.input_arg_names if name != EMPTY]
        kind = self._kind(op)
        around = [each for each in readers if each is not None and each.kind == kind]
        if kind is not None and not around and len(readers) == 1 and op not in self._ends:
            # A single element that only one group reads may be its own number.
            around = [each for each in readers if each is not None and each.kind.with_shape((1,)) == kind]
        if kind is None or not (op in self._ends or len(around) == len(readers)):
            return False
        *others, group = sorted(around, key=lambda each: len(each.ops)) or [_Group(kind)]
        joined = [op, *(each for other in others for each in other.ops)]
        group.ops += joined
        self._of.update(dict.fromkeys(joined, group))
        return True

    def _kind(self, op: Operator) -> TensorType | None:
        """The type of what `op` writes and reads, but for single elements; None if it may not be in a group."""
        kind, *read = map(self._type_of, (self._results[op], *self._read[op]))
        if kind is None or kind.dtype not in _FLOATS or not kind.is_static or kind.kind is not VarKind.LOD_TENSOR:
            return None
        if any(each != kind for each in read) and any(each not in (kind, kind.with_shape((1,))) for each in read):
            return None
        if op.type == "sgd":
            return None if op.inputs.get("SkipUpdate") else kind
        # The other operands are broadcast to the first.
        is_whole = all(each == kind for each in (read if op.type == "sum" else read[:1]))
        return kind if is_whole and (op.type == "assign" or is_plain(op, kind.dtype)) else None

    def _makers(self, op: Operator) -> Iterator[Operator]:
        """Yield the operators that compute the operands of `op` and may belong to its group."""
        made = map(self._values.writer.get, self._read[op])
        return (maker for maker in made if maker is not None and maker.type in FORWARD)

    def _update(self, group: _Group) -> _Update | None:
        """Describe what a group computes; None if it cannot be merged."""
        values, ops = self._values, sorted(group.ops, key=self._values.position.__getitem__)
        ends = [op for op in ops if op in self._ends]
        copied = {self._results[op]: self._read[op][0] for op in ops if op.type == "assign"}
        made = {self._results[op] for op in ops if op.type != "assign"}
        read = dict.fromkeys(value for op in ops for value in self._read[op])
        outer = [value for value in read if value not in made and value not in copied]
        targets = [self._results[op] for op in ends]
        old = [values.read(op.output_arg_names[0], op) for op in ends]
        new = [copied.get(target, target) for target in targets]
        lists = [value for value in outer if value in old or not self._is_shared(value, group)]
        numbers = [value for value in outer if value not in lists and self._is_number(value, group)]
        shared = [value for value in outer if value not in lists and value not in numbers]
        if any(values.readers[target] for target in targets) and self._may_be_differentiated((*targets, *outer)):
            return None
        # Descents alone are left to `MergeUpdates`. A variable that is not read need not have a value yet.
        fits = len(lists) <= len(LISTS) and len(numbers) <= len(NUMBERS) and len(ends) <= len(RESULTS)
        is_whole = made.issuperset(new) and len(set(new)) == len(new) and set(lists).issuperset(old)
        is_more = any(op.type != "sgd" for op in ops)
        if not (fits and is_more and is_whole and all(map(values.is_live_out, targets))):
            return None
        names = {value: f"x{i}" for i, value in enumerate((*lists, *numbers, *shared))}
        names |= {value: f"y{i}" for i, value in enumerate(new)}
        names |= {value: names[source] for value, source in copied.items()}
        steps = tuple(self._steps(ops, names))
        replaced = tuple(map(lists.index, old))
        key = steps, replaced, group.kind.dtype, len(numbers), tuple(shared)
        results = [target.name for target in targets]
        attrs = {"steps": list(steps), "replaced": list(replaced)}
        end, limit = values.position[ops[-1]], self._limit(ops, ends, outer)
        if limit <= end:
            return None
        own, single, common = ([value.name for value in each] for each in (lists, numbers, shared))
        return _Update(key, own, single, common, results, attrs, prod(group.kind.shape), ops, end, limit)

    def _is_shared(self, value: Value, group: _Group) -> bool:
        """Whether a value of one element is not the group's own."""
        kind = self._type_of(value)
        if kind != group.kind:
            return True
        readers = {self._of.get(reader) for reader in self._values.readers[value]}
        return kind.shape == (1,) and bool(readers - {None, group})

    def _is_number(self, value: Value, group: _Group) -> bool:
        """Whether only this group reads a single element; groups that change single elements do not count."""
        groups = {self._of.get(reader) for reader in self._values.readers[value]}
        return group.kind.shape != (1,) and all(each in (None, group) or each.kind.shape == (1,) for each in groups)

    def _may_be_differentiated(self, found: Iterable[Value]) -> bool:
        """Whether a loss of values may still get gradients: a merged operator has none."""
        block, writer = self._values.block, self._values.writer
        if block.program.backward_passes or block.program.is_concrete:
            return False
        known = ((value, block.vars[value.name]) for value in found if value.name in block.vars)
        return any(
            not var.stop_gradient and (isinstance(var, Parameter) or (value in writer and not var.persistable))
            for value, var in known
        )

    def _steps(self, ops: Sequence[Operator], names: dict[Value, str]) -> Iterator[str]:
        """Yield the calls of a group as text, and name what they compute."""
        count = itertools.count()
        for op in ops:
            if op.type == "assign":
                continue
            result, read = self._results[op], [names[value] for value in self._read[op]]
            if result not in names:
                names[result] = f"t{next(count)}"
            step = f"t{next(count)}" if op.type == "sgd" else ""
            # As text, attributes that are equal but not the same differ: 0.0 and -0.0.
            slots = [(slot, len(given)) for slot, given in op.inputs.items()]
            key = op.type, repr(op.attrs), *slots, *read, step, names[result]
            lines = self._lines.get(key)
            if lines is None:
                lines = self._lines[key] = list(map(str, self._calls(op, step, names)))
            yield from lines

    def _calls(self, op: Operator, step: str, names: Mapping[Value, str]) -> Iterator[FusedCall]:
        """Yield what an operator computes, a descent by way of the name `step`."""
        if op.type == "sgd":
            param, grad, rate = (names[self._values.input(op, slot)] for slot in ("Param", "Grad", "LearningRate"))
            yield FusedCall("elementwise_mul", (grad, rate), (step,), {"axis": -1})
            yield FusedCall("elementwise_sub", (param, step), (names[self._results[op]],), {"axis": -1})
        else:
            call = call_in_group(op, names, self._values)
            # Whole values and single elements are broadcast alike along every axis.
            yield replace(call, attrs={**call.attrs, "axis": -1}) if "axis" in call.attrs else call

    def _limit(self, ops: Sequence[Operator], ends: Sequence[Operator], outer: Sequence[Value]) -> float:
        values = self._values
        later = [reader for op in ends for reader in values.readers[self._results[op]]]
        later += [op for name, number in outer if (op := values.writer.get(Value(name, number + 1))) is not None]
        return min((values.position[op] for op in set(later).difference(ops)), default=inf)


def _alike(updates: Sequence[_Update]) -> list[list[_Update]]:
    """The updates that can be merged, each list in order."""
    found: list[list[_Update]] = []
    latest: dict[tuple[Any, ...], tuple[list[_Update], float]] = {}
    for update in updates:
        group, limit = latest.get(update.key, ([], 0))
        if limit <= update.end:
            group, limit = [], inf
            found.append(group)
        group.append(update)
        latest[update.key] = group, min(limit, update.limit)
    return found


def _merge(updates: Sequence[_Update]) -> None:
    """Put one operator in the place of the last operator of several updates."""
    last = updates[-1]
    lists, numbers, results = (
        [list(each) for each in zip(*column, strict=True)]
        for column in zip(*((each.lists, each.numbers, each.results) for each in updates), strict=True)
    )
    inputs = dict(zip(LISTS, lists, strict=False)) | dict(zip(NUMBERS, numbers, strict=False))
    if last.shared:
        inputs[SHARED] = list(last.shared)
    attrs = {**last.attrs, **({"sizes": [each.size for each in updates]} if numbers else {})}
    merged = insert_for(last.ops[-1], TYPE, inputs, dict(zip(RESULTS, results, strict=False)), attrs)
    merged.role_vars = tuple([name for each in updates for op in each.ops for name in op.role_vars])
    for op in [op for each in updates for op in each.ops]:
        op.block.remove(op)
