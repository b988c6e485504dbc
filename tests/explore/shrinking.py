"""Making a failing case smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def smallest(case: T, is_failing: Callable[[T], bool], simpler: Callable[[T], Iterable[T]], tries: int = 500) -> T:
    """A case that fails like `case` and of which no simpler one was seen to fail.

    Parameters
    ----------
    simpler : callable
        Gives cases a little simpler than its argument, the simplest first.
    tries : int
        Maximum number of cases to run.
    """
    is_done = False
    while not is_done:
        is_done = True
        for each in simpler(case):
            tries -= 1
            if tries < 0:
                break
            if is_failing(each):
                case, is_done = each, False
                break
    return case
