"""Undo what a call has built when the call fails.

During a call, each change of a program notes how to undo it. Nothing is copied: building a program costs one entry of a
list for each change, and the list ends with the outermost call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Journal = list[tuple[Callable[..., Any], tuple[Any, ...]]]
JOURNAL: ContextVar[Journal | None] = ContextVar("journal", default=None)
CURRENT: ContextVar[Any] = ContextVar("default_programs", default=None)
"""The main and the startup program that `minigraph.program_guard` has chosen.

A main program that computes at once, as in the imperative mode, is not changed by a call: there is nothing to undo.
"""


def note(undo: Callable[..., Any], *args: Any) -> None:
    """Note that ``undo(*args)`` undoes a change, if the current call fails; outside of `all_or_nothing` do nothing."""
    journal = JOURNAL.get()
    if journal is not None:
        journal.append((undo, args))


class all_or_nothing(AbstractContextManager[None]):
    """Undo what was noted inside, the last change first, if the body raises; may be nested.

    Examples
    --------
    >>> made = []
    >>> try:
    ...     with all_or_nothing():
    ...         made.append(1)
    ...         note(made.pop)
    ...         raise ValueError
    ... except ValueError:
    ...     made
    []
    """

    __slots__ = ("_journal", "_mark", "_outer")

    def __enter__(self) -> None:
        self._outer = JOURNAL.get()
        self._journal = [] if self._outer is None else self._outer
        self._mark = len(self._journal)
        try:
            JOURNAL.set(self._journal)
        except BaseException:  # an interrupt; `__exit__` will not be called
            JOURNAL.set(self._outer)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                undo(self._journal, self._mark)
        finally:
            JOURNAL.set(self._outer)


def unnoted(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, which changes only programs of its own: a failing call around it undoes none of these changes."""

    @functools.wraps(function)
    def apart(*args: P.args, **kwargs: P.kwargs) -> T:
        before = JOURNAL.get()
        try:
            JOURNAL.set(None)
            return function(*args, **kwargs)
        finally:
            JOURNAL.set(before)

    return apart


def undo(journal: Journal, mark: int) -> None:
    """Undo what was noted after the first `mark` entries, the last first."""
    before = JOURNAL.get()
    try:
        JOURNAL.set(None)  # undoing is not noted
        while len(journal) > mark:
            undone, args = journal.pop()
            undone(*args)
    finally:
        JOURNAL.set(before)
