"""Say why a rule does not match: the nearest partial match, and what kept it from being a whole one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from minigraph.errors import Site
from minigraph.ir import Operator, Role
from minigraph.ir.text.notation import attr_text, role_text
from minigraph.passes.rules.matcher import Match, Matcher, MatchRecorder
from minigraph.passes.rules.pattern import Pattern, PatternOp, WalkStep
from minigraph.passes.values import Value, Values


class Difference(NamedTuple):
    """One mismatch: what was expected of an operator, and what was found."""

    op: Operator
    slot: str
    expected: Any
    found: Any
    nearness: int = 4
    """4: only something of it differs; 3: what makes an input has another type; 2: nothing makes the input here;
    1: what reads a result has another type; 0: nothing reads it."""


class Asked(Protocol):
    """The part of a rule that a question is about."""

    @property
    def name(self) -> str: ...

    @property
    def pattern(self) -> Pattern: ...

    def holds(self, match: Match, recorder: MatchRecorder | None = None) -> bool: ...


_HINTS = {
    "which has stop_gradient": "Apply the rule after append_backward, or let gradients flow: stop_gradient=False.",
    "which is fetched": "Leave the name out of program.roots, or return the value from the pattern.",
    "which is persistable": "Return the value from the pattern: later runs read it.",
    " reads": "Return the value from the pattern, or let its operator stay: rewrite.marked(value, shared=True).",
}
"""Advice about results, by the reason that they do not match."""


@dataclass(frozen=True)
class WhyNot:
    """The nearest partial match of a rule.

    Attributes
    ----------
    rule : str
        Name of the rule.
    wanted : int
        Number of operators in the pattern.
    matched : tuple of Operator
        Those that were found.
    op : Operator or None
        The operator at which the match failed; None if the rule matches, or if there is no operator of its types.
    slot : str
        The input or output, ``type``, ``role``, ``namescope``, ``condition`` or the attribute in which it differs.
    expected, found : str
        What the rule wants there, and what is there.
    hint : str
        What to do, where that does not depend on what the rule is for.
    """

    rule: str
    wanted: int
    matched: tuple[Operator, ...] = ()
    op: Operator | None = None
    slot: str = ""
    expected: str = ""
    found: str = ""

    @property
    def matches(self) -> bool:
        """Whether the rule matches."""
        return self.op is None and len(self.matched) == self.wanted

    @property
    def site(self) -> Site | None:
        """The user's line that made the operator."""
        return None if self.op is None else self.op.site

    @property
    def hint(self) -> str:
        """Advice how to make the rule match; empty where that depends on its purpose."""
        if self.op is None:
            return ""
        if self.slot == "type":
            types = [*self.expected.split(" or "), self.op.type]
            return f"Name each type that the rule is right for: rewrite.op({types}, ...)."
        if self.slot == "condition":
            return "Change the condition in where, if the rule is right here."
        if self.slot in ("role", "namescope"):
            return "Change what rewrite.marked wants, or leave it out."
        if self.slot in self.op.definition.attrs:
            return f"Take any value if the rule is right for it: {self.slot}=rewrite.attr()."
        if self.slot in self.op.definition.input_slots:
            return self._hint_of_input()
        return self._hint_of_result()

    def _hint_of_input(self) -> str:
        if self.expected == "nothing":
            return f"Give the slot in the pattern: {self.slot}=x, with x=rewrite.value(optional=True)."
        if self.expected.endswith((" variable", " variables")):
            return f"Take any number of variables: {self.slot}=[x, rest], with rest=rewrite.value(several=True)."
        return ""

    def _hint_of_result(self) -> str:
        for said, hint in _HINTS.items():
            if said in self.found:
                return hint
        return ""

    def __str__(self) -> str:
        if self.matches:
            return "\n  ".join([f"{self.rule} matches:", *map(_at, self.matched)])
        count = f"{len(self.matched)} of {self.wanted} operators"
        lines = [f"{self.rule} does not match: {count} found", *map(_at, self.matched)]
        if self.op is not None:
            lines.append(f"{_at(self.op)}")
        if self.slot:
            lines.append(f"{self.slot}: expected {self.expected}, found {self.found}")
        if self.site is not None:
            lines.append(f"at {self.site}")
        if self.hint:
            lines.append(self.hint)
        return "\n  ".join(dict.fromkeys(lines))


