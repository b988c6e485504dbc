"""The worklist: find the operators at which rules may match, and fire the rules until none matches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Protocol

from minigraph.errors import RuleError
from minigraph.ir import Block, Operator, Program
from minigraph.passes.rules.matcher import Match, fits
from minigraph.passes.rules.pattern import Pattern, PatternOp
from minigraph.passes.values import Values

LEAST_FIRINGS = 100
"""Firings, or rounds of a group, that even the smallest block may take."""

_FIRINGS_PER_OP = 10
"""Maximum firings of rules for each operator that a block had; more means that they do not end."""


class WorklistRule(Protocol):
    """A rule, as far as the worklist asks it."""

    @property
    def name(self) -> str: ...

    @property
    def pattern(self) -> Pattern: ...

    @property
    def asks_one(self) -> bool: ...

    def refuses(self, op: Operator) -> bool: ...

    def match(self, op: Operator, values: Values) -> Match | None: ...

    def fire(self, match: Match) -> Sequence[Operator] | None: ...


class _Anchors:
    """Operators of a block by which rules may match, judged by their names: a table of values takes longer."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.by_type = block.ops.by_type
        self._fitting: dict[str, list[Operator]] = {}
        self._made: dict[tuple[str, str], set[str]] = {}
        self._twice: set[str] | None = None
        """Names that are written several times, once they are asked for."""

    def of(self, rule: WorklistRule) -> list[Operator]:
        """Return the operators that may be the last one of a pattern."""
        found = self._fit(rule.pattern.anchor)
        for slot, index, maker, made in rule.pattern.inner if found else ():
            names = self._names(maker, made)
            if index is not None:
                found = [op for op in found if op.inputs[slot][index] in names]
            else:  # operands may stand in any order
                found = [op for op in found if not all(map(names.isdisjoint, op.inputs.values()))]
        if found and rule.asks_one:
            refused = {op for op in found if rule.refuses(op)}
            if refused:
                found = [op for op in found if op not in refused or not self._are_written_once(op.inputs)]
        return found

    def _fit(self, op: PatternOp) -> list[Operator]:
        """Return the operators that fit one of a pattern; rules of a group often want the same."""
        found = self._fitting.get(op.kind)
        if found is None:
            found = [each for type in op.types for each in self.by_type.get(type, ()) if fits(op, each)]
            self._fitting[op.kind] = found
        return found

    def _are_written_once(self, inputs: Mapping[str, Sequence[str]]) -> bool:
        """Whether no name is written twice, so that the type of each is that of its only value."""
        if self.block.program.is_concrete:  # all values of a name have its type
            return True
        if self._twice is None:
            seen: set[str] = set()
            self._twice = set()
            for op in self.block.ops[:]:
                has_hidden = op.definition.has_hidden_names
                for names in (op.output_arg_names,) if has_hidden else op.outputs.values():
                    if not seen.isdisjoint(names):
                        self._twice.update(seen.intersection(names))
                    seen.update(names)
        return all([self._twice.isdisjoint(names) for names in inputs.values()])

    def _names(self, op: PatternOp, slot: str) -> set[str]:
        """Return the names that operators that fit write in a slot."""
        found = self._made.get((op.kind, slot))
        if found is None:
            found = {name for each in self._fit(op) for name in each.outputs.get(slot, ())}
            self._made[op.kind, slot] = found
        return found


def smallest_sets(sets: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Return the sets of which no other one is a part: what holds one of `sets` holds one of them."""
    found = dict.fromkeys(sets)
    return tuple([each for each in found if not any([other < each for other in found])])


@lru_cache(64)
def _types_of(rules: tuple[WorklistRule, ...]) -> frozenset[str]:
    """The types of operators that patterns name."""
    return frozenset(type for each in rules for type in each.pattern.all_types)


@lru_cache(1024)
def _possible(rules: tuple[WorklistRule, ...], types: frozenset[str]) -> Sequence[WorklistRule]:
    """Return the rules that may match in a block with operators of these types; many programs have the same."""
    return [each for each in rules if each.pattern.is_possible(types)]


def _anchored(rules: tuple[WorklistRule, ...], block: Block) -> dict[Operator, list[WorklistRule]]:
    """Return the rules that may match at an operator, the last one of their patterns; in the order of the block."""
    found: dict[Operator, list[WorklistRule]] = {}
    some = _possible(rules, _types_of(rules).intersection(block.ops.by_type))
    if not some:
        return found
    anchors = _Anchors(block)
    for each in some:
        for op in anchors.of(each):
            found.setdefault(op, []).append(each)
    return {op: found[op] for op in block.ops[:] if op in found} if len(found) > 1 and len(some) > 1 else found


def _values(block: Block, rules: Iterable[WorklistRule]) -> Values:
    """Return a table of the values that operators of the rules' types use."""
    return Values(block, [type for each in rules for type in each.pattern.all_types])


def run(program: Program, rules: tuple[WorklistRule, ...]) -> bool:
    """Run rules in all blocks; returns whether any fired."""
    return any([_run_in(block, rules) for block in program.blocks[:]])


def _run_in(block: Block, rules: tuple[WorklistRule, ...]) -> bool:
    values: Values | None = None
    size, firings = len(block.ops), 0
    limit = LEAST_FIRINGS + _FIRINGS_PER_OP * size
    while True:
        before, by_type, types = firings, block.ops.by_type, set[str]()
        wanted = _anchored(rules, block)
        if not wanted:
            return firings > 0
        values = values or _values(block, dict.fromkeys(chain(*wanted.values())))
        pending = deque(wanted.items())
        while pending:
            op, fitting = pending.popleft()
            for each in fitting if op._block is block else ():
                values._refresh()
                match = each.match(op, values)
                made = None if match is None else each.fire(match)
                if made is None:
                    continue
                firings += 1
                if firings > limit:
                    raise endless(each.name, firings, block, size)
                types.update([new.type for new in made])
                pending.extend(
                    [(new, [rule for rule in rules if new.type in rule.pattern.anchor.types]) for new in made]
                )
                break
        if firings == before or not _may_match_again(rules, block, by_type, types):
            return firings > 0


def _may_match_again(
    rules: Sequence[WorklistRule], block: Block, by_type: Mapping[str, Sequence[Operator]], made: set[str]
) -> bool:
    """Whether a block still has operators of all types of a pattern.

    It is quicker to ask than to sort the operators by their types again.

    Parameters
    ----------
    by_type : mapping of str to sequence of Operator
        The operators before rules fired, of which some are gone.
    made : set of str
        Types of the operators that rules have made.
    """
    seen: dict[str, bool] = {}

    def is_left(type: str) -> bool:
        found = seen.get(type)
        if found is None:
            found = seen[type] = type in made or any([op._block is block for op in by_type.get(type, ())])
        return found

    return any([each.pattern.may_be_among(is_left) for each in rules])


def endless(name: str, firings: int, block: Block, size: int) -> RuleError:
    return RuleError(
        f"{name} does not end: rules have fired {firings} times, the last time {name}",
        details=[f"block {block.idx} had {size} operators and has {len(block.ops)}"],
        hint="Add a condition with where, so that what a rule makes does not match again.",
    )
