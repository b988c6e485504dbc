"""Strategy objects that live in a program: clips, error clips, regularizers.

They are frozen dataclasses. Registered here, they can be printed in a program's text and read back.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_STRATEGIES: dict[str, type] = {}
"""Class name to class."""

_HOMES: dict[str, str] = {}
"""Class name to the module that registers the class and is imported when the class is asked for."""


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
    _STRATEGIES[cls.__name__] = cls
    return cls


def register_later(homes: Mapping[str, str]) -> None:
    """Register classes by name, with the modules that define them and need not be imported yet."""
    _HOMES.update(homes)


def printable_names() -> list[str]:
    """Names of the registered classes."""
    return [*dict.fromkeys((*_STRATEGIES, *_HOMES))]


def printable_class(name: str) -> type:
    """The registered class of a name, one of `printable_names`."""
    if name not in _STRATEGIES:
        importlib.import_module(_HOMES[name])
    return _STRATEGIES[name]
