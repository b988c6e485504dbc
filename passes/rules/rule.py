"""Rules, and groups of rules that run together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from minigraph.errors import MinigraphError, NotFoundError, RuleError, Site, WrongTypeError, caller_site
from minigraph.ir import Block, Operator, Program, Variable
from minigraph.passes import events
from minigraph.passes.base import Pass
from minigraph.passes.rules.element_types import warn_of_sets
from minigraph.passes.rules.fragments import PREFIX, Fragment, Given, Placeholder, line_within, site_of, traced
from minigraph.passes.rules.matcher import Match, MatchBeforeValues, Matcher, MatchRecorder, fits
from minigraph.passes.rules.pattern import Pattern
from minigraph.passes.rules.replacing import replace
from minigraph.passes.rules.safety import may_read, may_replace
from minigraph.passes.rules.worklist import LEAST_FIRINGS, endless, run, smallest_sets
from minigraph.passes.values import Values
from minigraph.support.public import public
from minigraph.support.signatures import parameter_names

if TYPE_CHECKING:  # imported when somebody asks why
    from minigraph.passes.rules.reasons import WhyNot

F = TypeVar("F", bound=Callable[..., Any])

_MOST_KEPT = 64
"""Maximum replacements of a rule that are kept, each for some values of the attributes."""


class Rule(Pass):
    """A rewrite of the operators that a pattern fits; `rule` makes one of a fragment.

    Law: what the replaced operators made, the replacement makes by the same names. Nothing that is read elsewhere,
    fetched, persistable or seen by a sub-block goes. A rule fires where its conditions hold, in every block, until it
    matches nowhere.
    """

    def __init__(self, pattern: Callable[..., Any], changes_rounding: bool = False) -> None:
        self.function = pattern
        self.changes_rounding = changes_rounding  # type: ignore[misc]
        self.__doc__ = pattern.__doc__
        self.site: Site = site_of(pattern)
        """The line on which the pattern is defined."""
        self.differentiates: Rule | None = None
        """The rule of whose pattern this one has the gradient."""
        self.has_gradients = False
        """Whether all results but the first are gradients, which have a place of their own."""
        self._conditions: list[Callable[[Match], Any]] = []
        self._replacement: Callable[..., Any] | None = None
        self._edit: Callable[[Match], Any] | None = None
        self._by_attrs: dict[str, tuple[Fragment, list[str]] | None] = {}
        """Replacements that compute with attributes, by the values of these; None for one that needs more."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def name(self) -> str:
        return self.function.__name__

    def __repr__(self) -> str:
        return f"<Rule {self.name} at {self.site}>"

    @cached_property
    def pattern(self) -> Pattern:
        """The compiled pattern; made when it is first needed."""
        return Pattern(self.function)

    # Definition

    @public
    def where(self, conditions: F) -> F:
        """Decorate a generator that is given a match and yields conditions, each with the text that says it."""
        _look_through(conditions)
        self._conditions.append(conditions)
        return conditions

    @public
    def to(self, replacement: F) -> F:
        """Decorate the fragment that takes the place of the pattern and returns as many values.

        Its parameters are placeholders and captured attributes of the pattern by name, or `m` for the match.
        """
        _look_through(replacement)
        self._replacement = replacement
        return replacement

    @public
    def edit(self, edit: F) -> F:
        """Decorate a function that is given a match, changes the program by ``m.values`` and says whether it did.

        For changes that are no exchange of operators for others, such as an input that is left out.
        """
        _look_through(edit)
        self._edit = edit
        return edit

    # Use

    def apply(self, program: Program) -> bool:
        """Fire until the rule matches nowhere; returns whether it fired."""
        _require_program(self, program)
        return run(program, (self,))

    @public
    def find(self, program: Program) -> list[Match]:
        """Return the matches, of which some may share operators; nothing is changed."""
        found = []
        for block in _blocks(self, program):
            values = Values(block)
            matches = [self.match(op, values) for op in block.ops if op.type in self.pattern.anchor.types]
            found += [each for each in matches if each is not None]
        return found

    @public
    def why_not(self, program: Program, op: Operator | Variable | str | int | None = None) -> WhyNot:
        """Say why the rule does not match: the nearest partial match, and what differs.

        Parameters
        ----------
        op : Operator, Variable, str or int, optional
            An operator that takes part, or its index in the global block, or a variable that it makes. Left out: any.
        """
        from minigraph.passes.rules.reasons import WhyNot, nearest

        _require_program(self, program)
        if op is not None:
            return nearest(self, [_operator(program, op)])
        answers = [(nearest(self, block.ops[:]), _depth(block)) for block in program.blocks]
        # Of equally near ones the innermost: an operator with a sub-block stands for all that is in it.
        answer, _ = max(answers, key=lambda each: (len(each[0].matched), each[0].op is None, each[1]))
        if not answer.matched and answer.slot == "type":  # any operator differs in its type: this one says nothing
            wanted = ", ".join(dict.fromkeys(map(str, self.pattern.ops)))
            return WhyNot(self.name, answer.wanted, slot="type", expected=wanted, found="none of them in the program")
        return answer

    def match(self, op: Operator, values: Values, recorder: MatchRecorder | None = None) -> Match | None:
        """Return the match whose last operator is `op`; None if there is none."""
        if fits(self.pattern.anchor, op, recorder):
            for found in Matcher(self.pattern, values, recorder).matches(op):
                if self.holds(found, recorder):
                    return found
        return None

    def holds(self, match: Match, recorder: MatchRecorder | None = None) -> bool:
        """Whether the operators may be replaced and the conditions hold."""
        if not may_replace(match, self._needed, self.has_gradients, recorder):
            return False
        for conditions in self._conditions:
            text = self._failing(conditions, match)
            if text is not None:
                if recorder is not None:
                    recorder.differs(match.ops[-1], "condition", text, match.told())
                return False
        copied = self._copied
        return copied is None or match.ops[0].type != "assign" or may_read(match, match.value(copied), recorder)

    @cached_property
    def asks_one(self) -> bool:
        """Whether the rule has conditions, and a single operator to ask about."""
        return bool(self._conditions) and len(self.pattern.ops) == 1

    def refuses(self, op: Operator) -> bool:
        """Whether a condition fails for an operator if its inputs have the declared types; cheaper than a match."""
        glance: Any = MatchBeforeValues(self.pattern, op)
        try:
            return any(not holds for conditions in self._conditions for holds, _ in conditions(glance))
        except Exception:  # a condition asks for what only a match has, or fails, which a match tells
            return False

    def _failing(self, conditions: Callable[[Match], Any], match: Match) -> str | None:
        """Return the text of the first condition that does not hold; None if all do."""
        try:
            for holds, text in conditions(match):
                if not holds:
                    return str(text)
        except MinigraphError:
            raise
        except Exception as error:
            raise RuleError(
                f"{self.name}: a condition fails with {type(error).__name__}: {error}", details=map(str, match.ops),
                site=line_within(conditions, error),
                hint='Yield whether each holds with the text that says it: yield m.a > 0, "a must be positive".',
            ) from error  # fmt: skip
        return None

    @cached_property
    def _needed(self) -> tuple[str, ...] | None:
        """Placeholders that the replacement reads; None if there is no replacement."""
        if self._replacement is None:
            return None
        names = [placeholder.name for placeholder in self.pattern.placeholders]
        known = {*names, *self.pattern.captured, "m"}
        wanted = self._wanted
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise RuleError(
                f"{self.name}: the replacement wants {', '.join(unknown)}, which the pattern does not have",
                site=site_of(self._replacement), hint=f"It has {', '.join(sorted(known))}.",
            )  # fmt: skip
        return tuple(names) if "m" in wanted else tuple([name for name in names if name in wanted])

    def fire(self, match: Match) -> Sequence[Operator] | None:
        """Change the program where the rule matches; returns operators to look at again, None if nothing changed."""
        program = match.values.block.program
        if self._edit is not None:
            return self._fire_edit(self._edit, match)
        if self._replacement is None:
            raise RuleError(
                f"{self.name} has no replacement", site=self.site, hint=f"Decorate one with @{self.name}.to."
            )
        fragment, returned = self._template or self._traced(self._replacement, match)
        if events.observers:
            events.fired(self, program, match.ops)
        return replace(match, fragment, returned, self.name)

    @cached_property
    def _wanted(self) -> list[str]:
        """The parameters of the replacement."""
        return [] if self._replacement is None else list(chain(*parameter_names(self._replacement)))

    @cached_property
    def _template(self) -> tuple[Fragment, list[str]] | None:
        """The replacement for all matches; None if it depends on what only a match knows, such as types."""
        return self._general({name: Given(name) for name in self.pattern.captured})

    def _general(self, attrs: Mapping[str, Any]) -> tuple[Fragment, list[str]] | None:
        """The replacement for all matches with these attributes; None if it depends on more than them."""
        placeholders = {each.name: each for each in self.pattern.placeholders}
        if self._replacement is None or "m" in self._wanted:
            return None
        given = {name: placeholders.get(name) or attrs[name] for name in self._wanted}
        if any([isinstance(each, Placeholder) and each.varies for each in given.values()]):
            return None
        try:
            return self._checked(*traced(self._replacement, given, "", is_general=True))
        except RuleError:  # it is run for each match, which says what is wrong with it
            return None

    @cached_property
    def _copied(self) -> str | None:
        """The placeholder that is all that takes the place of a single operator; None for other rules."""
        if len(self.pattern.ops) > 1 or self._template is None or self._template[0].nodes:
            return None
        return self._template[1][0]

    def _traced(self, replacement: Callable[..., Any], match: Match) -> tuple[Fragment, list[str]]:
        given = {name: match if name == "m" else getattr(match, name) for name in self._wanted}
        attrs = {name: each for name, each in given.items() if name in self.pattern.captured}
        key = repr(attrs)
        if attrs and key not in self._by_attrs:
            if len(self._by_attrs) >= _MOST_KEPT:
                self._by_attrs.clear()
            self._by_attrs[key] = self._general(attrs)
        return self._by_attrs.get(key) or self._checked(*traced(replacement, given, f"the replacement of {self.name}"))

    def _checked(self, fragment: Fragment, returned: list[str]) -> tuple[Fragment, list[str]]:
        """Raise if the replacement writes over what it is given, or makes variables without operators."""
        made = {name for node in fragment.nodes for names in node.outputs.values() for name in names}
        for node in fragment.nodes:
            for name in chain(*node.outputs.values()):
                if name in fragment.given:
                    raise RuleError(
                        f"the replacement of {self.name} writes over {name} by {node.types[0]}", site=node.site,
                        hint="Use layers that make a new variable: others may read the old value.",
                    )  # fmt: skip
            for name in chain(*node.reads.values()):
                if name not in made and name not in fragment.given and name.startswith(PREFIX):
                    raise RuleError(
                        f"the replacement of {self.name} makes a variable of its own, {name.replace(PREFIX, '')}, for "
                        f"{node.types[0]}", site=node.site, hint="Take parameters of the model as placeholders.",
                    )  # fmt: skip
        return fragment, returned

    def _fire_edit(self, edit: Callable[[Match], Any], match: Match) -> Sequence[Operator] | None:
        program = match.values.block.program
        before = program.version
        if events.observers:
            events.fired(self, program, match.ops)
        says = edit(match)
        if bool(says) != (program.version != before):
            did, said = ("changed", "did not") if program.version != before else ("did not change", "did")
            raise RuleError(
                f"{self.name} {did} the program and says that it {said}", details=[str(op) for op in match.ops],
                site=self.site, hint="Return True from the edit if it changed anything, else False.",
            )  # fmt: skip
        match.values._refresh()
        return [op for op in match.ops if op in match.values.position] if says else None


