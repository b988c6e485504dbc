"""Find the operators of a pattern in a block, and see whether they may be replaced.

There is one matcher. A recorder, if there is one, hears why something does not match; nobody records by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import inf
from typing import Any, Protocol

from minigraph.ir import Operator, Variable
from minigraph.ir.role import Role
from minigraph.ir.text.notation import attr_text
from minigraph.opdef import EMPTY
from minigraph.passes.rules.fragments import site_of
from minigraph.passes.rules.pattern import Pattern, PatternOp, PatternSlot
from minigraph.passes.values import Value, Values
from minigraph.types import DTypeNumber


class MatchRecorder(Protocol):
    """Hears why operators do not match."""

    def differs(self, op: Operator, slot: str, expected: Any, found: Any) -> None:
        """Note what was expected of `op` in a slot or an attribute, and what was found there."""


class _Unset:
    def __repr__(self) -> str:
        return "unset"


UNSET: Any = _Unset()


class Match:
    """Operators of a block that a pattern fits.

    Placeholders and captured attributes are attributes of the match by their names in the pattern: placeholders are
    variables with the type of the value (a tuple of several, None for one that is left out), captured attributes are
    their values.

    Attributes
    ----------
    ops : tuple of Operator
        The matched operators, in the order of the pattern.
    values : Values
        Values of the block, with the verbs that edit it.
    results : tuple
        The values that the fragment returns; None for one that is left out, or that nobody reads.
    place : Operator or None
        Operator in whose place the replacement can be computed; None if nothing is to be replaced.
    gradients_place : Operator or None
        That for the gradients, of a rule that replaces results together with their gradients.
    """

    def __init__(self, pattern: Pattern, values: Values, ops: tuple[Operator, ...], found: Sequence[Any]) -> None:
        self.pattern = pattern
        self.values = values
        self.ops = ops
        self.place: Operator | None = None
        self.gradients_place: Operator | None = None
        self.kept: frozenset[Operator] = frozenset()
        """Matched operators that stay, because others read their results."""
        self._found = list(found)
        self.results: tuple[Value | None, ...] = tuple([found[each] for each in pattern.returned])

    @property
    def gone(self) -> frozenset[Operator]:
        """Matched operators that a replacement takes the place of."""
        return frozenset(self.ops) - self.kept

    @property
    def inner(self) -> list[Value]:
        """The values that matched operators make besides the results."""
        made = [self.values.written(name, op) for op in self.ops for name in op.output_arg_names]
        return [value for value in made if value not in self.results]

    def value(self, name: str) -> Any:
        """The value that a placeholder stands for: a `Value`, a tuple of several, None if it is left out."""
        return self._found[self.pattern.numbers[name]]

    def _variable(self, value: Value | None) -> Variable | None:
        if value is None:
            return None
        var = self.values.block.find_var(value.name)
        if self.values._has_declared_type(value):
            return var
        tensor_type = self.values.type_of(value)
        if var is None or var.tensor_type is tensor_type or var.tensor_type == tensor_type:
            return var
        return Variable(self.values.block, value.name, tensor_type)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        pattern = self.pattern
        number = pattern.numbers.get(name)
        if number is not None:
            value = self._found[number]
            is_one = value is None or type(value) is Value
            found: Any = self._variable(value) if is_one else tuple(map(self._variable, value))
        elif name in pattern.captured:
            number, attr = pattern.captured[name]
            found = _read(self.ops[number], attr)
        else:
            known = ", ".join([*pattern.numbers, *pattern.captured])
            raise AttributeError(f"the match of {pattern.name} has no {name!r}; it has {known or 'no names'}")
        setattr(self, name, found)
        return found

    def told(self) -> str:
        """List what a condition can depend on: values of captured attributes, and types of placeholders."""
        captured = [(name, *self.pattern.captured[name]) for name in sorted(self.pattern.captured)]
        attrs = [
            f"{name} = {attr_text(self.ops[number].definition.attrs[attr], getattr(self, name))}"
            for name, number, attr in captured
        ]
        given = [(name, getattr(self, name)) for name in self.pattern.numbers]
        return ", ".join([*attrs, *(f"{name}: {_typed(each)}" for name, each in given if each is not None)])

    def __repr__(self) -> str:
        return f"<Match of {self.pattern.name}: {'; '.join(map(str, self.ops))}>"


def _typed(given: Variable | tuple[Variable, ...]) -> str:
    if isinstance(given, tuple):
        return f"[{', '.join(map(_typed, given))}]"
    return str(given.tensor_type or "of unknown type")


def _read(op: Operator, attr: str) -> Any:
    """Value of an attribute; the number of an element type as that type, which names can be compared with."""
    value = op.attrs[attr]
    return value.named if type(value) is DTypeNumber else value


class MatchBeforeValues:
    """Match of one operator as far as it is known before the values of its block are: attributes, and declared types.

    Anything else that a condition asks for is a `LookupError`.
    """

    def __init__(self, pattern: Pattern, op: Operator) -> None:
        block, (node,) = op.block, pattern.ops
        for attr, name in node.captured:
            setattr(self, name, _read(op, attr))
        for slot in node.inputs:
            names = op.inputs.get(slot.name, ())
            if slot.rest is None and len(names) == len(slot.places):
                for place, name in zip(slot.places, names, strict=True):
                    setattr(self, pattern.placeholders[place].name, block.find_var(name))

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


class Matcher:
    """Looks for a pattern in the operators of a block."""

    def __init__(self, pattern: Pattern, values: Values, recorder: MatchRecorder | None = None) -> None:
        self.pattern = pattern
        self.values = values
        self.recorder = recorder
        self.ops: list[Operator | None] = [None] * len(pattern.ops)
        self.found: list[Any] = [UNSET] * pattern.size
        self._captured: dict[str, Any] = {}

    def matches(self, op: Operator) -> Iterator[Match]:
        """Yield the ways in which `op`, which fits the last operator of the pattern, is it."""
        anchor = self.pattern.anchor
        if anchor.commutes:
            for _ in self.bindings(anchor, op):
                yield from self._extend(0)
        elif not self._makes_more(op) and self._bind(anchor, op, _inputs(op)):
            yield from self._extend(0)

    def _extend(self, number: int) -> Iterator[Match]:
        steps = self.pattern.steps
        while number < len(steps):
            op, value, makes = steps[number]
            if makes and self.recorder is None and self._has_others(value):
                return
            candidates = self.candidates(self.found[value], makes)
            number += 1
            if len(candidates) != 1 or op.commutes:
                for candidate in candidates:
                    for _ in self.bindings(op, candidate):
                        yield from self._extend(number)
                return
            # There is no choice, so that the choice before this one undoes it.
            candidate = candidates[0]
            if not self._fits(op, candidate) or not self._bind(op, candidate, _inputs(candidate)):
                return
        yield self.match()

    # `may_replace` decides who may read what. These two end most of the searches that it would refuse, where nobody
    # wants reasons.

    def _has_others(self, place: int) -> bool:
        """Whether operators read a value that are none of the pattern's."""
        pattern = self.pattern
        limit = pattern.limits.get(place)
        if limit is None or len(readers := self.values.readers.get(self.found[place], ())) <= limit:
            return False
        # A placeholder may stand for the value, so that an operator of the match reads it there.
        return len(readers) > len(pattern.ops) or any([op.definition.type not in pattern.all_types for op in readers])

    def _makes_more(self, op: Operator) -> bool:
        """Whether operators of types that the pattern does not have read what the last operator makes besides."""
        anchor, pattern, values = self.pattern.anchor, self.pattern, self.values
        if self.recorder is not None or anchor.shared or op.outputs.keys() <= anchor.makes:
            return False
        others = [name for slot, names in op.outputs.items() if slot not in anchor.makes for name in names]
        return any(
            [
                reader.definition.type not in pattern.all_types
                for name in others if name != EMPTY
                for reader in values.readers.get(values.written(name, op), ())
            ]
        )  # fmt: skip

    def match(self) -> Match:
        """The match of the operators that are bound by now, all of the pattern."""
        return Match(self.pattern, self.values, tuple([op for op in self.ops if op is not None]), self.found)

    def candidates(self, value: Any, makes: bool) -> Sequence[Operator]:
        """Operators that make a value, or that read it."""
        if not isinstance(value, Value):
            return ()
        if not makes:
            return self.values.readers.get(value, ())
        op = self.values.writer.get(value)
        return () if op is None else (op,)

    def bindings(self, op: PatternOp, candidate: Operator) -> Iterator[None]:
        """Bind `op` to an operator in every possible way: values are bound while the caller looks further."""
        if not self._fits(op, candidate):
            return
        before, found, captured = list(self.ops), list(self.found), self._captured
        try:
            for inputs in _arrangements(op, candidate):
                if self._bind(op, candidate, inputs):
                    yield
                self.ops[:], self.found[:], self._captured = before, found, captured
        finally:
            self.ops[:], self.found[:], self._captured = before, found, captured

    def _fits(self, op: PatternOp, candidate: Operator) -> bool:
        """Whether an operator could be `op`, and is not another one already."""
        if candidate in self.ops:
            return self._differs(candidate, "type", f"another {op}", "the same operator")
        return fits(op, candidate, self.recorder)

    def _bind(self, op: PatternOp, candidate: Operator, inputs: Mapping[str, tuple[str, ...]]) -> bool:
        found, read, written, outputs = self.found, self.values.read, self.values.written, candidate.outputs
        self.ops[op.number] = candidate
        for slot, name, place in op.reads:
            names = inputs.get(name, ())
            if place is None or len(names) != 1:
                if not self._bind_several(slot, candidate, names):
                    return False
                continue
            value, known = read(names[0], candidate), found[place]
            if known is UNSET:
                found[place] = value
            elif known != value:
                return self._is_other(candidate, name, known, value)
        for slot, name, places in op.writes:
            names = outputs.get(name, ())
            if len(names) > len(places):
                return self._differs(candidate, name, _count(slot), _variables(len(names)))
            for i, place in enumerate(places):
                is_made = i < len(names) and names[i] != EMPTY
                made, known = written(names[i], candidate) if is_made else None, found[place]
                if known is UNSET:
                    found[place] = made
                elif known != made:
                    return self._is_other(candidate, name, known, made)
        return not op.agreed or self._agrees(op, candidate)

    def _bind_several(self, slot: PatternSlot, candidate: Operator, names: tuple[str, ...]) -> bool:
        """Bind the values of any slot: it may be left out, take several, or want a type."""
        values = tuple([self.values.read(name, candidate) for name in names])
        found: list[Any] = list(values)
        if slot.rest is not None:
            end = len(names) - (len(slot.places) - slot.rest - 1)
            found = [*values[: slot.rest], values[slot.rest : end], *values[end:]] if end >= slot.rest else []
        elif slot.is_optional and not names:
            found = [None] * len(slot.places)
        if len(found) != len(slot.places):
            return self._differs(candidate, slot.name, _count(slot), _variables(len(names)))
        return all([self._set(place, each, candidate, slot) for place, each in zip(slot.places, found, strict=True)])

    def _set(self, place: int, value: Any, op: Operator, slot: PatternSlot) -> bool:
        """Bind a value of the pattern; False if it is bound to another one or does not have its type."""
        known = self.found[place]
        if known is not UNSET:
            return known == value or self._is_other(op, slot.name, known, value)
        wanted = self.pattern.placeholder_types.get(place)
        if wanted is not None:
            for each in (value,) if isinstance(value, Value) else value or ():
                actual = self.values.type_of(each)
                if actual is None or not wanted.fits(actual):
                    return self._differs(op, slot.name, wanted, f"{each.name}: {actual}")
        self.found[place] = value
        return True

    def _agrees(self, op: PatternOp, candidate: Operator) -> bool:
        """Whether attributes that several operators have in common are the same."""
        captured = dict(self._captured)
        for attr, name in op.agreed:
            value = candidate.attrs[attr]
            if captured.setdefault(name, value) != value:
                return self._differs(candidate, attr, _quoted(captured[name]), _quoted(value))
        self._captured = captured
        return True

    def named(self, value: Any) -> str:
        """A value as a reason names it."""
        if not isinstance(value, Value):
            return "nothing" if not value else ", ".join(map(self.named, value))
        maker = self.values.producer(value)
        if maker is not None:
            return f"{value.name}, made by {maker.type}"
        is_written = self.values.producer(self.values._reaching(value.name, inf)) is not None
        return f"{value.name}, as it is before the block writes it" if is_written else value.name

    def _is_other(self, op: Operator, slot: str, known: Any, value: Any) -> bool:
        if self.recorder is not None:
            self.recorder.differs(op, slot, self.named(known), self.named(value))
        return False

    def _differs(self, op: Operator, slot: str, expected: Any, found: Any) -> bool:
        if self.recorder is not None:
            self.recorder.differs(op, slot, expected, found)
        return False


