"""Errors of passes: which pass made the edit that breaks a program, and in which of its lines.

A pass that has broken a program is repeated with a journal (`minigraph.support.undo`). There each edit notes how to
undo it, which shows what it changed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from minigraph.errors import MinigraphError, PassError, Site, VerifyError, is_ours
from minigraph.ir import Operator, Variable
from minigraph.ir.operator import slot_names
from minigraph.support.undo import JOURNAL


class _Line(NamedTuple):
    """A line of a pass."""

    rewrite: Any
    """The pass; None if no pass was running."""
    site: Site | None


class EditLog(list[Any]):
    """A journal that knows the line of the pass for each edit.

    Parameters
    ----------
    rewrite : Rewrite
        The pass that runs.
    """

    def __init__(self, rewrite: Any) -> None:
        super().__init__()
        self.rewrite = rewrite
        self._lines: list[_Line] = []

    def append(self, entry: Any) -> None:
        del self._lines[len(self) :]  # those of edits that were undone
        super().append(entry)
        self._lines.append(_line_of(_callers(sys._getframe(1))))

    def extend(self, entries: Iterable[Any]) -> None:
        del self._lines[len(self) :]
        super().extend(entries)
        self._lines += entries._lines if isinstance(entries, EditLog) else []

    def blamed(self, error: VerifyError) -> PassError:
        """Return the error that says which pass made the edit after `error`, and in which line."""
        rewrite, site = self._culprit(error)
        rewrite = rewrite or self.rewrite
        return PassError(
            f"{rewrite.name} breaks the program: {error.message}",
            details=[
                *error.details,
                *([f"operator: {error.op}"] if error.op is not None else []),
                *([f"law: {error.law}"] if error.law else []),
                f"line of the pass: {site or _start_of(rewrite)}",
            ],
            law=error.law, op=error.op, rewrite=rewrite, line=site or _start_of(rewrite), site=error.site,
            hint=error.hint or "Edit with the methods of minigraph.rewrite.Values, which refuse what breaks a program.",
        )  # fmt: skip

    def _culprit(self, error: VerifyError) -> _Line:
        """Return the line of the last edit of the operator, or of what makes a value that it reads or writes."""
        op = error.op
        names = {*error.names, *(() if op is None else (*op.input_arg_names, *op.output_arg_names))}
        # The last edit of what is broken broke it: earlier ones left a program that the pass went on with.
        for (undone, args), line in zip(self[::-1], self._lines[::-1], strict=True):
            edited, made = _edited(getattr(undone, "__self__", None), args)
            if (edited is op and op is not None) or not names.isdisjoint(made):
                return line
        return _Line(None, None)


@contextmanager
def named(rewrite: Any) -> Iterator[None]:
    """Inside, an error names the pass that raises it: the innermost one that runs, or else `rewrite`."""
    try:
        yield
    # An inner pass has been named already, and a full memory is no fault of a pass.
    except (PassError, MemoryError):
        raise
    except Exception as error:
        if (own := _failed(rewrite, error)) is not error:
            raise own from error
        raise


def _failed(rewrite: Any, error: Exception) -> Exception:
    """Return the error to raise for one that a pass raised: of the same type if it is minigraph's own."""
    trace, frames = error.__traceback__, list[FrameType]()
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    inner, site = _line_of(reversed(frames))
    rewrite = inner or rewrite
    if isinstance(error, MinigraphError):
        error.details = (*error.details, f"raised by the pass {rewrite.name}" + (f" at {site}" if site else ""))
        return error
    return PassError(
        f"{rewrite.name} fails with {type(error).__name__}: {error}", rewrite=rewrite, line=site, site=site,
        hint="Mend the pass.",
    )  # fmt: skip


@contextmanager
def edits_of(rewrite: Any) -> Iterator[EditLog]:
    """Inside, note the edits of `rewrite`, and let errors name it."""
    outer, log = JOURNAL.get(), EditLog(rewrite)
    try:
        JOURNAL.set(log)
        with named(rewrite):
            yield log
    finally:
        JOURNAL.set(outer)
        if outer is not None:
            outer.extend(log)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _line_of(frames: Iterable[FrameType]) -> _Line:
    """Return the innermost line of a pass, and that pass; `frames` begin inside."""
    seen, users = [], None
    for frame in frames:
        if users is None and not is_ours(frame):
            users = Site(frame.f_code.co_filename, frame.f_lineno)
        seen.append(frame)
        if frame.f_code.co_name in _RUNS:
            rewrite = frame.f_locals.get("self")
            # A pass or a rule, and no other object with a method of that name.
            if hasattr(rewrite, "changes_rounding"):
                return _Line(rewrite, users or _own_line(rewrite, seen))
    return _Line(None, users)


_RUNS = frozenset({"apply", "fire"})
"""Methods in which a pass or a rule changes a program."""


def _own_line(rewrite: Any, frames: Iterable[FrameType]) -> Site | None:
    """Return the line where a rule is written, or the innermost in the module of one of the project's own passes."""
    where = getattr(rewrite, "site", None)
    module = type(rewrite).__module__
    own = (each for each in frames if each.f_globals.get("__name__") == module)
    return where or next((Site(each.f_code.co_filename, each.f_lineno) for each in own), None)


def _start_of(rewrite: Any) -> Site:
    """Return the line where `apply` of a pass begins."""
    code = inspect.unwrap(type(rewrite).apply).__code__
    return getattr(rewrite, "site", None) or Site(code.co_filename, code.co_firstlineno)


def _edited(owner: Any, args: Any) -> tuple[Any, list[str]]:
    """Return what an edit has changed, and the names whose values it may have changed for others.

    `owner` is that of the method that undoes the edit, and `args` its arguments.
    """
    if isinstance(owner, Operator):  # a field of an operator has changed; its attributes and inputs concern no other
        return owner, [*slot_names(owner.outputs), *slot_names(args[1])] if args[0] == "outputs" else []
    last = args[-1] if args else None
    if isinstance(last, Operator):  # inserted or removed
        return last, slot_names(last.outputs)
    return None, [arg if isinstance(arg, str) else arg.name for arg in args if isinstance(arg, str | Variable)]
