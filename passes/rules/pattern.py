"""Patterns: the operators of a fragment with their placeholders, in the order in which they are looked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NamedTuple

from minigraph.errors import RuleError
from minigraph.ir.role import Role
from minigraph.passes.rules.fragments import PREFIX, Node, Operand, PatternAttr, Placeholder, Result, site_of, traced
from minigraph.support.signatures import parameter_names

_RESERVED = frozenset(
    {"gone", "gradients_place", "inner", "kept", "m", "ops", "pattern", "place", "results", "value", "values"}
)


class PatternSlot(NamedTuple):
    """A slot of an operator of a pattern, with the numbers of the values that stand there."""

    name: str
    places: tuple[int, ...]
    rest: int | None
    """The place in `places` of the value that stands for several; None without one."""
    is_optional: bool


@dataclass(eq=False)
class PatternOp:
    """An operator of a pattern."""

    number: int
    types: tuple[str, ...]
    attrs: dict[str, Any]
    """Attributes that differ from their defaults; those that no pattern names have these."""
    captured: tuple[tuple[str, str], ...]
    """Attributes that are captured, with the names that conditions know them by."""
    free: frozenset[str]
    """Captured attributes."""
    tests: tuple[tuple[str, Callable[[Any], bool]], ...]
    """Conditions on values of captured attributes."""
    inputs: tuple[PatternSlot, ...]
    outputs: tuple[PatternSlot, ...]
    shared: bool
    commutes: bool
    role: Role | None
    namescope: str | None
    is_place: bool
    slots: frozenset[str] = field(init=False)
    """Names of the input slots."""
    makes: frozenset[str] = field(init=False)
    """Names of the output slots."""
    kind: str = field(init=False)
    """Conditions on the operator that are not about its values, as text: equal texts mean equal conditions."""
    reads: tuple[tuple[PatternSlot, str, int | None], ...] = ()
    """Input slots with their names, and the value of those in which any single one fits."""
    writes: tuple[tuple[PatternSlot, str, tuple[int, ...]], ...] = field(init=False)
    """Output slots with their names and values."""
    agreed: tuple[tuple[str, str], ...] = ()
    """Attributes of `captured` that other operators of the pattern have, too."""

    def __post_init__(self) -> None:
        self.slots = frozenset(slot.name for slot in self.inputs)
        self.makes = frozenset(slot.name for slot in self.outputs)
        self.writes = tuple((slot, slot.name, slot.places) for slot in self.outputs)
        slots = sorted((slot.name, slot.is_optional) for slot in self.inputs)
        self.kind = repr(
            (self.types, sorted(self.attrs.items()), sorted(self.free), self.tests, slots, self.role, self.namescope)
        )

    def __str__(self) -> str:
        return " or ".join(self.types)


class WalkStep(NamedTuple):
    """Step to the next operator: the one that makes a value, or one that reads it."""

    op: PatternOp
    value: int
    makes: bool


class Pattern:
    """A compiled pattern.

    Attributes
    ----------
    ops : tuple of PatternOp
        In the order of the fragment.
    placeholders : tuple of Placeholder
        Placeholders, which are the first values.
    returned : tuple of int
        Numbers of the values that the fragment returns.
    anchor : PatternOp
        The operator by which a match is found: the last one.
    steps : tuple of WalkStep
        Where to look for the others.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        given = parameters_of(function)
        block, results = traced(function, given, f"the pattern of {self.name}")
        self.placeholders = tuple(each for each in given.values() if isinstance(each, Placeholder))
        self._numbers: dict[Operand, int] = {each: number for number, each in enumerate(self.placeholders)}
        captures = {each: name for name, each in given.items() if isinstance(each, PatternAttr)}
        self._require_nodes(block.nodes, captures)
        self._name_others(block.nodes, captures)
        for node in block.nodes:
            for slot, names in node.outputs.items():
                for index in range(len(names)):
                    self._numbers.setdefault(Result(node.index, slot, index), len(self._numbers))
        self.ops = tuple(self._compiled(node, captures) for node in block.nodes)
        returned = [block.meaning[name] for name in results]
        if not all(isinstance(each, Result) for each in returned):
            raise self._error("returns a placeholder as it is", "Return the result of an operator.")
        self.returned = tuple(self._numbers[each] for each in returned)
        self.size = len(self._numbers)
        self.numbers = {each.name: number for number, each in enumerate(self.placeholders)}
        """Placeholders by name."""
        self.placeholder_types = {
            number: each.type for number, each in enumerate(self.placeholders) if each.type is not None
        }
        """Types of placeholders, where the pattern wants one."""
        self.captured = {name: (op.number, attr) for op in reversed(self.ops) for attr, name in op.captured}
        """Captured attributes by name: the operator, and what they are called there."""
        counts = Counter(name for op in self.ops for _, name in op.captured)
        for op in self.ops:
            op.reads = tuple((slot, slot.name, self._single(slot)) for slot in op.inputs)
            op.agreed = tuple((attr, name) for attr, name in op.captured if counts[name] > 1)
        self.maker = {place: op for op in self.ops for slot in op.outputs for place in slot.places}
        """Operators by the values that they make."""
        self.makers = tuple(self.maker[each].number for each in self.returned)
        """Numbers of the operators that make the values that the fragment returns."""
        self.readers: dict[int, list[PatternOp]] = {}
        """Operators by the values that they read."""
        for op in self.ops:
            for place in dict.fromkeys(place for slot in op.inputs for place in slot.places):
                self.readers.setdefault(place, []).append(op)
        self.anchor = max((self.maker[each] for each in self.returned), key=lambda op: op.number)
        self.place = next((op.number for op in self.ops if op.is_place), None)
        self.steps = tuple(self._plan())
        self.types = frozenset(op.types[0] for op in self.ops if len(op.types) == 1)
        """Types of operators that a block must have."""
        self.all_types = frozenset(type for op in self.ops for type in op.types)
        """Types of which its operators may be."""
        self.alternatives = tuple(op.types for op in self.ops if len(op.types) > 1)
        """Types of which it must have one."""
        self.between = tuple(
            (place, len(self.readers.get(place, ()))) for place in self.maker if place not in self.returned
        )
        """Values that operators make and the pattern does not return, with the numbers of their readers in it."""
        self.limits = {place: count for place, count in self.between if not self.maker[place].shared}
        """Maximum numbers of operators that read values of which nothing else may read."""
        self.inner = tuple(self._inner())
        """Inputs of the anchor that an operator of the pattern makes: slot, place in it, that operator, and its slot.

        The place is None if operands commute.
        """

    def is_possible(self, types: Set[str]) -> bool:
        """Whether a block with operators of these types may have all that the pattern has."""
        if not types >= self.types:
            return False
        return not self.alternatives or not any([types.isdisjoint(some) for some in self.alternatives])

    def may_be_among(self, is_there: Callable[[str], bool]) -> bool:
        """Whether a block may have all that the pattern has, if it has operators of the types that `is_there` tells."""
        return all(map(is_there, self.types)) and all([any(map(is_there, some)) for some in self.alternatives])

    def _single(self, slot: PatternSlot) -> int | None:
        """Return the value of a slot that takes one of any type; None for other slots."""
        is_plain = len(slot.places) == 1 and slot.rest is None and slot.places[0] not in self.placeholder_types
        return slot.places[0] if is_plain else None

    def _require_nodes(self, nodes: list[Node], captures: dict[PatternAttr, str]) -> None:
        if not nodes:
            raise self._error("appends no operator", "Call a layer, or rewrite.op.")
        used = {each for node in nodes for each in node.captured.values()}
        for each, name in captures.items():
            if each not in used:
                raise self._error(
                    f"gives no operator the attribute {name} as it is",
                    "Give the layer the captured attribute itself, and compute with it in the replacement.",
                )
        read = {each for node in nodes for each in _operands(node)}
        for placeholder in self.placeholders:
            if placeholder not in read:
                raise self._error(f"does not use {placeholder.name}", "Leave the parameter out.")
        for node in nodes:
            made = [each for each in _operands(node) if isinstance(each, str)]
            if made:
                raise self._error(
                    f"makes a variable of its own, {made[0].replace(PREFIX, '')}, for {node.types[0]}",
                    "Take parameters of the model as placeholders, and use layers that make none.",
                )

    def _name_others(self, nodes: list[Node], captures: dict[PatternAttr, str]) -> None:
        """Name captured attributes that are no parameters as the operator does: ``axis``, the next one ``axis_2``."""
        for node in nodes:
            for attr, each in node.captured.items():
                if each not in captures:
                    taken = {*captures.values(), *(placeholder.name for placeholder in self.placeholders)}
                    numbered = (f"{attr}_{number}" for number in count(2))
                    captures[each] = next(name for name in chain([attr], numbered) if name not in taken)
        for name in (*captures.values(), *(placeholder.name for placeholder in self.placeholders)):
            if name in _RESERVED:
                raise self._error(f"calls something {name}, as matches call something else", "Choose another name.")

    def _compiled(self, node: Node, captures: dict[PatternAttr, str]) -> PatternOp:
        inputs = []
        for slot, operands in node.inputs.items():
            known = [each for each in operands if not isinstance(each, str)]
            rest = [i for i, each in enumerate(known) if isinstance(each, Placeholder) and each.several]
            if len(rest) > 1:
                raise self._error(f"has two placeholders for several values in {slot} of {node.types[0]}", "Keep one.")
            is_optional = any(isinstance(each, Placeholder) and each.optional for each in known)
            numbers = tuple(self._numbers[each] for each in known)
            inputs.append(PatternSlot(slot, numbers, rest[0] if rest else None, is_optional))
        outputs = [
            PatternSlot(slot, tuple(self._numbers[Result(node.index, slot, i)] for i in range(len(names))), None, False)
            for slot, names in node.outputs.items()
        ]
        captured = tuple((name, captures[each]) for name, each in node.captured.items())
        tests = tuple((name, each.fits) for name, each in node.captured.items() if each.fits is not None)
        return PatternOp(
            node.index, node.types, node.attrs, captured, frozenset(node.captured), tests,
            tuple(inputs), tuple(outputs), node.shared, node.commutes, node.role, node.namescope, node.is_place,
        )  # fmt: skip

    def edges(self, op: PatternOp) -> Iterator[WalkStep]:
        """Yield the operators that make or read what `op` reads or makes."""
        for slot in op.inputs:
            for value in slot.places:
                if value in self.maker:
                    yield WalkStep(self.maker[value], value, True)
        for slot in (*op.outputs, *op.inputs):
            for value in slot.places:
                for reader in self.readers.get(value, ()):
                    yield WalkStep(reader, value, False)

    def _plan(self) -> Iterator[WalkStep]:
        """Yield steps that lead from the anchor to all operators: first to those that make, then to those that read."""
        found = [self.anchor]
        steps = [*self.edges(self.anchor)]
        while len(found) < len(self.ops):
            steps = [step for step in steps if step.op not in found]
            if not steps:
                raise self._error(
                    "has operators that share no value", "Write a rule for each, or name a value that both read."
                )
            step = next((each for each in steps if each.makes), steps[0])
            found.append(step.op)
            steps += self.edges(step.op)
            yield step

    def _inner(self) -> Iterator[tuple[str, int | None, PatternOp, str]]:
        for slot in self.anchor.inputs:
            for index, value in enumerate(slot.places if slot.rest is None else slot.places[: slot.rest]):
                if value in self.maker:
                    made = next(each.name for each in self.maker[value].outputs if value in each.places)
                    yield slot.name, None if self.anchor.commutes else index, self.maker[value], made

    def _error(self, what: str, hint: str) -> RuleError:
        return RuleError(f"the pattern of {self.name} {what}", site=site_of(self.function), hint=hint)


def _operands(node: Node) -> Iterator[Operand | str]:
    for operands in node.inputs.values():
        yield from operands


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a pattern, each with its placeholder or captured attribute."""
    positional, keyword = parameter_names(function)
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    defaults.update(function.__kwdefaults__ or {})
    found: dict[str, Any] = {}
    for name in (*positional, *keyword):
        given = defaults.get(name, Placeholder())
        if not isinstance(given, Placeholder | PatternAttr):
            raise RuleError(
                f"the pattern of {function.__name__}: {name} is {given!r:.60}, which is no placeholder",
                site=site_of(function), hint="Leave the default out, or give rewrite.attr(...) or rewrite.value(...).",
            )  # fmt: skip
        if isinstance(given, Placeholder):
            given = Placeholder(name, given.type, given.several, given.optional)
        found[name] = given
    return found
