"""Pause Python's cyclic garbage collector while many objects are made that live on."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_collector(function: Callable[P, T]) -> Callable[P, T]:
    """Let `function` make many objects that live on without being interrupted to look for dead ones.

    The collector looks at all objects again each time their number has grown by a quarter, which for a large program
    took half of the time. It goes on when the work is done.
    """

    @functools.wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return function(*args, **kwargs)
        try:
            gc.disable()
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return paused
