"""Floating-point errors of NumPy: NaN and infinity are values like any other, and stay visible in results."""

from __future__ import annotations

from typing import Any

import numpy as np


class IgnoringErrors(np.errstate):
    """A decorator: inside the function, NumPy does not warn of floating-point errors.

    As a decorator `np.errstate` takes half the time of a ``with``. Before NumPy 2 all calls, of a function that calls
    itself too, would share one state; so each gets its own.
    """

    def __init__(self) -> None:
        super().__init__(all="ignore")

    def _recreate_cm(self) -> Any:  # what `contextlib.ContextDecorator` enters, the base before NumPy 2
        return type(self)()
