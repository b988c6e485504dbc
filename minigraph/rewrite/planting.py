"""Operators that the pattern of a rule fits, for random programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from minigraph import unique_name
from minigraph.errors import MinigraphError, ProgramError
from minigraph.ir import Block, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.opdef import DECLARED
from minigraph.passes.base import Pipeline
from minigraph.passes.rules import Rule, Rules
from minigraph.passes.rules.fragments import Placeholder
from minigraph.passes.rules.pattern import Pattern, PatternOp
from minigraph.passes.values import Values
from minigraph.rewrite.random_programs.drawing import Pick
from minigraph.types import TensorType

_MOST_TRIES = 12
"""Maximum choices of values and attributes until the operators of a pattern accept them."""

_MOST_PLANTS = 3
"""Maximum choices until the conditions of a rule hold."""

_ALIKE = 0.2
"""Probability that a placeholder stands for another value of the type of an earlier one."""

_SHARED = 0.15
"""Probability that a placeholder stands for the value of an earlier one."""

_RELATED = 0.3
"""Probability that a captured number is an earlier one, its negative or its reciprocal."""

_EVEN = 0.1
"""Probability that a placeholder stands for a value whose axes have one size."""

_UNSUITED = (MinigraphError, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of an inference that is given what it was never made for."""


def plants_of(rewrite: Any) -> Iterator[Callable[[Pick], list[Variable]]]:
    """Functions that append operators which a pattern fits, one for each rule of a pass."""
    if isinstance(rewrite, Rule):
        yield lambda pick: _plant(rewrite, pick)
    elif isinstance(rewrite, Rules | Pipeline):
        for each in rewrite.rules if isinstance(rewrite, Rules) else rewrite.passes:
            yield from plants_of(each)


def _plant(rule: Rule, pick: Pick) -> list[Variable]:
    """Append operators for which the conditions of the rule mostly hold."""
    made: list[Variable] = []
    for _ in range(_MOST_PLANTS):
        made += _planted(rule, pick)
        block = default_main_program().current_block()
        with suppress(MinigraphError):  # a condition that fails is for the check to tell
            if rule.match(block.ops[-1], Values(block)) is not None:
                break
    return made


def _planted(rule: Rule, pick: Pick) -> list[Variable]:
    first = _Fitted(rule.pattern, pick) if rule.differentiates is None else _Fitted(rule.differentiates.pattern, pick)
    if rule.differentiates is None:
        return first.append()
    # The result has the type that its gradient must have.
    return _Fitted(rule.pattern, pick, {**first.given, "d": first.append()[-1:]}, first.captured).append()