def _at(op: Operator) -> str:
    where = f"op {op.idx}" if op.block.idx == 0 else f"block {op.block.idx}, op {op.idx}"
    return f"{where}: {op}"


def nearest(rule: Asked, ops: Sequence[Operator]) -> WhyNot:
    """Return the largest partial match that one of the operators of a block takes part in."""
    if not ops:
        return WhyNot(rule.name, len(rule.pattern.ops))
    search = _Search(rule, Values(ops[0].block))
    for op in ops:
        search.around(op)
    if len(ops) == 1 and not search.matched:
        search.as_neighbour(ops[0])
    return search.answer()


def _text(op: Operator, slot: str, value: Any) -> str:
    """The text of what was expected or found; attributes and roles have that which they have in programs."""
    if isinstance(value, Role):
        return role_text(value).strip("'")
    attr = None if isinstance(value, str | PatternOp) else op.definition.attrs.get(slot)
    return str(value) if attr is None else attr_text(attr, value)


class _Search:
    """Looks for partial matches; hears from the matcher what differs."""

    def __init__(self, rule: Asked, values: Values) -> None:
        self.rule = rule
        self.values = values
        self.matcher = Matcher(rule.pattern, values, self)
        self.matched: tuple[Operator, ...] = ()
        self._rank: tuple[int, ...] = (-1,)
        self._difference: Difference | None = None
        self._heard: list[Difference] = []
        self._wanted: Operator | None = None
        """The operator that the partial match must have failed at, if any will not do."""

    def differs(self, op: Operator, slot: str, expected: Any, found: Any) -> None:
        self._heard.append(Difference(op, slot, expected, found, 1 if slot == "type" else 4))

    def answer(self) -> WhyNot:
        rule, difference = self.rule, self._difference
        if difference is None:
            return WhyNot(rule.name, len(rule.pattern.ops), self.matched)
        op, slot, expected, found, _ = difference
        wanted = _text(op, slot, expected) + self._fixed_order(op, slot)
        return WhyNot(rule.name, len(rule.pattern.ops), self.matched, op, slot, wanted, _text(op, slot, found))

    def _fixed_order(self, op: Operator, slot: str) -> str:
        """Say that operands stand in one order although those of the pattern commute."""
        if slot not in ("X", "Y") or not any(each.commutes and op.type in each.types for each in self.rule.pattern.ops):
            return ""
        types = [self.values.type_of(self.values.read(name, op)) for name in op.input_arg_names]
        return " (operands of different types do not commute)" if types.count(types[0]) < len(types) else ""

    def around(self, op: Operator) -> None:
        """Look for partial matches in which `op` is one of the operators."""
        for each in self.rule.pattern.ops:
            if (difference := self._tried(each, op)) is not None:
                self._note(difference)
            for _ in self.matcher.bindings(each, op):
                self._grow(frozenset(), ())

    def as_neighbour(self, op: Operator) -> None:
        """Look for partial matches that fail because `op` is not what they want."""
        self._wanted = op
        values = self.values
        made = [values.written(name, op) for name in op.output_arg_names]
        read = [values.producer(values.read(name, op)) for name in op.input_arg_names]
        near = [reader for value in made for reader in values.readers.get(value, ())]
        for each in dict.fromkeys([*near, *(maker for maker in read if maker is not None)]):
            self.around(each)

    def _grow(self, skipped: frozenset[tuple[int, int, bool]], differences: tuple[Difference, ...]) -> None:
        """Bind more operators in every way; those that differ are left out, and so is each that does not."""
        step = next(self._edges(skipped), None)
        if step is None:
            self._note(*differences)
            return
        found = self.matcher.found[step.value]
        heard: tuple[Difference, ...] = ()
        candidates = self.matcher.candidates(found, step.makes)
        for candidate in candidates:
            if candidate in self.matcher.ops:
                continue
            difference = self._tried(step.op, candidate)
            if difference is not None:
                heard += (self._seen_from_here(step, difference),)
            else:
                for _ in self.matcher.bindings(step.op, candidate):
                    self._grow(skipped, differences)
        if not heard:
            heard = (self._missing(step, found),)
        self._grow(skipped | {(step.op.number, step.value, step.makes)}, differences + heard)

    def _edges(self, skipped: frozenset[tuple[int, int, bool]]) -> Iterator[WalkStep]:
        """Yield steps from the operators that are bound to others."""
        bound = self.matcher.ops
        for op in self.rule.pattern.ops:
            for step in self.rule.pattern.edges(op) if bound[op.number] is not None else ():
                if bound[step.op.number] is None and (step.op.number, step.value, step.makes) not in skipped:
                    yield step

    def _tried(self, op: PatternOp, candidate: Operator) -> Difference | None:
        """Return why an operator cannot be bound; None if it can."""
        self._heard.clear()
        can = any(True for _ in self.matcher.bindings(op, candidate))
        return None if can else self._heard[-1]

    def _seen_from_here(self, step: WalkStep, difference: Difference) -> Difference:
        """Tell of an operator of another type in the words of the one that reads what it makes."""
        if difference.slot != "type" or not step.makes:
            return difference
        reader, slot = self._reader(step)
        candidate = difference.op
        found = f"{candidate.type}, which makes {self.matcher.found[step.value].name}"
        return Difference(reader, slot, step.op, found, 3)

    def _missing(self, step: WalkStep, found: Any) -> Difference:
        """Say that nothing in the block makes a value, or reads it."""
        if step.makes:
            reader, slot = self._reader(step)
            if not isinstance(found, Value):
                return Difference(reader, slot, step.op, "nothing", 2)
            var = self.values.block.find_var(found.name)
            what = "data" if var is not None and var.is_data else "a value"
            outside = f"{found.name}, {what} from outside of block {reader.block.idx}"
            return Difference(reader, slot, step.op, outside, 2)
        maker = self.rule.pattern.maker.get(step.value)
        op = self.matcher.ops[maker.number] if maker is not None else None
        bound = op or next(each for each in self.matcher.ops if each is not None)
        unread = f"no reader of {getattr(found, 'name', 'nothing')}"
        return Difference(bound, "outputs" if op else "inputs", f"{step.op} that reads it", unread, 0)

    def _reader(self, step: WalkStep) -> tuple[Operator, str]:
        """Return an operator that is bound and reads a value, and the slot."""
        return next(
            (op, slot.name)
            for each, op in zip(self.rule.pattern.ops, self.matcher.ops, strict=True) if op is not None
            for slot in each.inputs if step.value in slot.places
        )  # fmt: skip

    def _note(self, *differences: Difference) -> None:
        """Keep the partial match that is bound if it is the nearest until now."""
        bound = [op for op in self.matcher.ops if op is not None]
        is_whole = len(bound) == len(self.matcher.ops)
        if is_whole:
            self._heard.clear()
            differences = () if self.rule.holds(self.matcher.match(), self) else (self._heard[-1],)
        if self._wanted is not None:
            differences = tuple([each for each in differences if self._is_about(each)])
            if not differences:
                return
        nearest = max(differences, key=lambda each: each.nearness, default=None)
        rank = (len(bound), 5 if nearest is None else nearest.nearness)
        if rank > self._rank:
            self._rank, self._difference = rank, nearest
            self.matched = tuple(bound)

    def _is_about(self, difference: Difference) -> bool:
        wanted = self._wanted
        return wanted is not None and (
            difference.op is wanted or str(difference.found).startswith(f"{wanted.type}, which makes ")
        )
