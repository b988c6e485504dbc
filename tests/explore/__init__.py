"""Explorations: laws that are tried on new cases for as long as one likes, ``python -m tests.explore --minutes 60``.

To add one, write a module here with a function ``case(seed: int) -> None``, which draws all that it does from `seed`
and raises AssertionError when a law is broken, with a message that holds the smallest reproduction that it could find.
Add its name to `EXPLORATIONS`. Whatever else `case` raises is a failure too. Times are shared evenly, so that a case
should take less than a second. A test of the same law calls ``explore.<name>.case`` for a few fixed seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

EXPLORATIONS = ("files", "gradients", "interrupts", "norms", "passes", "plans", "programs", "rewrites", "rules")
"""Names of the modules."""


def case_of(name: str) -> Callable[[int], None]:
    """The function `case` of an exploration."""
    case: Callable[[int], None] = import_module(f"{__name__}.{name}").case
    return case
