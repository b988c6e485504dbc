"""All or nothing: what a call has built goes when the call fails.

While a call is under way, each change of a program notes how it is undone. Nothing is copied: building a program costs
one entry of a list for each change, and the list goes with the outermost call.
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


def note(undo: Callable[..., Any], *args: Any) -> None:
    """Have ``undo(*args)`` called if the call that is under way fails; outside of `all_or_nothing` do nothing."""
    journal = JOURNAL.get()
    if journal is not None:
        journal.append((undo, args))


class all_or_nothing(AbstractContextManager[None]):
    """Undo what was noted inside, the last change first, if the body raises; may stand in another one.

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

    __slots__ = ("_journal", "_mark", "_token")

    def __enter__(self) -> None:
        journal = JOURNAL.get()
        self._token = None
        if journal is None:
            journal = []
            self._token = JOURNAL.set(journal)
        self._journal = journal
        self._mark = len(journal)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            undo(self._journal, self._mark)
        if self._token is not None:
            JOURNAL.reset(self._token)


def unnoted(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, which changes programs that are its own: a call that is under way does not undo that."""

    @functools.wraps(function)
    def apart(*args: P.args, **kwargs: P.kwargs) -> T:
        token = JOURNAL.set(None)
        try:
            return function(*args, **kwargs)
        finally:
            JOURNAL.reset(token)

    return apart


def undo(journal: Journal, mark: int) -> None:
    """Undo what was noted behind the first `mark` entries, the last first."""
    token = JOURNAL.set(None)  # undoing is no change to be undone
    try:
        while len(journal) > mark:
            undone, args = journal.pop()
            undone(*args)
    finally:
        JOURNAL.reset(token)
