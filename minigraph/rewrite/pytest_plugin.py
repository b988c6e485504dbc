"""Value of the fixture `check_pass` of pytest; ``pytest_minigraph.py`` defines the fixture."""

from __future__ import annotations

from typing import Any

from minigraph.rewrite.checking import check


def assert_sound(rewrite: Any, programs: int = 500, seed: int = 0, **options: Any) -> None:
    """Raise AssertionError if `check` finds a program that a pass breaks; the message shows it."""
    __tracebackhide__ = True
    example = check(rewrite, programs, seed, **options)
    if example is not None:
        raise AssertionError(f"{example}\n\nThe script that shows it:\n\n{example.to_python()}")
