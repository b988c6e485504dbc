"""Give context variables another value inside a ``with`` statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give `variable` a value inside, and the one before back on exit."""
    before = variable.get()
    try:
        variable.set(value)
        yield
    finally:
        variable.set(before)