def fits(op: PatternOp, candidate: Operator, recorder: MatchRecorder | None = None) -> bool:
    """Whether an operator has the type, attributes, slots, role and name scope of `op`, whatever its values."""
    if candidate.definition.type not in op.types:
        if recorder is not None:
            recorder.differs(candidate, "type", op, candidate.type)
        return False
    attrs: dict[str, Any] = candidate.attrs
    if attrs != op.attrs and (op.attrs or not attrs.keys() <= op.free):
        attrs = {name: value for name, value in attrs.items() if name not in op.free}
        if attrs != op.attrs:
            if recorder is not None:
                _tell_attrs(op, candidate, attrs, recorder)
            return False
    for name, test in op.tests:
        if not test(_read(candidate, name)):
            if recorder is not None:
                recorder.differs(candidate, name, f"a value that fits {_called(test)}", candidate.attrs[name])
            return False
    if candidate.inputs.keys() != op.slots:
        return _has_slots(op, candidate, recorder)
    return (op.role is None and op.namescope is None) or _is_where(op, candidate, recorder)


def _called(test: Any) -> str:
    """The name of a condition on a value, or where it is written if it has none."""
    name = getattr(test, "__name__", type(test).__name__)
    return f"the lambda in line {site_of(test).line}" if name == "<lambda>" else str(name)


