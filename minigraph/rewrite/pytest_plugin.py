"""The fixture `check_pass` for pytest.

Ask for it in the ``conftest.py`` at the top of a project: ``pytest_plugins = ["minigraph.rewrite.pytest_plugin"]``, or
import it there: ``from minigraph.rewrite.pytest_plugin import check_pass``. Nothing is loaded in projects that do not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from minigraph.rewrite.checking import check


def _check_pass() -> Callable[..., None]:
    """A function that is given a pass and fails with the smallest program that the pass breaks.

    Examples
    --------
    ::

        def test_my_pass_keeps_every_value(check_pass):
            check_pass(MyPass(), programs=500)
    """
    return assert_sound


def assert_sound(rewrite: Any, programs: int = 500, seed: int = 0, **options: Any) -> None:
    """Raise AssertionError if `minigraph.rewrite.check` finds a program that a pass breaks; the message shows it."""
    __tracebackhide__ = True
    example = check(rewrite, programs, seed, **options)
    if example is not None:
        raise AssertionError(f"{example}\n\nThe script that shows it:\n\n{example.to_python()}")


with suppress(ImportError):  # pytest is there whenever it loads this
    import pytest

    check_pass = pytest.fixture(_check_pass, name="check_pass")
