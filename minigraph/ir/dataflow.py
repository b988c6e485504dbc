"""Find the operators that a value depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minigraph.ir.block import Block
from minigraph.ir.operator import Operator
from minigraph.ir.variable import Variable
from minigraph.opdef import EMPTY

FOR_MODELS = frozenset(("feed", "fetch"))
"""Operators of saved models that a run, which is told what is fed and fetched, leaves out."""


def backward_slice(
    block: Block,
    fetch_names: Sequence[str],
    keeps: Callable[[str], bool] = lambda type: False,
    note: Callable[[Operator, set[str]], None] | None = None,
) -> list[Operator]:
    """Return, in order, the operators that fetched and persistable variables depend on.

    A value of a persistable variable that is written over before anything reads it is left out like any other.
    Operators of the types for which `keeps` is true are among them in any case.

    `note` is called with each operator that has several output slots, the last one first, and with the names that
    later operators read.
    """
    always = {type for type in block.ops.by_type if keeps(type)}
    wanted = set(fetch_names)
    replaced = set[str]()
    """Names that a later operator writes before any reads them."""
    kept: list[Operator] = []
    for op in reversed(block.ops[:]):
        if op.type in FOR_MODELS:
            continue
        outputs = op.outputs.values()
        is_wanted = not all(map(wanted.isdisjoint, outputs)) or op.type in always
        hidden = op.hidden_names if op.definition.has_hidden_names else None
        if hidden is not None:
            is_wanted = is_wanted or not wanted.isdisjoint(hidden.written)
        if not is_wanted and not any(
            [name not in replaced and is_persistable(block.find_var(name)) for name in op.output_arg_names]
        ):
            continue
        kept.append(op)
        if note is not None and len(outputs) > 1:
            note(op, wanted)
        # Outputs first: an operator that updates a variable in place reads its value before.
        inputs = op.inputs.values()
        wanted.difference_update(*outputs)
        wanted.update(*inputs)
        if hidden is None:
            replaced.update(*outputs)
            replaced.difference_update(*inputs)
        else:  # a block that may not run replaces nothing
            replaced.difference_update(op.input_arg_names)
            wanted.difference_update(hidden.written)
            wanted.update(op.input_arg_names)
        wanted.discard(EMPTY)
    kept.reverse()
    return kept


def is_persistable(var: Variable | None) -> bool:
    return var is not None and var.persistable
