"""The way from text to program: tokens, then a descent through the statements of `minigraph.text`.

A statement is one line, read from left to right once; what decides how to read on is at most four tokens ahead.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from minigraph.errors import MinigraphError, ParseError, Site, WrongTypeError, caller_site, suggest
from minigraph.ir import Block, Parameter, Program, Role, Variable, VarKind
from minigraph.opdef import EMPTY, OpDef, definition_of
from minigraph.strategies import STRATEGIES
from minigraph.text import DEFAULTS, PLAIN_NAME, PROGRAM_DEFAULTS
from minigraph.types import DType, TensorType

_TOKEN = re.compile(rf"""{PLAIN_NAME}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|<[^<>]*>|[\[\](){{}}=,:]|\#.*|\S""")
_is_word = re.compile(PLAIN_NAME).fullmatch
_is_int = re.compile(r"[+-]?[0-9]+").fullmatch
_is_float = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan)").fullmatch
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "/": "/", "b": "\b", "f": "\f"}
_CONSTANTS = {"True": True, "False": False, "None": None}
_DTYPES = {str(dtype): dtype for dtype in DType}
_MARKS = frozenset("[](){}=,:")
_SHAPE_OF_A_LINE = "An operator reads `y: float32[4] = relu(X=x) {attribute=value}`."


def read_program(text: str) -> Program:
    """See `minigraph.text.parse`."""
    if not isinstance(text, str):
        raise WrongTypeError(f"a program's text must be a str, got {type(text).__name__}", site=caller_site())
    reader = _Reader(caller_site())
    for number, source in enumerate(text.split("\n"), 1):
        line = _Line(number, source)
        if line.peek():
            reader.read_statement(line)
    return reader.finish()