class Rules(Pass):
    """Rules that run by a worklist until none of them matches.

    Each operator is looked at once, and again where a rule has fired. In a class of its own that derives from this one,
    the attribute `rules` names them.
    """

    rules: tuple[Pass, ...] = ()

    needs: ClassVar[tuple[frozenset[str], ...]] = ()
    """Sets of operator types: patterns are made only for a program that has all types of one."""

    def __init__(self, *rules: Pass) -> None:
        if rules:
            self.rules = rules
        for each in rules:
            if not isinstance(each, Pass):
                raise WrongTypeError(f"Rules takes rules and passes, got {each!r:.60}", hint="Decorate it with @rule.")
        if any(each.changes_rounding for each in self.rules):
            self.changes_rounding = True  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Rules) and other.rules == self.rules

    def __hash__(self) -> int:
        return hash((type(self), self.rules))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(each.name for each in self.rules)})"

    def apply(self, program: Program) -> bool:
        """Fire until no rule matches; returns whether one fired."""
        _require_program(self, program)
        for block in program.blocks:
            found = block.ops.by_type.keys()
            if found >= self._common:  # in most programs the only question
                for types in self._type_sets:
                    if found >= types:
                        return self._run(program)
        return False

    def _run(self, program: Program) -> bool:
        rules, others = self._parts
        changed = run(program, rules)
        for _ in range(LEAST_FIRINGS):
            if not any([_applied(each, program) for each in others]):
                return changed
            changed = True
            if not run(program, rules) and len(others) == 1:
                return changed
        raise endless(others[0].name, LEAST_FIRINGS, program.global_block(), 0)

    @cached_property
    def _type_sets(self) -> tuple[frozenset[str], ...]:
        """Sets of operator types: nothing changes in a program of which no block has all types of one."""
        if self.needs:
            return self.needs
        rules, others = self._parts
        return (frozenset(),) if others else smallest_sets([each.pattern.types for each in rules])

    @cached_property
    def _common(self) -> frozenset[str]:
        """The types in each of `_type_sets`."""
        return frozenset.intersection(*self._type_sets) if self._type_sets else frozenset()

    @cached_property
    def _parts(self) -> tuple[tuple[Rule, ...], list[Pass]]:
        """The rules, and the other passes."""
        rules = tuple([each for each in self.rules if isinstance(each, Rule)])
        return rules, [each for each in self.rules if not isinstance(each, Rule)]

    @cached_property
    def _is_own(self) -> bool:  # every plan asks
        return type(self).__module__.startswith("minigraph.") and all(map(is_own, self.rules))


