"""Share the results of equal operators."""

from __future__ import annotations

from collections.abc import Hashable

from minigraph.ir import Operator, Program, Role
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import is_random, redirect, stops_gradient
from minigraph.passes.values import Value, Values


class ShareCommonSubexpressions(Pass):
    """Let readers of an operator's results read those of an earlier operator that computes the same.

    Operators compute the same if type, attributes, outputs in use and input values, not only their names, are equal.

    Law: every value keeps its bits. Operators stay that draw random numbers, write persistable variables or come from
    `Recompute`. Readers stay where the name of the earlier result has been written again. Results that nobody reads any
    more are left to `RemoveDeadOps`.
    """

    def apply(self, program: Program) -> bool:
        return share_equal(program)


def share_equal(program: Program) -> bool:
    """Let readers of operators that compute the same read the results of the first, and say whether there are any."""
    # Values are numbered only where two operators might be equal.
    if not has_twins(program):
        return False
    values, same = Values(program), dict[Value, Value]()
    first_of: dict[Hashable, Operator] = {}
    changed = False
    for op in program.global_block().ops:
        key = _key(op, values, same)
        if same:
            changed |= _read_first(op, values, same)
        if not _is_shareable(op, values):
            continue
        first = first_of.setdefault(key, op)
        # The key compares attributes by value, where 0.0 == -0.0; only for equal keys the text is made.
        if first is not op and _are_alike(first, op, values):
            for here, there in _outputs(op, first):
                same[values.written(here, op)] = values.written(there, first)
    return changed


def has_twins(program: Program, copies: frozenset[str] = frozenset()) -> bool:
    """Whether operators of one type are alike in names and attributes, as the first two that compute the same are.

    `copies` are types that do not count.
    """
    for type, ops in program.global_block().ops.by_type.items():
        if type in copies or len(ops) == len({tuple(op.inputs.values()) for op in ops}):
            continue
        if len(ops) > len({(*op.inputs.values(), *sorted(op.attrs.items())) for op in ops}):
            return True
    return False


def _key(op: Operator, values: Values, same: dict[Value, Value]) -> Hashable:
    """Return a key that is equal for operators that compute the same."""
    parts: list[Hashable] = [op.type]
    for slot, names in op.inputs.items():
        read = [values.read(name, op) for name in names]
        parts += [slot, *([same.get(value, value) for value in read] if same else read)]
    for slot, names in op.outputs.items():
        parts += [slot, *[name != EMPTY for name in names]]
    parts += sorted(op.attrs.items())
    return tuple(parts)


def _read_first(op: Operator, values: Values, same: dict[Value, Value]) -> bool:
    names: dict[str, str] = {}
    for name in () if op.definition.has_hidden_names else op.input_arg_names:
        first = same.get(values.read(name, op))
        if first is not None and values.is_there(first, op):
            names[name] = first[0]
    redirect(op, names)
    return bool(names)


def _is_shareable(op: Operator, values: Values) -> bool:
    return (
        not op.definition.has_hidden_names
        and not is_random(op.type)
        and not op.role & Role.RECOMPUTE  # repeats another operator to save memory
        and not any(values.block.vars[name].persistable for name in op.output_arg_names)
    )


def _are_alike(first: Operator, op: Operator, values: Values) -> bool:
    """Whether attributes are the same to the bit (0.0 equals -0.0), and results are declared alike.

    A result that stops gradients is not like one through which they will flow.
    """
    variables = values.block.vars
    return repr(sorted(first.attrs.items())) == repr(sorted(op.attrs.items())) and all(
        variables[here].tensor_type == variables[there].tensor_type
        and stops_gradient(here, op) == stops_gradient(there, first)
        for here, there in _outputs(op, first)
    )


def _outputs(op: Operator, other: Operator) -> list[tuple[str, str]]:
    """Pair the names that both write, slot by slot."""
    return list(zip(op.output_arg_names, other.output_arg_names, strict=True))
