"""Functions of one variable, applied to each element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.kernels.registry import kernel, specialize


def _at_least(xp, x, bound, out=None) -> Any:
    """``max(x, bound)``."""
    if xp is np and x.size > 4096:
        return x.clip(bound, math.inf, out)  # NumPy's maximum with a number is three times slower
    return xp.maximum(x, bound, out=out)


@kernel("relu")
def relu(xp, x, *, out=None):
    return _at_least(xp, x, 0, out)


@kernel("relu_grad")
def relu_grad(xp, result, d_out, *, out=None):
    return xp.multiply(d_out, result > 0, out=out)


@kernel("sigmoid")
def sigmoid(xp, x, *, out=None):
    """``1 / (1 + exp(-x))``, held where ``exp(-x)`` nears the largest number."""
    if x.dtype == np.float16:
        return xp.positive(sigmoid(xp, x.astype(xp.float32)).astype(xp.float16), out=out)
    y = _at_least(xp, x, -87 if x.dtype == np.float32 else -708, out)
    xp.negative(y, out=y)
    xp.exp(y, out=y)
    xp.add(y, 1, out=y)
    return xp.reciprocal(y, out=y)


@kernel("sigmoid_grad")
def sigmoid_grad(xp, result, d_out, *, out=None):
    slope = 1 - result
    xp.multiply(slope, result, out=slope)
    return xp.multiply(slope, d_out, out=out)


@kernel("tanh")
def tanh(xp, x, *, out=None):
    return xp.tanh(x, out=out)


@kernel("tanh_grad")
def tanh_grad(xp, result, d_out, *, out=None):
    slope = xp.square(result)
    xp.subtract(1, slope, out=slope)
    return xp.multiply(slope, d_out, out=out)


@kernel("exp")
def exp(xp, x, *, out=None):
    if x.dtype.kind == "f":
        return xp.exp(x, out=out)
    return xp.positive(xp.exp(x.astype(xp.float64)).astype(x.dtype), out=out)


@kernel("exp_grad")
def exp_grad(xp, result, d_out, *, out=None):
    return xp.multiply(d_out, result, out=out)


@kernel("log")
def log(xp, x, *, out=None):
    return xp.log(x, out=out)


@kernel("log_grad")
def log_grad(xp, x, d_out, *, out=None):
    return xp.true_divide(d_out, x, out=out)


@kernel("sqrt")
def sqrt(xp, x, *, out=None):
    return xp.sqrt(x, out=out)


@kernel("sqrt_grad")
def sqrt_grad(xp, result, d_out, *, out=None):
    return xp.true_divide(d_out * 0.5, result, out=out)


@kernel("abs")
def abs(xp, x, *, out=None):
    return xp.absolute(x, out=out)


@kernel("abs_grad")
def abs_grad(xp, x, d_out, *, out=None):
    return xp.multiply(d_out, xp.sign(x), out=out)


@kernel("square")
def square(xp, x, *, out=None):
    return xp.square(x, out=out)


@kernel("square_grad")
def square_grad(xp, x, d_out, *, out=None):
    d_x = xp.multiply(x, d_out, out=out)
    return xp.multiply(d_x, 2, out=d_x)


@kernel("sign")
def sign(xp, x, *, out=None):
    return xp.sign(x, out=out)


def _offer_function(name: str) -> Any:
    def offer(xp, x):
        return getattr(xp, name) if x.dtype.kind == "f" or name in ("absolute", "square") else None

    return offer


for _type, _name in {
    "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "absolute", "square": "square", "sign": "sign",
}.items():  # fmt: skip
    specialize(_type)(_offer_function(_name))


@specialize("exp_grad")
def _product_with_result(xp, result, d_out):
    return xp.multiply


@specialize("relu")
def _quicker_relu(xp, x):
    """The same two functions, chosen beforehand."""
    if xp is not np:
        return None
    zero = np.zeros((), x.dtype)
    if math.prod(x.shape) > 4096:
        return lambda x, out=None: x.clip(zero, math.inf, out)
    maximum = np.maximum
    return lambda x, out=None: maximum(x, zero, out=out)


@specialize("relu_grad")
def _quicker_relu_grad(xp, result, d_out):
    """For few elements a mask in the dtype of the gradient saves more than it costs."""
    if xp is not np or math.prod(result.shape) > 1024:
        return None
    zero, multiply, sign, fmax = np.zeros((), result.dtype), np.multiply, np.sign, np.fmax
    return lambda result, d_out, out=None: multiply(d_out, sign(fmax(result, zero)), out)
