"""Checks of what users give to constructors: numbers in a range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError

INTEGERS = (int, np.integer)
"""Types of whole numbers, for `isinstance`; a boolean is one, too."""


def as_float(value: Any) -> float:
    """`value` as a float; an array of one element is that number, as it was in older versions of NumPy.

    Examples
    --------
    >>> as_float(np.array([2])), as_float("0.5")
    (2.0, 0.5)
    """
    return float(value.item() if isinstance(value, np.ndarray) and value.size == 1 else value)


def number(value: Any, name: str, *, at_least: float = -math.inf, below: float = math.inf) -> float:
    """`value` as a float, if it is a finite number in [`at_least`, `below`).

    Parameters
    ----------
    name : str
        What the user calls the argument.

    Raises
    ------
    WrongTypeError
        If it is no number; text and booleans are none.
    ProgramError
        If it is NaN, infinite, or out of range.

    Examples
    --------
    >>> number(1, "epsilon", at_least=0)
    1.0
    """
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise WrongTypeError(f"{name} must be a number, got {value!r:.80}", hint=f"Give {name} as a float.") from None
    if not (at_least <= found < below and math.isfinite(found)):
        wanted = "finite" if math.isinf(at_least) else f"at least {at_least:g}"
        wanted += "" if math.isinf(below) else f" and below {below:g}"
        raise ProgramError(f"{name} must be {wanted}, got {found:g}", hint=f"Give {name} such a value.")
    return found