def _tell_attrs(op: PatternOp, candidate: Operator, attrs: dict[str, Any], recorder: MatchRecorder) -> None:
    for name in dict.fromkeys([*op.attrs, *attrs]):
        default = candidate.definition.attrs[name].default if name in candidate.definition.attrs else None
        expected, found = op.attrs.get(name, default), attrs.get(name, default)
        if expected != found:
            recorder.differs(candidate, name, _quoted(expected), _quoted(found))
            return


def _quoted(value: Any) -> Any:
    """The text of a string, which may be empty; other values as they are."""
    return repr(value) if isinstance(value, str) else value


def _has_slots(op: PatternOp, candidate: Operator, recorder: MatchRecorder | None) -> bool:
    """Whether the operator uses the input slots of the pattern and no others."""
    wanted = {slot.name: slot for slot in op.inputs}
    for name in dict.fromkeys([*wanted, *candidate.inputs]):
        names = [each for each in candidate.inputs.get(name, ()) if each != EMPTY]
        slot = wanted.get(name)
        if (slot is None and names) or (slot is not None and not names and not slot.is_optional):
            if recorder is not None:
                expected = "nothing" if slot is None else _count(slot)
                recorder.differs(candidate, name, expected, ", ".join(names) or "nothing")
            return False
    return (op.role is None and op.namescope is None) or _is_where(op, candidate, recorder)


