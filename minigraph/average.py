"""Averages of numbers that a program gives batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["WeightedAverage"]


@public
class WeightedAverage:
    """The sum of ``value * weight`` over the sum of weights.

    Examples
    --------
    >>> average = WeightedAverage()
    >>> average.add(value=2.0, weight=1)
    >>> average.add(value=4.0, weight=3)
    >>> average.eval()
    3.5
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._total: Any = 0.0
        self._weight: Any = None

    def add(self, value: Any, weight: Any) -> None:
        """Take in a value, a number or an array, such as the loss of a batch by the size of that.

        Raises
        ------
        WrongTypeError
            If one of them is no number, or the weight an array of several.
        """
        if not isinstance(value, int | float | np.number | np.ndarray):
            raise WrongTypeError(f"value must be a number or an array, got {value!r:.60}")
        if not isinstance(weight, int | float | np.number) and not (
            isinstance(weight, np.ndarray) and weight.shape == (1,)
        ):
            raise WrongTypeError(f"weight must be a number, got {weight!r:.60}")
        self._total = self._total + value * weight
        self._weight = weight if self._weight is None else self._weight + weight

    def eval(self) -> Any:
        """The average so far.

        Raises
        ------
        ProgramError
            If nothing was taken in.
        """
        if not self._weight:
            raise ProgramError(
                f"there is nothing to average: the sum of weights is {self._weight or 0}",
                hint="add() a value with a positive weight first.",
            )
        return self._total / self._weight


refuse_unknown_names(__name__)
