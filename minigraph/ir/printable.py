"""Strategy objects that live in a program: clips, error clips, regularizers.

They are frozen dataclasses. Registered here, they can be printed in a program's text and read back.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

STRATEGIES: dict[str, type] = {}
"""Class name to class."""


class Strategy:
    """Base of strategies. An object of a subclass that defines ``__init__``, as fluid's do, equals only itself.

    What a frozen dataclass is follows from its fields; of other objects nothing is known.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            for name in ("__eq__", "__hash__"):
                if name not in cls.__dict__:
                    setattr(cls, name, getattr(object, name))

    def _settle(self, **fields: Any) -> None:
        """Give fields, though they are frozen, the values that ``__post_init__`` has checked."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def printable(cls: type[T]) -> type[T]:
    """Register a frozen dataclass whose instances a program's text may hold."""
    STRATEGIES[cls.__name__] = cls
    return cls
