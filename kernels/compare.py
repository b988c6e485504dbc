"""Elementwise comparisons and logic, and tests for infinity and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph.kernels.buffers import deliver
from minigraph.kernels.elementwise import function_of_module
from minigraph.kernels.registry import kernel

for _type, _name in {
    "equal": "equal", "not_equal": "not_equal", "less_than": "less", "less_equal": "less_equal",
    "greater_than": "greater", "greater_equal": "greater_equal",
}.items():  # fmt: skip
    function_of_module(_type, _name)


def _logical(name: str) -> Callable[..., Any]:
    def function(xp, x, y, *, out=None):
        return getattr(xp, name)(x, y, out=out)

    return function


for _name in ("logical_and", "logical_or", "logical_xor"):
    kernel(_name)(_logical(_name))


@kernel("logical_not")
def logical_not(xp, x, *, out=None):
    return xp.logical_not(x, out=out)


@kernel("isfinite")
def isfinite(xp, x, *, out=None):
    return deliver(xp, xp.isfinite(x).all().reshape(1), out)


@kernel("isnan")
def isnan(xp, x):
    return xp.isnan(x).any().reshape(1)


@kernel("isinf")
def isinf(xp, x):
    return xp.isinf(x).any().reshape(1)


@kernel("is_empty")
def is_empty(xp, x):
    return xp.full(1, x.size == 0)


@kernel("allclose")
def allclose(xp, x, y, *, rtol, atol, equal_nan):
    # CuPy's `isclose` finds equal numbers apart where a tolerance is negative, NumPy's does not.
    are_close = xp.isclose(x, y, rtol, atol, equal_nan) | (x == y)
    return are_close.all().reshape(1)