class _Fitted:
    """Values for the placeholders of a pattern, and attributes, that its operators accept."""

    given: dict[str, list[Variable]]
    """Values by placeholder."""
    captured: dict[str, Any]
    """Captured attributes by name."""
    _ops: list[tuple[PatternOp, str, dict[str, Any]]]
    """Operators, each with its type and its attributes."""

    def __init__(
        self,
        pattern: Pattern,
        pick: Pick,
        known: Mapping[str, list[Variable]] | None = None,
        captured: Mapping[str, Any] | None = None,
    ) -> None:
        self.pattern = pattern
        self._pick = pick
        self._known = known or {}
        self._captured = captured or {}
        for number in range(_MOST_TRIES):
            try:
                self._choose(is_first=number < _MOST_TRIES // 4)
            except _UNSUITED as error:
                failed = error
            else:
                return
        raise ProgramError(f"no values suit {pattern.name}") from failed

    def _choose(self, is_first: bool) -> None:
        """Choose values and attributes; raise unless the operators accept them."""
        self.given, self.captured, self._ops = dict(self._known), dict(self._captured), []
        for each in self.pattern.placeholders:
            if each.name not in self.given:
                self.given[each.name] = self._stand_in(each, is_first)
        types: dict[int, list[TensorType | None]] = {
            number: [var.tensor_type for var in self.given[each.name]]
            for number, each in enumerate(self.pattern.placeholders)
        }
        for op in self.pattern.ops:
            self._fit(op, types)

    def _stand_in(self, placeholder: Placeholder, is_first: bool) -> list[Variable]:
        choose = self._pick.choose
        if placeholder.optional and choose.random() < 0.3:
            return []
        count = choose.randrange(3) if placeholder.several else 1
        return [self._suiting(placeholder, is_first) for _ in range(count)]

    def _suiting(self, placeholder: Placeholder, is_first: bool) -> Variable:
        """A value that is of the type of the placeholder; after the first tries often one of another kind."""
        choose = self._pick.choose
        before = [var for variables in self.given.values() for var in variables]
        if self._pick.wants_dtype():
            return self._pick.of_wanted_dtype()
        chance = choose.random()
        if before and chance < _SHARED:
            var = choose.choice(before)
        elif before and chance < _SHARED + _ALIKE:
            var = self._pick.like(choose.choice(before))
        elif chance > 1 - _EVEN:
            var = self._pick.even()
        elif is_first or choose.random() < 0.4:
            var = self._pick()
        else:
            kind = choose.choice(("b", "i", "f", "same"))
            var = self._pick.like(choose.choice(before)) if kind == "same" and before else self._pick.of_kind(kind)
        wanted, known = placeholder.type, var.tensor_type
        if wanted is None:
            return var
        if known is None or known.dtype != wanted.dtype or len(known.shape) != len(wanted.shape):
            raise ProgramError(f"{var.name} does not suit {placeholder.name}")
        return var

    def _fit(self, op: PatternOp, types: dict[int, list[TensorType | None]]) -> None:
        """Choose the type and the attributes of an operator, and infer the types of its results."""
        type = self._pick.choose.choice(op.types)
        inputs = {slot.name: [each for number in slot.places for each in types[number]] for slot in op.inputs}
        inputs = {name: given for name, given in inputs.items() if given}
        operand = next((given[0] for given in inputs.values()), None)
        for attr, name in op.captured:
            if name not in self.captured:
                self.captured[name] = self._related(self._pick.attr(type, attr, operand))
        attrs = {**op.attrs, **{attr: self.captured[name] for attr, name in op.captured}}
        definition = self._pick.definition(type)
        inferred = definition.infer_types(inputs, definition.convert_attrs(attrs))
        for slot in op.outputs:
            made = inferred.get(slot.name, DECLARED)
            for index, number in enumerate(slot.places):
                types[number] = [None if made is DECLARED else made[index]]
        self._ops.append((op, type, attrs))

    def _related(self, value: Any) -> Any:
        """The value, or now and then a number that an earlier one cancels: conditions compare captured numbers."""
        choose = self._pick.choose
        known = [each for each in self.captured.values() if type(each) is float and each]
        if type(value) is not float or not known or choose.random() > _RELATED:
            return value
        earlier = choose.choice(known)
        return choose.choice((earlier, -earlier, 1 / earlier))

    def append(self) -> list[Variable]:
        """Append the operators; returns all results."""
        block = default_main_program().current_block()
        values = {number: self.given[each.name] for number, each in enumerate(self.pattern.placeholders)}
        for op, type, attrs in self._ops:
            self._append(op, type, attrs, block, values)
        return [var for op in self.pattern.ops for slot in op.outputs for each in slot.places for var in values[each]]

    def _append(
        self, op: PatternOp, type: str, attrs: dict[str, Any], block: Block, values: dict[int, list[Variable]]
    ) -> None:
        inputs = {slot.name: [var for number in slot.places for var in values[number]] for slot in op.inputs}
        outputs: dict[str, list[Variable]] = {}
        for slot in op.outputs:
            for number in slot.places:
                values[number] = [_new(block)]
            outputs[slot.name] = [values[number][0] for number in slot.places]
        for name in self._pick.definition(type).required_outputs:
            outputs.setdefault(name, [_new(block)])
        role = {} if op.role is None else {"op_role": op.role}
        block.append_op(type, {name: given for name, given in inputs.items() if given}, outputs, {**attrs, **role})


def _new(block: Block) -> Variable:
    return block.create_var(name=unique_name.generate("t"))
