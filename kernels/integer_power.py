"""Powers of integers."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ExecutionError


def integer_power(xp, x, y) -> Any:
    """``x ** y`` of integer arrays, in the dtype of `x`; a fraction is cut to an integer.

    Raises
    ------
    ExecutionError
        For a negative power of 0.
    """
    negative = y < 0
    result = xp.power(x, xp.absolute(y)).astype(x.dtype, copy=False)
    if not bool(negative.any()):
        return result
    if bool((negative & (x == 0)).any()):
        raise ExecutionError("0 has no negative power among the integers")
    return xp.where(negative & (xp.absolute(x) != 1), x.dtype.type(0), result)
