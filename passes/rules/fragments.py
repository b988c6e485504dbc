"""Fragments: functions of layers, or of `op`, that are run once to see which operators they append.

A pattern is a fragment, and so is a replacement. Its operators are recorded in a program of its own.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from minigraph import unique_name
from minigraph.errors import MinigraphError, NotFoundError, RuleError, Site, caller_site, suggest
from minigraph.ir import Block, Operator, Program, Variable, infer_outputs
from minigraph.ir.block_arguments import Names, bind_slots, each_of
from minigraph.ir.default_programs import default_main_program, program_guard
from minigraph.ir.role import Role
from minigraph.opdef import REQUIRED, OpDef, definition_of
from minigraph.support.public import public
from minigraph.types import TensorType, as_dtype, dense_type

V = TypeVar("V", Variable, Any)


@dataclass(frozen=True, eq=False)
class Placeholder:
    """A placeholder of a pattern: it stands for any value that fits its type.

    Attributes
    ----------
    name : str
        Parameter of the fragment.
    type : TensorType or None
        Element type and shape, -1 for any size; None for any.
    several : bool
        Stands for all remaining variables of a slot.
    optional : bool
        May be left out.
    """

    name: str = ""
    type: TensorType | None = None
    several: bool = False
    optional: bool = False

    @property
    def varies(self) -> bool:
        """Whether it stands for different numbers of variables."""
        return self.several or self.optional


@dataclass(frozen=True)
class Result:
    """A value that an operator of the fragment makes: which operator, and where it stands."""

    node: int
    slot: str
    index: int


Operand: TypeAlias = Placeholder | Result

_STAND_INS = {"int": 0, "float": 1.0, "bool": False, "str": ""}
_STEP = 1 << 20
"""Stand-ins for numbers differ by parts of this, so that float32 holds them exactly."""


class PatternAttr:
    """An attribute that a pattern captures: any value fits, and conditions and the replacement are given it."""

    _count = itertools.count(1)

    def __init__(self, name: str | None = None, fits: Callable[[Any], bool] | None = None) -> None:
        self.name = name
        self.fits = fits
        number = next(self._count) % _STEP
        self._numbers = (0.5 + number / (4 * _STEP), (1 << 40) + number)

    # A layer converts its arguments, so a number stands for the attribute until an operator is given it.
    def __float__(self) -> float:
        self._stand_in()
        return self._numbers[0]

    def __int__(self) -> int:
        self._stand_in()
        return self._numbers[1]

    def _stand_in(self) -> None:
        """Let the fragment that runs know the attribute by its number; elsewhere it would be one like any other."""
        captures = current_fragment().captures
        if self not in captures:
            captures.append(self)

    __index__ = __int__

    def __bool__(self) -> bool:
        raise RuleError(
            f"the layer asks whether the captured attribute {self.name or ''} is true", site=caller_site(),
            hint="Write the operator with rewrite.op(type, ...), which takes any attribute.",
        )  # fmt: skip

    def stands_in(self, value: Any) -> bool:
        """Whether `value` is this attribute, or the number that a layer made of it."""
        return value is self or (type(value) in (int, float) and value in self._numbers)


class Given(PatternAttr):
    """An attribute of which each match has another value: nothing can be computed with it or asked about it."""

    def __init__(self, parameter: str) -> None:
        self.name = self.fits = None
        self.parameter = parameter

    def _refuse(self, *_: Any) -> Any:
        raise RuleError(f"the replacement computes with {self.parameter}")

    __bool__ = __float__ = __int__ = __index__ = __eq__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class _Untyped(Variable):
    """A variable of which each match has another type: it has a name, and says whether gradients flow through it."""

    def __init__(self, block: Block, name: str, *_: Any, stop_gradient: bool = False, **__: Any) -> None:
        self.name = name
        self.stop_gradient = stop_gradient

    def __str__(self) -> str:
        return self.name


@public
def attr(name: str | None = None, *, fits: Callable[[Any], bool] | None = None) -> Any:
    """Capture an attribute of an operator of the pattern.

    Parameters
    ----------
    name : str, optional
        Its name, in the signature of a pattern: ``a=attr("scale")``, given to a layer. It may be left out where `op` is
        given the attribute: ``max_norm=attr()`` is captured as ``max_norm``.
    fits : callable, optional
        Whether a value fits; by default any does. What the value alone decides is decided faster here than by a
        condition.
    """
    return PatternAttr(name, fits)


@public
def value(
    shape: Sequence[int] | None = None, dtype: Any = None, *, several: bool = False, optional: bool = False
) -> Any:
    """Describe a placeholder, in the signature of a pattern: ``x=value(shape=[-1, 10])``.

    Parameters
    ----------
    shape : sequence of int, optional
        -1 for any size. Layers that ask for the number of dimensions need it. By default any shape fits.
    dtype : str or DType, optional
        float32 by default if a shape is given, else any.
    several : bool
        Stands for all remaining variables of a slot that takes many: ``op("sum", X=[x, rest])``.
    optional : bool
        Stands for a slot that may be left out; the replacement is given None then.
    """
    known = None if shape is None else dense_type(as_dtype(dtype or "float32"), tuple(shape))
    return Placeholder("", known, several, optional)


@dataclass(eq=False)
class Node:
    """An operator of a fragment."""

    index: int
    types: tuple[str, ...]
    """Types of which it is one; a replacement has the first."""
    definition: OpDef
    inputs: dict[str, tuple[Operand | str, ...]]
    """Operands by slot; a name where the fragment has made the variable without an operator."""
    reads: dict[str, tuple[str, ...]]
    """Names of the inputs."""
    outputs: dict[str, tuple[str, ...]]
    """Names of the results."""
    attrs: dict[str, Any]
    """Attributes that differ from their defaults, but for captured ones."""
    captured: dict[str, Any]
    """Captured attributes by name: `PatternAttr` in a pattern, `Given` in a replacement."""
    site: Site | None
    shared: bool = False
    commutes: bool = False
    role: Role | None = None
    namescope: str | None = None
    is_place: bool = False


class Fragment(Block):
    """The block of a fragment: operators are recorded, and types inferred where those of the inputs are known.

    Parameters
    ----------
    attrs : iterable of PatternAttr
        Captured attributes, for which layers may have put numbers.
    is_general : bool
        Whether variables have no types, because those of each match are others.
    """

    def __init__(self, program: Program, attrs: Iterable[PatternAttr] = (), is_general: bool = False) -> None:
        super().__init__(program, 0)
        self.variable_type = _Untyped if is_general else Variable
        self.nodes: list[Node] = []
        self.captures = list(attrs)
        self.given: set[str] = set()
        """Names of the variables that the fragment is given."""
        self.placeholders: list[str] = []
        """Names of placeholders."""
        self.meaning: dict[str, Operand] = {}
        """Values that the names of variables mean by now."""
        self.parts: dict[tuple[str, ...], Sequence[Node]] = {}
        """The operators of a replacement that serve some of its results, by the names of these, as far as asked for."""

    def insert(
        self,
        before: Operator | int | None,
        type: str,
        inputs: Mapping[str, Names] | None = None,
        outputs: Mapping[str, Names] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Operator:
        return self.record((type,), inputs or {}, outputs or {}, attrs or {})

    def placeholder(self, name: str, given: Any) -> Any:
        """Argument of a fragment for a parameter; variables of a program keep their names."""
        if isinstance(given, Placeholder):
            self.given.add(name)
            self.placeholders.append(name)
            self.meaning[name] = given
            self.vars[name] = self.variable_type(self, name, given.type)
            return self.vars[name]
        for each in given if isinstance(given, tuple) else (given,):
            if isinstance(each, Variable):
                self.given.add(each.name)
                self.vars[each.name] = each
        return given

    def record(
        self, types: tuple[str, ...], inputs: Mapping[str, Names], outputs: Mapping[str, Names],
        attrs: Mapping[str, Any],
    ) -> Operator:  # fmt: skip
        """Append an operator of one of these types."""
        definition = definition_of(types[0])
        if definition.has_hidden_names:
            raise RuleError(
                f"{types[0]} has effects that its slots do not show, so that rules leave it alone", site=caller_site()
            )
        literal, captured = self._sorted_out(definition, attrs)
        given = bind_slots(types[0], definition.input_slots, definition.required_inputs, inputs, "input")
        made = bind_slots(types[0], definition.output_slots, (), outputs, "output")
        meant = {slot: tuple([self.meaning.get(name, name) for name in names]) for slot, names in given.items()}
        node = Node(len(self.nodes), types, definition, meant, given, made, literal, captured, caller_site())
        self.nodes.append(node)
        op = Operator(definition, given, made, literal, site=node.site)
        if self.variable_type is Variable:
            self._infer(op)
        for slot, names in made.items():
            self.meaning.update({name: Result(node.index, slot, index) for index, name in enumerate(names)})
        return op

    def needed_by(self, names: Sequence[str]) -> set[int]:
        """Return the indices of the operators on which these values depend."""
        needed = {found.node for name in names if isinstance(found := self.meaning.get(name), Result)}
        for node in reversed(self.nodes):
            if node.index in needed:
                needed |= {each.node for given in node.inputs.values() for each in given if isinstance(each, Result)}
        return needed

    def keep(self, names: Sequence[str], shared: int) -> None:
        """Drop the operators on which none of these values depends.

        Others may read what the first `shared` operators make, and those with one result: they may then stay beside the
        replacement at no cost but theirs.
        """
        needed = self.needed_by(names)
        number = {old: new for new, old in enumerate(sorted(needed))}

        def moved(each: Any) -> Any:
            return replace(each, node=number[each.node]) if isinstance(each, Result) else each

        self.nodes = [node for node in self.nodes if node.index in needed]
        self.meaning = {
            name: moved(each)
            for name, each in self.meaning.items() if not isinstance(each, Result) or each.node in needed
        }  # fmt: skip
        for node in self.nodes:
            node.shared = node.shared or node.index < shared or len(node.definition.outputs) == 1
            node.index = number[node.index]
            node.inputs = {slot: tuple(map(moved, given)) for slot, given in node.inputs.items()}

    def _sorted_out(self, definition: OpDef, attrs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        literal: dict[str, Any] = {}
        captured: dict[str, Any] = {}
        for name, given in attrs.items():
            is_captured = isinstance(given, PatternAttr)
            found = given if is_captured else next((a for a in self.captures if a.stands_in(given)), None)
            if found is None:
                literal[name] = given
                continue
            if name not in definition.attrs or name != (found.name or name):
                raise RuleError(
                    f"{definition.type}: the captured attribute {found.name or name} is given as {name}",
                    site=caller_site(),
                    hint=_how_to_capture(name, definition),
                )
            captured[name] = found
        stand_ins = {
            name: _STAND_INS.get(definition.attrs[name].type, ())
            for name in captured
            if definition.attrs[name].default is REQUIRED
        }
        converted = definition.convert_attrs({**literal, **stand_ins})
        return {name: each for name, each in converted.items() if name not in stand_ins}, captured

    def _infer(self, op: Operator) -> None:
        with suppress(MinigraphError):  # such as an input of unknown type
            infer_outputs(op, self)


def _how_to_capture(name: str, definition: OpDef) -> str:
    """What to write where an attribute is captured under another name."""
    if name not in definition.attrs:
        return suggest(name, definition.attrs) or f"It has {', '.join(definition.attrs) or 'none'}."
    return f'Write {name}=attr() here, or a=attr("{name}") in the signature of the pattern.'


def traced(
    function: Callable[..., Any], given: Mapping[str, Any], what: str, is_general: bool = False
) -> tuple[Fragment, list[str]]:
    """Run a fragment; returns the block in which its operators are, and the names of the variables that it returns.

    Parameters
    ----------
    given : mapping
        Parameter to a placeholder, a variable of a program, a tuple of such variables, or anything else.
    what : str
        The fragment, for messages.
    is_general : bool
        Whether the fragment is for matches of all types, with `Given` attributes: one that asks for types is an error.
    """
    program = Program()
    block = Fragment(program, [each for each in given.values() if type(each) is PatternAttr], is_general)
    program.blocks[0] = block
    arguments = {name: block.placeholder(name, each) for name, each in given.items()}
    known = set(block.vars)
    try:
        with program_guard(program, Program()), unique_name.guard(PREFIX):
            returned = function(**arguments)
    except RuleError:
        raise
    except (MinigraphError, TypeError, AttributeError, ValueError, IndexError) as error:
        said = error.message if isinstance(error, MinigraphError) else str(error)
        if isinstance(error.__cause__, AssertionError):  # layers assert that they know the shape
            said = f"{said.partition(': ')[0]}: the shape of a placeholder is not known"
        raise RuleError(
            f"{what} cannot be run on placeholders: {said}", site=line_within(function, error), hint=_hint_for(error),
        ) from error  # fmt: skip
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    for each in results:
        if not isinstance(each, Variable) or (each.name not in block.meaning and each.name not in known):
            raise RuleError(
                f"{what} must return the variables it computes, got {each!r:.60}", site=site_of(function),
                hint="End it with return, as layers do.",
            )  # fmt: skip
    return block, [each.name for each in results]


def _hint_for(error: Exception) -> str:
    """Say how to mend a fragment that cannot be run on placeholders."""
    if isinstance(error, NotFoundError) and error.hint:
        return error.hint
    if isinstance(error, TypeError) and PatternAttr.__name__ in str(error):
        return (
            "A captured attribute stands for any value: give it to a layer as it is, and compute with it in a "
            "condition, or in the replacement."
        )
    if isinstance(error, TypeError) and "argument" in str(error):
        return "Call the layer with the arguments that its help lists."
    return (
        "Give a placeholder the shape that the layer asks for, such as x=rewrite.value(shape=[-1, 10]), or write the "
        "operator with rewrite.op."
    )


PREFIX = "rule@"
"""Start of the names that variables of fragments have."""


def site_of(function: Callable[..., Any]) -> Site:
    """The line on which a function is defined."""
    code = inspect.unwrap(function).__code__
    return Site(code.co_filename, code.co_firstlineno)


def line_within(function: Callable[..., Any], error: BaseException) -> Site:
    """The line of a function that raised an error; that on which it is defined if it is not in the traceback."""
    start, trace = site_of(function), error.__traceback__
    line = start.line
    while trace is not None:
        if trace.tb_frame.f_code is inspect.unwrap(function).__code__:
            line = trace.tb_lineno
        trace = trace.tb_next
    return Site(start.filename, line)


def current_fragment() -> Fragment:
    """The fragment that runs."""
    block = default_main_program().current_block()
    if not isinstance(block, Fragment):
        raise RuleError(
            "rewrite.op, rewrite.marked and rewrite.attr stand in patterns and replacements of rules",
            site=caller_site(), hint="Elsewhere append operators with block.append_op.",
        )  # fmt: skip
    return block


@public
def op(type: str | Sequence[str], /, *, outputs: Any = None, **slots_and_attrs: Any) -> Any:
    """Append an operator to a fragment by its type; returns its result.

    Parameters
    ----------
    type : str or sequence of str
        In a pattern one of several types may match.
    outputs : sequence of str, or mapping of str to int, optional
        Slots whose variables are returned as a tuple, or slots with the numbers of their variables; by default the slot
        ``Out``, or else the first.
    **slots_and_attrs
        Keywords that name an input slot are inputs, the others attributes; ``Out_GRAD`` is the slot ``Out@GRAD``.
    """
    block = current_fragment()
    types = (type,) if isinstance(type, str) else tuple(type)
    definition = definition_of(types[0])
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    for key, each in slots_and_attrs.items():
        slot = slot_named(key)
        if slot in definition.input_slots:
            if each is not None:
                inputs[slot] = each
        elif key in definition.attrs or key in definition.backend_attrs:
            attrs[key] = each
        else:
            known = [*definition.input_slots, *definition.attrs]
            raise RuleError(
                f"{types[0]} has neither a slot nor an attribute {key}", site=caller_site(),
                hint=suggest(key, known) or f"It has {', '.join(known)}.",
            )  # fmt: skip
    counts = {definition.main_output: 1} if outputs is None else outputs
    counts = counts if isinstance(counts, Mapping) else dict.fromkeys(counts, 1)
    made = {
        slot_named(slot): [block.temporary(unique_name.generate(types[0])) for _ in range(count)]
        for slot, count in counts.items()
    }
    block.record(types, inputs, made, attrs)
    several = tuple(var for names in made.values() for var in names)
    return several[0] if outputs is None else several


def slot_named(key: str) -> str:
    """The slot that a keyword means: ``Out_GRAD`` is ``Out@GRAD``."""
    return f"{key.removesuffix('_GRAD')}@GRAD" if key.endswith("_GRAD") else key


@public
def marked(
    result: V, *, shared: bool = False, commutes: bool = False, role: Role | None = None, namescope: str | None = None,
    place: bool = False,
) -> V:  # fmt: skip
    """Say more about the operator of a pattern that makes `result`; returns `result`.

    Parameters
    ----------
    shared : bool
        Others may read its results, too; the operator stays then. By default the pattern does not match.
    commutes : bool
        Operands may stand in any order: those of one slot, or of X and Y if they have one type.
    role : Role, optional
        Role that the operator has.
    namescope : str, optional
        Name scope that the operator is in, or one inside of that.
    place : bool
        The replacement stands here, with the role and the line of this operator. By default it stands where the first
        result can be computed, and has roles and lines of those that made the results.
    """
    found = current_fragment().meaning.get(each_of(result)[0].name)
    if not isinstance(found, Result):
        raise RuleError("rewrite.marked is given the result of an operator", site=caller_site())
    node = current_fragment().nodes[found.node]
    node.shared, node.commutes, node.role, node.namescope, node.is_place = shared, commutes, role, namescope, place
    return result
