"""The error types and how they read.

Every error of minigraph says what was wrong, shows the values, points at the user's line and suggests what to
do. Each type also derives from the built-in exception that a Python programmer would expect, so that
``except ValueError`` works.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Site(NamedTuple):
    """A line of the user's code: where an operator was made."""

    filename: str
    line: int

    def __str__(self) -> str:
        """``model.py:12, in: y = layers.fc(x, size=1)``; the path is relative where that is shorter."""
        relative = os.path.relpath(self.filename) if os.path.isabs(self.filename) else self.filename
        shown = min(relative, self.filename, key=len)
        source = textwrap.shorten(linecache.getline(self.filename, self.line).strip(), 120, placeholder=" ...")
        return f"{shown}:{self.line}" + (f", in: {source}" if source else "")


_IS_OURS: dict[str, bool] = {}
_LAST_SITE = Site("", 0)
_LINE: ContextVar[Site | None] = ContextVar("line", default=None)


def caller_site(skipped: int = 0) -> Site | None:
    """The innermost line on the call stack that is not minigraph's own, nor of Python's ``with``, nor of NumPy.

    What one line makes, one after the other, shares one object. The innermost `skipped` calls are known to be ours.
    """
    global _LAST_SITE
    known = _LINE.get()
    if known is not None:
        return known
    frame: types.FrameType | None = sys._getframe(1 + skipped)
    while frame is not None and (_IS_OURS.get(frame.f_code.co_filename) or is_ours(frame)):
        frame = frame.f_back
    if frame is None:
        return None
    site, line, filename = _LAST_SITE, frame.f_lineno, frame.f_code.co_filename
    if site.line != line or site.filename != filename:
        site = _LAST_SITE = Site(filename, line)
    return site


