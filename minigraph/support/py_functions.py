"""User functions that operators call by number; the numbers belong to this process.

A program holds the numbers and the names of its functions. A text or copy of it therefore works only in the process in
which the functions were registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minigraph.errors import ExecutionError, NotFoundError


class _Entry(NamedTuple):
    function: Callable[..., Any]
    on_arrays: Callable[..., Any]


_ENTRIES: list[_Entry] = []


def register(function: Callable[..., Any], on_arrays: Callable[..., Any]) -> int:
    """Register `function` for ever, and return its number.

    `on_arrays` is the form of the function that operators call, for NumPy's arrays.
    """
    _ENTRIES.append(_Entry(function, on_arrays))
    return len(_ENTRIES) - 1


def registered(number: int) -> Callable[..., Any]:
    """The function with this number.

    Raises
    ------
    NotFoundError
        If there is none.
    """
    if not 0 <= number < len(_ENTRIES):
        raise NotFoundError(f"there is no registered function {number}; there are {len(_ENTRIES)}")
    return _ENTRIES[number].function


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function in a program, beside its number."""
    # Functions of NumPy 1 have the short name only.
    short = getattr(function, "__name__", type(function).__qualname__)
    return str(getattr(function, "__qualname__", short))


def called(number: int, name: str) -> Callable[..., Any]:
    """The function that an operator calls for this number.

    Raises
    ------
    ExecutionError
        If the number means another function in this process, or none.
    """
    found = _ENTRIES[number] if 0 <= number < len(_ENTRIES) else None
    if found is None or function_name(found.function) != name:
        raise ExecutionError(
            f"the function {name}, number {number}, is not there: it was registered in another process",
            hint="Build the program in this process.",
        )
    return found.on_arrays