class _Line:
    """The tokens of a line, and how far they have been read."""

    def __init__(self, number: int, source: str) -> None:
        self.number = number
        self.source = source
        self.at = 0
        """The token to be read next."""
        self.places: dict[str, int] = {}
        """Where the value of each assignment read last starts."""
        self.tokens = _TOKEN.findall(source)
        if self.tokens and self.tokens[-1][0] == "#":
            self.tokens.pop()

    # Tokens

    def peek(self, ahead: int = 0) -> str:
        """A token yet to be read, the empty string behind the last."""
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def skip(self, mark: str) -> bool:
        """Whether the next token is `mark`; if so it is read."""
        if self.peek() != mark:
            return False
        self.at += 1
        return True

    def expect(self, mark: str, hint: str = "") -> None:
        if not self.skip(mark):
            self.fail_expected(repr(mark), hint)

    def expect_end(self) -> None:
        if self.peek():
            self.fail_expected("the end of the line")

    def many(self, read: Callable[[], Any], end: str) -> list[Any]:
        """What `read` gives, separated by commas, up to the mark `end`; a comma may stand in front of it."""
        found: list[Any] = []
        while not self.skip(end):
            if found:
                if not self.skip(","):
                    self.fail_expected(f"',' or {end!r}")
                if self.skip(end):
                    break
            found.append(read())
        return found

    # Errors

    def error(self, message: str, at: int, hint: str = "") -> ParseError:
        """An error that points at a token."""
        starts = [match.start() for match in _TOKEN.finditer(self.source)]
        column = starts[at] if at < len(self.tokens) else len(self.source.rstrip())
        first = max(0, column - 80)  # a line can be very long
        shown = self.source[first : column + 40].rstrip()
        caret = " " * (column - first) + "^"
        indent = min(len(shown) - len(shown.lstrip()), column - first)
        return ParseError(f"line {self.number}: {message}", details=(shown[indent:], caret[indent:]), hint=hint)

    def fail(self, message: str, hint: str = "", at: int | None = None) -> NoReturn:
        """Raise an error that points at a token, by default the one read last."""
        raise self.error(message, self.at - 1 if at is None else at, hint)

    def fail_expected(self, what: str, hint: str = "") -> NoReturn:
        token = self.peek()
        if token in ("'", '"'):
            self.fail(
                "this string has no end", "Close it on the same line; a line break in it is written \\n.", self.at
            )
        if token == "<" or (token and token not in _MARKS and not self._is_sound(token)):
            self.fail(f"unexpected character {token!r}", "Put a name that has it in double quotes.", self.at)
        found = f"found {token!r}" if token else "the line ends"
        self.fail(f"expected {what}, {found}", hint, self.at)

    @staticmethod
    def _is_sound(token: str) -> bool:
        return bool(_is_word(token)) or len(token) > 1

    # Names and values

    def name(self, what: str = "a name") -> str:
        token = self.peek()
        if not self.is_name():
            self.fail_expected(what)
        self.at += 1
        return self._unquoted(token) if token[0] in "'\"" else token

    def is_name(self, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return bool(_is_word(token)) or (len(token) > 1 and token[0] in "'\"")

    def names(self, what: str = "a variable") -> list[str]:
        """One name, or several in brackets."""
        return self.many(lambda: self.name(what), "]") if self.skip("[") else [self.name(what)]

    def _unquoted(self, token: str) -> str:
        def character(match: re.Match[str]) -> str:
            *codes, simple = match.groups()
            if simple is not None:
                return _ESCAPED[simple]
            return chr(int(next(code for code in codes if code), 16))

        try:
            return _ESCAPE.sub(character, token[1:-1])
        except (KeyError, ValueError, OverflowError):
            self.fail(f"the string {token} has an unknown escape", "A backslash is written \\\\.")

    def value(self) -> Any:
        """A value in the notation of Python, an element type (its number), or an object such as a clip."""
        token = self.peek()
        if self.skip("["):
            return self.many(self.value, "]")
        if self.skip("("):
            return tuple(self.many(self.value, ")"))
        if self.skip("{"):
            return dict(self.many(self._item, "}"))
        if token[:1] == "<" and len(token) > 1:
            self.fail(
                f"{token} is a Python object that text cannot hold",
                "Leave it out, and set the field in Python.",
                self.at,
            )
        if not self.is_name():
            self.fail_expected("a value")
        if self.peek(1) == "(":
            return self._strategy()
        self.at += 1
        return self._unquoted(token) if token[0] in "'\"" else self._plain_value(token)

    def _plain_value(self, word: str) -> Any:
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if _is_int(word):
            return int(word)
        if _is_float(word):
            number = float(word)
            return math.nan if math.isnan(number) else number  # one NaN, so that structures compare equal
        if word in _DTYPES:
            return int(_DTYPES[word])
        self.fail(f"{word} is no value", suggest(word, [*_CONSTANTS, *_DTYPES]) or "A string is written in quotes.")

    def _item(self) -> tuple[Any, Any]:
        key = self.value()
        self.expect(":")
        if not isinstance(key, str | int | float):
            self.fail(f"{key!r} cannot be a key")
        return key, self.value()

    def _strategy(self) -> Any:
        """An object of a registered class."""
        start = self.at
        name = self.name()
        if name not in STRATEGIES:
            self.fail(f"there is no {name} that text can hold", suggest(name, STRATEGIES), start)
        cls = STRATEGIES[name]
        self.expect("(")
        known = [field.name for field in dataclasses.fields(cls) if field.init]
        given = self.assignments(")", lambda field: self.check_known(field, known, f"{name} has no field"))
        try:
            return cls(**given)
        except (TypeError, ValueError, MinigraphError) as error:
            message = error.message if isinstance(error, MinigraphError) else str(error)
            raise self.error(f"{name}: {message}", start, getattr(error, "hint", "")) from error

    def assignments(self, end: str, check: Callable[[str], None]) -> dict[str, Any]:
        """``name=value`` pairs up to the mark `end`; `check` refuses unknown names."""
        given: dict[str, Any] = {}

        def read() -> None:
            name = self.name("a field")
            check(name)
            if name in given:
                self.fail(f"{name} is given twice")
            self.expect("=")
            self.places[name] = self.at
            given[name] = self.names() if name == "role_vars" else self.value()

        self.many(read, end)
        return given

    def check_known(self, name: str, known: Iterable[str], message: str) -> None:
        if name not in known:
            self.fail(f"{message} {name!r}", suggest(name, known) or f"It has {', '.join(known) or 'none'}.")

    def fields(self, defaults: dict[str, Any], message: str) -> dict[str, Any]:
        """The values that stand in braces, if any, and `defaults` for the others."""
        if not self.skip("{"):
            return defaults
        given = self.assignments("}", lambda name: self.check_known(name, defaults, message))
        for name, value in given.items():
            default = defaults[name]
            if isinstance(default, VarKind):
                given[name] = value = self._kind(value)
            if default is not None and type(value) is not type(default):
                self.fail(f"{name} must be {type(default).__name__}, not {value!r}", at=self.places[name])
        return {**defaults, **given}

    def _kind(self, value: Any) -> VarKind:
        for kind in VarKind:
            if kind.value == value:
                return kind
        known = " or ".join(repr(kind.value) for kind in VarKind)
        self.fail(f"kind must be {known}, not {value!r}", at=self.places["kind"])

    # Types and roles

    def tensor_type(self) -> TensorType | None:
        """Such as ``float32[-1, 4]``; None for ``unknown``."""
        word = self.name("a type such as float32[-1, 4]")
        if word == "unknown":
            return None
        if word not in _DTYPES:
            self.fail(f"{word} is no element type", suggest(word, _DTYPES) or f"Use one of {', '.join(_DTYPES)}.")
        self.expect("[", "A type reads float32[-1, 4], where -1 is unknown; a scalar is float32[1].")
        return TensorType(_DTYPES[word], tuple(self.many(self._dimension, "]")))

    def _dimension(self) -> int:
        token = self.take()
        if not _is_int(token) or int(token) < -1:
            self.fail(f"a dimension must be at least 0, or -1 for unknown, not {token}")
        return int(token)

    def role(self, value: Any) -> Role:
        """The role that ``'forward|loss'`` or a number means."""
        if isinstance(value, int) and not isinstance(value, bool):
            return Role(value)
        role = Role.FORWARD
        for word in str(value).split("|"):
            known = [name.lower() for name in Role.__members__]
            if word not in known:
                hint = suggest(word, known) or f"Use {', '.join(known)}, joined by |."
                self.fail(f"{word!r} is no role", hint, self.places["role"])
            role |= Role[word.upper()]
        return role


class _Reader:
    """Builds a program statement by statement."""

    def __init__(self, site: Site | None) -> None:
        self.site = site
        self.program = Program()
        self.block: Block | None = None
        self.unseen: list[tuple[Block, str, _Line, int]] = []
        """Uses of names that were not declared by then, with their places."""

    def read_statement(self, line: _Line) -> None:
        word = line.peek()
        if word == "program" and line.peek(1) == "{":
            self._read_header(line)
        elif not line.is_name() or not line.is_name(1):
            self._read_operator(self._current_block(line), line)
        elif word == "block":
            self._read_heading(line)
        elif word in DEFAULTS:
            line.take()
            self._declare(self._current_block(line), word, line)
        else:
            hint = (
                suggest(word, ["program", "block", *DEFAULTS])
                or f"A line starts with {', '.join(DEFAULTS)} or an output."
            )
            line.fail(f"{word} does not start a statement", hint, line.at)
        line.expect_end()

    def finish(self) -> Program:
        """The program, once every name that was used is declared."""
        for block, name, line, at in self.unseen:
            if block.find_var(name) is None:
                hint = (
                    suggest(name, block.vars)
                    or f"Declare it where it is first written, as {name}: float32[...], or above."
                )
                raise line.error(f"{name} is not declared", at, hint)
        return self.program

    def _current_block(self, line: _Line) -> Block:
        if self.block is None:
            line.fail("this stands in no block", "The first line is `block 0`.", line.at)
        return self.block

    def _read_header(self, line: _Line) -> None:
        if self.block is not None:
            line.fail("the fields of the program stand above its blocks", at=line.at)
        line.take()
        for name, value in line.fields(dict(PROGRAM_DEFAULTS), "a program has no field").items():
            setattr(self.program, name, value)

    def _read_heading(self, line: _Line) -> None:
        line.take()
        expected = 0 if self.block is None else self.block.idx + 1
        if line.take() != str(expected):
            line.fail(
                f"expected block {expected}, found block {line.tokens[line.at - 1]}", "Blocks are numbered in order."
            )
        parent = -1
        if line.skip("parent"):
            parent = int(line.take()) if _is_int(line.peek()) else expected
            if not 0 <= parent < expected:
                line.fail("the parent of a block must stand above it", f"Write `block {expected} parent 0`.")
        if expected == 0:
            self.block = self.program.blocks[0]
        else:
            self.block = Block(self.program, expected, parent)
            self.program.blocks.append(self.block)

    def _declare(self, block: Block, keyword: str, line: _Line) -> str:
        """Read ``name: type {fields}`` and add the variable."""
        name = line.name("the name of a variable")
        if name in block.vars:
            line.fail(f"{name} is declared twice")
        line.expect(":", f"A declaration reads `{keyword} {name}: float32[-1, 4]`.")
        tensor_type = line.tensor_type()
        if keyword == "param" and tensor_type is None:
            line.fail("the type of a parameter must be known")
        kind = Parameter if keyword == "param" else Variable
        var = kind(block, name, tensor_type)  # type: ignore[arg-type]
        for field, value in line.fields(dict(DEFAULTS[keyword]), f"a {keyword} has no field").items():
            setattr(var, field, copy.copy(value))
        block.vars[name] = var
        return name

    # Operators

    def _read_operator(self, block: Block, line: _Line) -> None:
        written = [] if line.peek(1) == "(" else self._read_outputs(block, line)
        start = line.at
        type_ = line.name("the type of an operator")
        line.expect("(", _SHAPE_OF_A_LINE)
        try:
            definition = definition_of(type_)
        except MinigraphError as error:
            raise line.error(error.message, start, error.hint) from None
        inputs = self._read_inputs(block, definition, line)
        attrs = self._read_attrs(definition, line)
        outputs = self._by_slot(definition, written, line)
        try:
            op = block._make_op(type_, inputs, outputs, attrs, self.site)
        except MinigraphError as error:
            raise line.error(error.message, start, error.hint) from None
        block._link(None, op)

    def _read_outputs(self, block: Block, line: _Line) -> list[tuple[str | None, list[str], int]]:
        """What stands in front of the operator type: slot or None, names, and where."""
        written: list[tuple[str | None, list[str], int]] = []
        while not written or line.skip(","):
            start, slot = line.at, None
            # `a = op(` is an output and its operator, `A=b` a slot and what is in it.
            if line.peek(1) == "=" and line.peek(3) != "(":
                slot = line.name("an output slot")
                line.take()
            if line.skip("["):
                names = line.many(lambda: self._read_output(block, line), "]")
            else:
                names = [self._read_output(block, line)]
            written.append((slot, names, start))
        line.expect("=", _SHAPE_OF_A_LINE)
        return written

    def _read_output(self, block: Block, line: _Line) -> str:
        if line.peek(1) == ":":
            return self._declare(block, "var", line)
        return self._used(block, line.name("an output"), line)

    def _used(self, block: Block, name: str, line: _Line) -> str:
        if name != EMPTY and name not in block.vars:
            self.unseen.append((block, name, line, line.at - 1))
        return name

    def _read_inputs(self, block: Block, definition: OpDef, line: _Line) -> dict[str, list[str]]:
        inputs: dict[str, list[str]] = {}

        def read() -> None:
            slot = line.name("an input slot")
            line.check_known(slot, definition.input_slots, f"{definition.type} has no input slot")
            if slot in inputs:
                line.fail(f"{slot} is given twice", f"Several variables in one slot read {slot}=[a, b].")
            line.expect("=", f"An input reads {slot}=x.")
            read_one = lambda: self._used(block, line.name("a variable"), line)  # noqa: E731
            inputs[slot] = line.many(read_one, "]") if line.skip("[") else [read_one()]

        line.many(read, ")")
        return inputs

    def _by_slot(
        self, definition: OpDef, written: list[tuple[str | None, list[str], int]], line: _Line
    ) -> dict[str, list[str]]:
        slots = definition.output_slots
        outputs: dict[str, list[str]] = {}
        for given, names, start in written:
            slot = next(iter(slots)) if given is None and len(slots) == 1 else given
            if slot is None:
                line.fail(f"{definition.type} has the outputs {', '.join(slots)}: say which", "Write Slot=name.", start)
            if slot not in slots:
                hint = suggest(slot, slots) or f"It has {', '.join(slots) or 'none'}."
                line.fail(f"{definition.type} has no output slot {slot!r}", hint, start)
            if slot in outputs:
                line.fail(f"{slot} is written twice", f"Several variables in one slot read {slot}=[a, b].", start)
            outputs[slot] = names
        return outputs

    def _read_attrs(self, definition: OpDef, line: _Line) -> dict[str, Any]:
        """Attributes in braces and fluid's names for the fields of an operator."""
        given = line.assignments("}", lambda name: None) if line.skip("{") else {}
        role = line.role(given.pop("role", int(Role.FORWARD)))
        fields = {
            "op_role": role,
            "op_role_var": given.pop("role_vars", ()),
            "op_namescope": given.pop("namescope", "/"),
        }
        if not isinstance(fields["op_namescope"], str):
            line.fail("namescope must be a string")
        return {**fields, **given}