def is_own(each: Pass) -> bool:
    """Whether a pass is minigraph's own, and so known to keep programs right; a rule is if its pattern is."""
    if isinstance(each, Rules):
        return each._is_own
    written = each.function if isinstance(each, Rule) else type(each)
    return written.__module__.startswith("minigraph.")


@overload
def rule(pattern: Callable[..., Any], /) -> Rule: ...
@overload
def rule(*, changes_rounding: bool = ...) -> Callable[[Callable[..., Any]], Rule]: ...
@public
def rule(pattern: Callable[..., Any] | None = None, /, *, changes_rounding: bool = False) -> Any:
    """Make a rule of a fragment, which is the pattern.

    The parameters are placeholders: any values fit, or those that `value` describes. A default `attr` captures an
    attribute. The fragment calls layers or `op` and returns what is replaced. It is run once, when the rule is first
    used. An attribute that is neither given nor captured must have its default, and a slot that is not given must be
    left out.

    Parameters
    ----------
    changes_rounding : bool
        Whether results may differ by rounding.

    Examples
    --------
    >>> from minigraph import Program, layers, rewrite
    >>> @rewrite.rule
    ... def scale_of_scale(x, a=rewrite.attr("scale"), b=rewrite.attr("scale")):
    ...     return layers.scale(layers.scale(x, scale=a), scale=b)
    >>> @scale_of_scale.to
    ... def _(x, a, b):
    ...     return layers.scale(x, scale=a * b)
    >>> program = Program.parse('''
    ... block 0
    ...   data x: float32[2]
    ...   h: float32[2] = scale(X=x) {scale=2.0}
    ...   y: float32[2] = scale(X=h) {scale=3.0}
    ... ''')
    >>> program.roots = ("y",)
    >>> print(scale_of_scale(program))
    block 0
      data x: float32[2]
      var h: float32[2]
      y: float32[2] = scale(X=x) {scale=6.0}
    """

    def made(function: Callable[..., Any]) -> Rule:
        if not inspect.isfunction(function):
            raise WrongTypeError(f"rule decorates a function, got {function!r:.60}", hint="Write @rule above a def.")
        return Rule(function, changes_rounding)

    return made if pattern is None else made(pattern)


