"""One line of a program's text: its tokens, the names, values and types in it, and errors that point at a token."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from minigraph.errors import MinigraphError, ParseError, suggest
from minigraph.ir.printable import printable_class, printable_names
from minigraph.ir.role import Role
from minigraph.ir.text.notation import PLAIN_NAME
from minigraph.types import DType, TensorType, VarKind

_STRING = r"""(?:"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')"""
# A string without an end is one token up to the end of the line, so that time stays linear.
_TOKEN = re.compile(rf"""{PLAIN_NAME}|{_STRING}|["'].*|<[^<>]*>|[\[\](){{}}=,:]|\#.*|\S""")
_is_word = re.compile(PLAIN_NAME).fullmatch
_is_string = re.compile(_STRING).fullmatch
_is_int = re.compile(r"[+-]?[0-9]+").fullmatch
_is_float = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan)").fullmatch
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "/": "/", "b": "\b", "f": "\f"}
_CONSTANTS = {"True": True, "False": False, "None": None}
_DTYPES = {str(dtype): dtype for dtype in DType}
_MARKS = frozenset("[](){}=,:")
_DEEPEST = 64
"""Maximum levels of nesting, so that no text exhausts Python's stack."""

_MOST_DIGITS = 400
"""Maximum characters of a number: Python reads long ones in quadratic time."""

_LARGEST_DIMENSION = (1 << 63) - 1


class Line:
    """A reader of the tokens of a line."""

    def __init__(self, number: int, source: str) -> None:
        self.number = number
        self.source = source
        self.at = 0
        """Position of the next token."""
        self.places: dict[str, int] = {}
        """Position of the value of each assignment read last."""
        self.depth = 0
        self.tokens = _TOKEN.findall(source)
        if self.tokens and self.tokens[-1][0] == "#":
            self.tokens.pop()

    # Tokens

    def peek(self, ahead: int = 0) -> str:
        """A token ahead, without reading it; the empty string after the last one."""
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
        """Read items separated by commas, up to the mark `end`; a comma before it is allowed."""
        found: list[Any] = []
        self.depth += 1
        # A bound of its own, below Python's limit of recursion, which a hostile text could reach.
        if self.depth > _DEEPEST:
            self.fail(f"values are nested more than {_DEEPEST} levels deep")
        while not self.skip(end):
            if found:
                if not self.skip(","):
                    self.fail_expected(f"',' or {end!r}")
                if self.skip(end):
                    break
            found.append(read())
        self.depth -= 1
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
        if token[:1] in ("'", '"') and not _is_string(token):
            self.fail(
                "this string has no end", "Close it on the same line; a line break in it is written \\n.", self.at
            )
        if token == "<" or (token and token not in _MARKS and not self._is_sound(token)):
            self.fail(f"unexpected character {token!r:.80}", "Put a name that has it in double quotes.", self.at)
        found = f"found {token!r:.80}" if token else "the line ends"
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
        return bool(_is_word(token) or _is_string(token))

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
            self.fail(f"the string {token:.80} has an unknown escape", "A backslash is written \\\\.")

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
            return self.integer(word)
        if _is_float(word):
            number = float(word)
            return math.nan if math.isnan(number) else number  # one NaN, so that structures compare equal
        if word in _DTYPES:
            return int(_DTYPES[word])
        self.fail(f"{word:.80} is no value", suggest(word, [*_CONSTANTS, *_DTYPES]) or "A string is written in quotes.")

    def integer(self, token: str) -> int:
        if len(token) > _MOST_DIGITS:
            self.fail(f"a number of {len(token)} digits is too long", f"Numbers have at most {_MOST_DIGITS}.")
        return int(token)

    def _item(self) -> tuple[Any, Any]:
        key = self.value()
        self.expect(":")
        if not isinstance(key, str | int | float):
            self.fail(f"{key!r:.80} cannot be a key")
        return key, self.value()

    def _strategy(self) -> Any:
        """An object of a registered class."""
        start = self.at
        name = self.name()
        if name not in printable_names():
            self.fail(f"there is no {name:.80} that text can hold", suggest(name, printable_names()), start)
        cls = printable_class(name)
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
            self.fail(f"{message} {name!r:.80}", suggest(name, known) or f"It has {', '.join(known) or 'none'}.")

    def fields(self, defaults: dict[str, Any], message: str) -> dict[str, Any]:
        """The values in braces, if there are any, and `defaults` for the others."""
        if not self.skip("{"):
            return defaults
        given = self.assignments("}", lambda name: self.check_known(name, defaults, message))
        for name, value in given.items():
            default = defaults[name]
            if isinstance(default, VarKind):
                given[name] = value = self._kind(value)
            if default is not None and type(value) is not type(default):
                self.fail(f"{name} must be {type(default).__name__}, not {value!r:.80}", at=self.places[name])
        return {**defaults, **given}

    def _kind(self, value: Any) -> VarKind:
        for kind in VarKind:
            if kind.value == value:
                return kind
        known = " or ".join(repr(kind.value) for kind in VarKind)
        self.fail(f"kind must be {known}, not {value!r:.80}", at=self.places["kind"])

    # Types and roles

    def tensor_type(self) -> TensorType | None:
        """Read a type, such as ``float32[-1, 4]``; None for ``unknown``."""
        word = self.name("a type such as float32[-1, 4]")
        if word == "unknown":
            return None
        if word not in _DTYPES:
            self.fail(f"{word} is no element type", suggest(word, _DTYPES) or f"Use one of {', '.join(_DTYPES)}.")
        self.expect("[", "A type reads float32[-1, 4], where -1 is unknown; a scalar is float32[1].")
        return TensorType(_DTYPES[word], tuple(self.many(self._dimension, "]")))

    def _dimension(self) -> int:
        token = self.take()
        if not _is_int(token) or not -1 <= (size := self.integer(token)) <= _LARGEST_DIMENSION:
            self.fail(f"a dimension must be at least 0, or -1 for unknown, not {token:.80}", "It is below 2**63.")
        return size

    def role(self, value: Any) -> Role:
        """The role that ``'forward|loss'`` or a number means."""
        if isinstance(value, int) and not isinstance(value, bool):
            return Role(value)
        role = Role.FORWARD
        for word in str(value).split("|"):
            known = [name.lower() for name in Role.__members__]
            if word not in known:
                hint = suggest(word, known) or f"Use {', '.join(known)}, joined by |."
                self.fail(f"{word!r:.80} is no role", hint, self.places["role"])
            role |= Role[word.upper()]
        return role