def _is_where(op: PatternOp, candidate: Operator, recorder: MatchRecorder | None) -> bool:
    """Whether the operator has the role of the pattern and lies in its name scope."""
    role, scope = op.role, op.namescope
    if role is not None and not (candidate.role & role == role if role else candidate.role == Role.FORWARD):
        if recorder is not None:
            recorder.differs(candidate, "role", role, candidate.role)
        return False
    if scope is not None and not candidate.namescope.startswith(scope):
        if recorder is not None:
            recorder.differs(candidate, "namescope", scope, candidate.namescope)
        return False
    return True


def _count(slot: PatternSlot) -> str:
    if slot.rest is not None:
        return f"at least {_variables(len(slot.places) - 1)}"
    return _variables(len(slot.places))


def _variables(count: int) -> str:
    return f"{count} variable{'' if count == 1 else 's'}"


def _inputs(op: Operator) -> Mapping[str, tuple[str, ...]]:
    """The inputs of an operator without names that stand for nothing."""
    for names in op.inputs.values():
        if EMPTY in names:
            return {slot: tuple([name for name in names if name != EMPTY]) for slot, names in op.inputs.items()}
    return op.inputs


def _arrangements(op: PatternOp, candidate: Operator) -> Sequence[Mapping[str, tuple[str, ...]]]:
    """Return the inputs in each order in which they mean the same."""
    inputs = _inputs(candidate)
    return [inputs, *_other_orders(op, candidate, inputs)] if op.commutes else (inputs,)


def _other_orders(
    op: PatternOp, candidate: Operator, inputs: Mapping[str, tuple[str, ...]]
) -> Iterator[dict[str, tuple[str, ...]]]:
    if set(inputs) == {"X", "Y"}:
        variables = [candidate.block.find_var(inputs[slot][0]) for slot in "XY"]
        # An operand of another shape would be broadcast the other way round.
        if len({None if var is None else var.tensor_type for var in variables}) == 1:
            yield {"X": inputs["Y"], "Y": inputs["X"]}
        return
    for slot in op.inputs:
        yield from _orders(slot, inputs)


def _orders(slot: PatternSlot, inputs: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield other orders of the variables of a slot, those that stand for several in the order in which they are."""
    names = inputs.get(slot.name, ())
    places = list(range(len(names)))
    single = len(slot.places) - (slot.rest is not None)
    behind = len(slot.places) - 1 - slot.rest if slot.rest is not None else 0
    for chosen in permutations(places, single) if single <= len(names) else ():
        others = [place for place in places if place not in chosen]
        front = single - behind
        order = [*chosen[:front], *others, *chosen[front:]]
        if order != places:
            yield {**inputs, slot.name: tuple([names[place] for place in order])}