def _look_through(function: Callable[..., Any]) -> None:
    """Warn of what cannot be meant in a function of a rule."""
    if not function.__module__.startswith("minigraph."):
        warn_of_sets(function)


def _blocks(rule: Rule, program: Program) -> Iterator[Block]:
    """Yield the blocks that have operators of all types of a pattern."""
    _require_program(rule, program)
    for block in program.blocks:
        if rule.pattern.is_possible(block.ops.by_type.keys()):
            yield block


def _require_program(rule: Pass, program: Program) -> None:
    """Raise if something else was given."""
    if not isinstance(program, Program):
        raise WrongTypeError(
            f"{rule.name} looks at Programs, got {program!r:.60}", hint="Give fluid.default_main_program(), or another."
        )


def _depth(block: Block) -> int:
    """Number of blocks around a block."""
    parent = block.parent_block
    return 0 if parent is None else 1 + _depth(parent)


def _operator(program: Program, given: Operator | Variable | str | int) -> Operator:
    """The operator that is asked about."""
    ops = program.global_block().ops
    if isinstance(given, int) and -len(ops) <= given < len(ops):
        return ops[given]
    if isinstance(given, Operator) and given._block is not None and given.block.program is program:
        return given
    name = given.name if isinstance(given, Variable) else given
    for block in program.blocks if isinstance(name, str) else ():
        for op in reversed(block.ops[:]):
            if name in op.output_arg_names:
                return op
    raise NotFoundError(
        f"the program has no operator {given!r:.60}", site=caller_site(),
        hint=f"Give an operator of the program, an index below {len(ops)}, or a variable that an operator makes.",
    )  # fmt: skip


def _applied(each: Pass, program: Program) -> bool:
    """Apply a pass that is no rule, and see that it says whether it changed the program."""
    before = program.clone()
    says = each.apply(program)
    if says == program.equals(before):
        did, said = ("did not change", "did") if says else ("changed", "did not")
        raise RuleError(f"{each.name} {did} the program and says that it {said}", hint="Mend what apply returns.")
    return says