def on_one_line(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, inside which `caller_site` is the line that calls it, without looking for that each time.

    For functions that append several operators and call nothing of the user's that stands on lines of its own.
    """

    @functools.wraps(function)
    def standing(*args: P.args, **kwargs: P.kwargs) -> T:
        before = _LINE.get()
        try:
            _LINE.set(caller_site())
            return function(*args, **kwargs)
        finally:
            _LINE.set(before)

    return standing


def is_ours(frame: types.FrameType) -> bool:
    """Whether a frame runs code of minigraph, of NumPy, which minigraph calls, or of Python's own wrappers."""
    code = frame.f_code
    filename = code.co_filename
    known = _IS_OURS.get(filename)
    if known is None:
        # By module name, not by path: the folders passes/ and kernels/ install as parts of the package.
        name = frame.f_globals.get("__name__", "")
        known = name.partition(".")[0] in _OUR_PACKAGES or filename.startswith(_GENERATED)
        if filename == "<string>":  # of eval, of ``python -c``, and of the constructors that dataclass writes
            return known or "__post_init__" in code.co_names
        _IS_OURS[filename] = known
    return known


_OUR_PACKAGES = ("minigraph", "contextlib", "functools", "importlib", "_frozen_importlib", "numpy")
_GENERATED = ("<minigraph ", "<frozen ")
"""How the names of code begin that minigraph or Python has written; a user's may be ``<stdin>``."""

_MOST_DETAILS = 30
"""Maximum lines of details that an error shows."""


class MinigraphError(Exception):
    """Base of all errors that minigraph raises on purpose.

    Parameters
    ----------
    message : str
        What was wrong, in one line.
    details : iterable of str
        The values involved, one per line.
    site : Site, optional
        The user's line that the error is about.
    hint : str
        What to do about it.
    """

    is_about_a_call: ClassVar[bool] = False
    """Whether an error without a line is about the user's call that fails."""

    def __init__(self, message: str, *, details: Iterable[str] = (), site: Site | None = None, hint: str = "") -> None:
        if site is None and self.is_about_a_call:
            site = caller_site()
        self.message, self.details, self.site, self.hint = message, tuple(details), site, hint
        self.is_of_other_line = site is not None and site != caller_site()
        """Whether the line is one that made something before, not that of the call that fails."""
        super().__init__(message)

    def __str__(self) -> str:
        more = len(self.details) - _MOST_DETAILS
        lines = [self.message, *self.details[:_MOST_DETAILS], *([f"and {more} more"] if more > 0 else [])]
        if self.site is not None:
            lines.append(f"{'created at' if self.is_of_other_line else 'at'} {self.site}")
        if self.hint:
            lines.append(self.hint)
        return "\n  ".join(lines)


class OpError(MinigraphError, ValueError):
    """An operator does not fit its definition: slots, attributes, shapes or dtypes."""


class ProgramError(MinigraphError, ValueError):
    """A program, block or variable is used in a way its structure does not allow."""

    is_about_a_call = True


class NotSupportedError(ProgramError, NotImplementedError):
    """A function of fluid's that does nothing: here and there, or only here."""


class NotFoundError(ProgramError, KeyError):
    """A name is unknown; the message suggests the nearest known ones."""

    __str__ = MinigraphError.__str__


class UnknownNameError(MinigraphError, AttributeError):
    """A module has no function or class of a name; the message suggests the nearest ones."""


class UnknownImportError(MinigraphError, ModuleNotFoundError):
    """An import names what a package does not have; the message is that of `UnknownNameError`."""


class SubscriptError(ProgramError, IndexError):
    """A subscript names what a variable does not have."""

    is_about_a_call = True


class WrongTypeError(MinigraphError, TypeError):
    """An argument has the wrong Python type."""

    is_about_a_call = True


class VerifyError(ProgramError):
    """A program breaks an invariant, as after a faulty pass.

    Attributes
    ----------
    law : str
        The invariant.
    op : Operator or None
        The operator that breaks it.
    names : tuple of str
        Variables that the error is about.
    """

    def __init__(
        self, message: str, *, law: str = "", op: Any = None, names: Iterable[str] = (), site: Site | None = None,
        **fields: Any,
    ) -> None:  # fmt: skip
        super().__init__(message, site=site or (None if op is None else op.site), **fields)
        self.law, self.op, self.names = law, op, tuple(names)


class PassError(VerifyError):
    """A pass breaks a program, or fails.

    Attributes
    ----------
    rewrite : Rewrite
        The pass.
    line : Site or None
        The line of the pass that made the edit.
    """

    def __init__(self, message: str, *, rewrite: Any, line: Site | None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.rewrite, self.line = rewrite, line


class RewriteError(ProgramError):
    """An edit of a program is refused, because a name would mean another value than before."""


class RuleError(RewriteError):
    """A rule of `minigraph.rewrite` is not one, breaks what it replaces, or does not end."""


class ParseError(MinigraphError, ValueError):
    """A text is not a program."""


class ClipError(ProgramError):
    """Gradient clipping was asked for in a way that has no meaning, such as a threshold that is not positive."""

    is_about_a_call = True


class FeedError(MinigraphError, ValueError):
    """A feed does not fit the program."""

    is_about_a_call = True


class EOFException(MinigraphError, EOFError):
    """A `minigraph.io.DataLoader` that feeds a program has no batch left."""


class ExecutionError(MinigraphError, RuntimeError):
    """A program failed while it ran."""


class CommunicationError(ExecutionError):
    """Ranks that run one program make different exchanges, or one of them has failed."""


class MemoryUseError(ExecutionError):
    """A checked run found memory used as the plan does not allow, see `minigraph.executor.checking`."""


class NonfiniteError(ExecutionError):
    """A gradient is NaN or infinite, and its clip is to raise then.

    Attributes
    ----------
    param : str
        Name of the parameter.
    """

    def __init__(self, message: str, param: str, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.param = param


class LessonError(MinigraphError, RuntimeError):
    """A student's file of a lesson fails, or does not define what the lesson asks for."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.is_of_other_line = False  # the line is always the student's that fails


class PlaceError(MinigraphError, RuntimeError):
    """A place, such as a GPU, is not to be had on this machine."""


class VersionError(MinigraphError, RuntimeError):
    """A program asks for another version of fluid than the one whose interface minigraph has."""


class DataError(MinigraphError, ValueError):
    """A data file or a record is not what it should be."""


class MissingFileError(DataError, FileNotFoundError, RuntimeError):
    """A file that should be read is not there; a RuntimeError, too, as where fluid loads one."""


class FileAccessError(DataError, OSError):
    """A file cannot be read or written: permissions, a full disk, a folder in its place.

    Attributes
    ----------
    errno : int or None
        The system's number of the error.
    """

    def __init__(self, message: str, errno: int | None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.errno = errno


class MismatchError(DataError, RuntimeError):
    """The contents of a file do not fit the variables that they are for."""


class MissingExtraError(MinigraphError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


def warn(message: str, category: type[Warning] = UserWarning, *, registry: dict[Any, Any] | None = None) -> None:
    """Issue a warning that points at the user's line, however deep the call is.

    With a `registry`, the same warning about the same line is shown once, unless the user's filters say otherwise.
    """
    site = caller_site() or Site("<unknown>", 1)
    warnings.warn_explicit(message, category, site.filename, site.line, registry=registry)


def not_a_name(name: object) -> WrongTypeError:
    """The error of a variable's name that is no string."""
    return WrongTypeError(
        f"the name of a variable must be a str, got {name!r:.80}", site=caller_site(), hint="Give variable.name."
    )


def suggest(name: Any, known: Iterable[str]) -> str:
    """A hint naming the known words nearest to `name`, or the empty string.

    Examples
    --------
    >>> suggest("rellu", ["relu", "tanh"])
    'Did you mean relu?'
    """
    import difflib

    words = [each for each in known if isinstance(each, str)]
    near = difflib.get_close_matches(name, words, n=3, cutoff=0.6) if isinstance(name, str) else ()
    return f"Did you mean {' or '.join(near)}?" if near else ""
