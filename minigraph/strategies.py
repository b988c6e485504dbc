"""Strategy objects that live in a program: clips, error clips, regularizers.

They are frozen dataclasses. Registered here, they can be printed in a program's text and read back.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

STRATEGIES: dict[str, type] = {}
"""Class name to class."""


def printable(cls: type[T]) -> type[T]:
    """Register a frozen dataclass whose instances a program's text may hold."""
    STRATEGIES[cls.__name__] = cls
    return cls
