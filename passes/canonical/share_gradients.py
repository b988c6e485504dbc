"""Share what equal operators compute, and what their gradients do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import ClassVar

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.opdef.gradient_context import GRAD_SUFFIX
from minigraph.passes.base import Pass
from minigraph.passes.canonical.common_subexpressions import has_twins, share_equal
from minigraph.passes.canonical.dead_ops import remove_dead
from minigraph.passes.rewriting import is_random
from minigraph.passes.values import Use, Value, Values

_COPIES = frozenset({"assign", "rnn_memory_helper", "rnn_memory_helper_grad"})


class ShareGradients(Pass):
    """Compute equal operators once, and the gradients through them from the sum of what flows into them.

    A formula may have one term twice, such as ``x - mean(x)``. Both terms pass gradients on, which a ``sum`` adds. A
    gradient is linear in what flows into it: ``f_grad(x, a) + f_grad(x, b) = f_grad(x, a + b)``. So it is computed once
    as well, and later passes find the formula as if the term had a name.

    Law: every gradient is the same up to rounding, because its terms are added before ``f_grad`` and not after it; all
    other values keep their bits. Gradients of single operators that are fetched or persistable are left alone, and so
    are selected rows.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        changed = False
        while self._share_once(program):
            changed = True
            # A write that goes with what is dead may have kept two operators from reading one value.
            again = _overwrites(program)
            remove_dead(program)  # as readers, they would keep other passes from what they read
            if not again:
                break
        return changed

    def _share_once(self, program: Program) -> bool:
        # Chains of copies are left to `CleanUp`, which takes them out at less cost.
        changed = has_twins(program, _COPIES) and share_equal(program)
        if _may_have_twins(program):
            values = Values(program)
            # Last ones first: gradients that are added before an operator make twins of what writes them.
            for op in reversed(program.global_block().ops):
                total: Operator | None = op
                while total is not None and total.type == "sum" and len(total.inputs["X"]) > 1:
                    total = _share(total, values)
                    changed |= total is not None
        return changed


def _overwrites(program: Program) -> bool:
    """Whether two operators write one name."""
    names = [name for op in program.global_block().ops for name in op.output_arg_names if name != EMPTY]
    return len(set(names)) < len(names)


def _may_have_twins(program: Program) -> bool:
    """Whether two operators of one type make gradients from the same names, but for what flows in."""
    ops = program.global_block().ops
    if not ops.of_type("sum"):
        return False
    for several in ops.by_type.values():
        if _is_gradient(several[0]) and len(several) > 1:
            counts = Counter([tuple(names for slot, names in op.inputs.items() if not _flows(slot)) for op in several])
            if len(counts) < len(several):
                return True
    return False


def _is_gradient(op: Operator) -> bool:
    return op.type.endswith("_grad") and op.definition.forward is not None and op.type not in _COPIES


def _flows(slot: str) -> bool:
    return slot.endswith(GRAD_SUFFIX)


def _share(total: Operator, values: Values) -> Operator | None:
    """Make one operator of twins that write addends of a sum, and return the sum that is left."""
    twins: dict[Hashable, list[Operator]] = {}
    for name in total.inputs["X"]:
        op = values.producer(values.read(name, total))
        if op is not None and (key := _key(op, values)) is not None:
            twins.setdefault(key, []).append(op)
    result = values.output(total, "Out")
    for ops in twins.values():
        ops = sorted(set(ops), key=values.position.__getitem__)
        if len(ops) > 1 and _merge(ops, values):
            return values.writer[result]
    return None


def _key(op: Operator, values: Values) -> Hashable | None:
    """Return a key that is equal for gradients of equal operators whose results go into the same sums."""
    if not _is_gradient(op) or is_random(op.type):
        return None
    parts: list[Hashable] = [op.type, repr(sorted(op.attrs.items()))]
    for slot, names in op.inputs.items():
        parts += [slot, len(names)] if _flows(slot) else [slot, *[values.read(name, op) for name in names]]
        if _flows(slot) and EMPTY in names:
            return None
    for slot, names in op.outputs.items():
        parts += [slot, *[EMPTY if name == EMPTY else _sum_of(values.written(name, op), values) for name in names]]
    return None if None in parts else tuple(parts)


def _sum_of(value: Value, values: Values) -> Operator | None:
    """The sum that alone reads a value, once."""
    if not values.is_used_once(value):
        return None
    (reader,) = values.readers[value]
    kind = values.type_of(value)
    is_added = reader.type == "sum" and reader.inputs["X"].count(value.name) == 1
    return reader if is_added and kind is not None and not kind.is_rows else None


def _merge(ops: list[Operator], values: Values) -> bool:
    """Let the last of these operators compute the gradients of all, from sums of what flows into them."""
    *others, last = ops
    places = [(slot, i) for slot, names in last.inputs.items() if _flows(slot) for i in range(len(names))]
    flowing = {place: [values.input(op, *place) for op in ops] for place in places}
    if not all(_can_be_added(each, last, values) for each in flowing.values()):
        return False
    sums = dict.fromkeys(_sum_of(values.written(name, last), values) for name in last.output_arg_names if name != EMPTY)
    gone = {name for op in others for name in op.output_arg_names}
    inner: list[Operator] = []
    for place, each in flowing.items():
        made = _inner_sums(each, last, values)
        inner += made
        addends = [values.input(op, "X", i) for op in made for i in range(len(op.inputs["X"]))] or each
        added = values.insert("sum", {"X": addends}, before=last)
        values.replace_use(Use(last, *place), values.output(added, "Out"))
    for total in filter(None, sums):
        kept = [name for name in total.inputs["X"] if name not in gone]
        rest = values.replace_op(total, "sum", {"X": kept})
        if len(kept) == 1:
            _skip(rest, values)
    for op in (*others, *inner):
        values.erase(op)
    return True


def _inner_sums(flowing: list[Value], op: Operator, values: Values) -> list[Operator]:
    """The sums that make all of these values for one reader each, if their addends can be added at `op` instead."""
    made = [inner for value in flowing if (inner := values.producer(value, "sum")) is not None]
    addends = [values.input(inner, "X", i) for inner in made for i in range(len(inner.inputs["X"]))]
    is_plain = len(made) == len(flowing) and all(map(values.is_used_once, flowing)) and len(set(made)) == len(made)
    return made if is_plain and _can_be_added(addends, op, values) else []


def _can_be_added(flowing: list[Value], op: Operator, values: Values) -> bool:
    """Whether all that flows into operators is there at the last of them, and is no selected rows."""
    return all(
        values.is_there(value, op) and (kind := values.type_of(value)) is not None and not kind.is_rows
        for value in flowing
    )


def _skip(copy: Operator, values: Values) -> None:
    """Let readers of a sum of one value read that value."""
    original, result = values.input(copy, "X"), values.output(copy, "Out")
    for use in values.users(result):
        if use.slot is not None and not use.op.definition.has_hidden_names and values.is_there(original, use.op):
            values.replace_use(use, original)
