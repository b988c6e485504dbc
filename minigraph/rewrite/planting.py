"""Operators that the pattern of a rule fits, for random programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minigraph import unique_name
from minigraph.errors import ProgramError
from minigraph.ir import Block, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.passes.base import Pipeline
from minigraph.passes.rules import Rule, Rules
from minigraph.passes.rules.fragments import Placeholder
from minigraph.passes.rules.pattern import Pattern, PatternOp
from minigraph.rewrite.random_programs.drawing import Pick

_MOST_PICKS = 8
"""Maximum values that are tried for a placeholder of a certain type."""


def plants_of(rewrite: Any) -> Iterator[Callable[[Pick], list[Variable]]]:
    """Functions that append operators which a pattern fits, one for each rule of a pass."""
    if isinstance(rewrite, Rule):
        yield lambda pick: _plant(rewrite, pick)
    elif isinstance(rewrite, Rules | Pipeline):
        for each in rewrite.rules if isinstance(rewrite, Rules) else rewrite.passes:
            yield from plants_of(each)


def _plant(rule: Rule, pick: Pick) -> list[Variable]:
    placeholders = [each for each in rule.pattern.placeholders if each.name != "d" or rule.differentiates is None]
    given = {each.name: _stand_in(each, pick) for each in placeholders}
    captured: dict[str, Any] = {}
    if rule.differentiates is not None:  # the result has the type that its gradient must have
        given["d"] = _planted(rule.differentiates.pattern, given, captured, pick)[-1:]
    return _planted(rule.pattern, given, captured, pick)


def _planted(
    pattern: Pattern, given: Mapping[str, list[Variable]], captured: dict[str, Any], pick: Pick
) -> list[Variable]:
    """Append the operators; `captured` attributes that an earlier one has keep their values."""
    block = default_main_program().current_block()
    values = {number: given[each.name] for number, each in enumerate(pattern.placeholders)}
    for op in pattern.ops:
        _append(op, block, values, captured, pick)
    return [var for op in pattern.ops for slot in op.outputs for number in slot.places for var in values[number]]


def _stand_in(placeholder: Placeholder, pick: Pick) -> list[Variable]:
    if placeholder.optional and pick.choose.random() < 0.3:
        return []
    return [_suiting(placeholder, pick) for _ in range(pick.choose.randrange(3) if placeholder.several else 1)]


def _suiting(placeholder: Placeholder, pick: Pick) -> Variable:
    for _ in range(_MOST_PICKS):
        var = pick()
        wanted, known = placeholder.type, var.tensor_type
        if wanted is None:
            return var
        if known is not None and known.dtype == wanted.dtype and len(known.shape) == len(wanted.shape):
            return var
    raise ProgramError(f"no value suits {placeholder.name}")


def _append(
    op: PatternOp, block: Block, values: dict[int, list[Variable]], captured: dict[str, Any], pick: Pick
) -> None:
    type = pick.choose.choice(op.types)
    inputs = {slot.name: [var for number in slot.places for var in values[number]] for slot in op.inputs}
    inputs = {name: given for name, given in inputs.items() if given}
    for attr, name in op.captured:
        if name not in captured:
            captured[name] = pick.attr(type, attr)
    attrs = {**op.attrs, **{attr: captured[name] for attr, name in op.captured}}
    if op.role is not None:
        attrs["op_role"] = op.role
    outputs: dict[str, list[Variable]] = {}
    for slot in op.outputs:
        outputs[slot.name] = [_made(block, number, values) for number in slot.places]
    definition = pick.definition(type)
    for name in definition.required_outputs:
        outputs.setdefault(name, [block.create_var(name=unique_name.generate("t"))])
    block.append_op(type, inputs, outputs, attrs)


def _made(block: Block, number: int, values: dict[int, list[Variable]]) -> Variable:
    var = block.create_var(name=unique_name.generate("t"))
    values[number] = [var]
    return var
