"""Arrays of one element that Python can use as numbers.

The loss of a fluid program has the shape [1], and programs print it with ``"%f" % loss`` or add up ``float(loss)``.
NumPy refuses both for arrays of rank 1 since 2.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class OneElement(np.ndarray[Any, Any]):
    """An array that `float`, `int` and ``%`` take for its element."""

    __slots__ = ()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)  # so that a file of results needs no minigraph to be read


def for_user(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`array`, which a user gets as a result, in row-major order as in fluid; one element counts as a number."""
    if array.size == 1:
        return array.view(OneElement)
    return array if array.flags.c_contiguous else array.copy()
