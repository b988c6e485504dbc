"""Comparisons and logic, element by element; and whether everything is finite."""

from __future__ import annotations

from minigraph.kernels.buffers import deliver
from minigraph.kernels.elementwise import laid_over, offer_function
from minigraph.kernels.registry import kernel, specialize


@kernel("equal")
def equal(xp, x, y, *, axis, out=None):
    return xp.equal(x, laid_over(x, y, axis), out=out)


@kernel("not_equal")
def not_equal(xp, x, y, *, axis, out=None):
    return xp.not_equal(x, laid_over(x, y, axis), out=out)


@kernel("less_than")
def less_than(xp, x, y, *, axis, out=None):
    return xp.less(x, laid_over(x, y, axis), out=out)


@kernel("less_equal")
def less_equal(xp, x, y, *, axis, out=None):
    return xp.less_equal(x, laid_over(x, y, axis), out=out)


@kernel("greater_than")
def greater_than(xp, x, y, *, axis, out=None):
    return xp.greater(x, laid_over(x, y, axis), out=out)


@kernel("greater_equal")
def greater_equal(xp, x, y, *, axis, out=None):
    return xp.greater_equal(x, laid_over(x, y, axis), out=out)


@kernel("logical_and")
def logical_and(xp, x, y, *, out=None):
    return xp.logical_and(x, y, out=out)


@kernel("logical_or")
def logical_or(xp, x, y, *, out=None):
    return xp.logical_or(x, y, out=out)


@kernel("logical_xor")
def logical_xor(xp, x, y, *, out=None):
    return xp.logical_xor(x, y, out=out)


@kernel("logical_not")
def logical_not(xp, x, *, out=None):
    return xp.logical_not(x, out=out)


@kernel("isfinite")
def isfinite(xp, x, *, out=None):
    return deliver(xp, xp.isfinite(x).all().reshape(1), out)


for _type, _name in {
    "equal": "equal", "not_equal": "not_equal", "less_than": "less", "less_equal": "less_equal",
    "greater_than": "greater", "greater_equal": "greater_equal",
}.items():  # fmt: skip
    specialize(_type)(offer_function(_name))


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
    return xp.isclose(x, y, rtol, atol, equal_nan).all().reshape(1)
