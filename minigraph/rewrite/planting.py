"""Operators that the pattern of a rule fits, for random programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minigraph import unique_name
from minigraph.errors import ProgramError
from minigraph.ir import Block, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.passes.base import Pipeline
from minigraph.passes.rules import Rule, Rules
from minigraph.passes.rules.fragments import Hole
from minigraph.passes.rules.pattern import Pattern, PatternOp
from minigraph.passes.rules.pattern import Slot as PatternSlot
from minigraph.rewrite.random_programs.drawing import Pick

_MOST_PICKS = 8
"""Maximum values that are tried for a placeholder of a certain type."""


def plants_of(rewrite: Any) -> Iterator[Callable[[Pick], list[Variable]]]:
    """For each rule of a pass, what appends operators that its pattern fits."""
    if isinstance(rewrite, Rule):
        yield lambda pick: _plant(rewrite.pattern, pick)
    elif isinstance(rewrite, Rules | Pipeline):
        for each in rewrite.rules if isinstance(rewrite, Rules) else rewrite.passes:
            yield from plants_of(each)


def _plant(pattern: Pattern, pick: Pick) -> list[Variable]:
    block = default_main_program().current_block()
    values: dict[int, list[Variable]] = {number: _stand_in(hole, pick) for number, hole in enumerate(pattern.holes)}
    for op in pattern.ops:
        _append(op, block, values, pick)
    return [var for op in pattern.ops for slot in op.outputs for number in slot.places for var in values[number]]


def _stand_in(hole: Hole, pick: Pick) -> list[Variable]:
    if hole.optional and pick.choose.random() < 0.3:
        return []
    return [_suiting(hole, pick) for _ in range(pick.choose.randrange(3) if hole.several else 1)]


def _suiting(hole: Hole, pick: Pick) -> Variable:
    for _ in range(_MOST_PICKS):
        var = pick()
        wanted, known = hole.type, var.tensor_type
        if wanted is None:
            return var
        if known is not None and known.dtype == wanted.dtype and len(known.shape) == len(wanted.shape):
            return var
    raise ProgramError(f"no value suits {hole.name}")


def _append(op: PatternOp, block: Block, values: dict[int, list[Variable]], pick: Pick) -> None:
    type = pick.choose.choice(op.types)
    inputs = {slot.name: [var for number in slot.places for var in values[number]] for slot in op.inputs}
    inputs = {name: given for name, given in inputs.items() if given}
    attrs = {**op.attrs, **{name: pick.attr(type, name) for name, _ in op.captured}}
    if op.role is not None:
        attrs["op_role"] = op.role
    outputs: dict[str, list[Variable]] = {}
    for slot in op.outputs:
        outputs[slot.name] = [_made(block, slot, number, values) for number in slot.places]
    definition = pick.definition(type)
    for name in definition.required_outputs:
        outputs.setdefault(name, [block.create_var(name=unique_name.generate("t"))])
    block.append_op(type, inputs, outputs, attrs)


def _made(block: Block, slot: PatternSlot, number: int, values: dict[int, list[Variable]]) -> Variable:
    var = block.create_var(name=unique_name.generate("t"))
    values[number] = [var]
    return var
