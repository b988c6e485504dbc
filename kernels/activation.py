"""Functions of one variable, applied to each element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.integer_power import integer_power
from minigraph.kernels.registry import kernel, specialize
from minigraph.kernels.tracing import Primitives
from minigraph.kernels.upcast import widened


def _function_of_module(name: str) -> Callable[..., Any]:
    """Make a kernel of one function of the array module."""

    def function(xp, x, *, out=None):
        return getattr(xp, name)(x, out=out)

    return function


def _offer_function(name: str) -> Callable[..., Any]:
    def offer(xp, x):
        return getattr(xp, name) if x.dtype.kind == "f" or name in ("absolute", "square") else None

    return offer


for _type, _name in {
    "log": "log", "log1p": "log1p", "sqrt": "sqrt", "abs": "absolute", "square": "square",
    "sign": "sign", "reciprocal": "reciprocal", "floor": "floor", "ceil": "ceil", "sin": "sin", "cos": "cos",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan",
}.items():  # fmt: skip
    kernel(_type)(_function_of_module(_name))
    specialize(_type, any_size=True)(_offer_function(_name))
for _name in ("exp", "tanh"):
    specialize(_name, any_size=True)(_offer_function(_name))


def at_least(xp, x, bound, out=None) -> Any:
    """``max(x, bound)``."""
    if xp is np and x.size > 4096:
        # NumPy's maximum with a number is three times slower than clip, whose bounds are faster as arrays.
        return x.clip(_array_of(bound, x.dtype), _array_of(math.inf, x.dtype), out)
    return xp.maximum(x, bound, out=out)


@functools.cache
def _array_of(number, dtype) -> np.ndarray:
    array = np.array(number, dtype)
    array.flags.writeable = False
    return array


LOWEST_EXPONENT: dict[Any, Any] = {np.dtype(np.float32): -87, np.dtype(np.float64): -708}
"""Minimum x, by dtype, for which ``exp(-x)`` is far enough from overflow."""


def logistic(xp, x) -> Any:
    """``1 / (1 + exp(-x))``, which becomes 0 where ``exp(-x)`` is infinite."""
    if xp is not np and isinstance(xp, Primitives):
        return xp.logistic(x)
    y = xp.negative(x)
    xp.exp(y, out=y)
    y += 1
    return xp.reciprocal(y, out=y)


@kernel("relu")
def relu(xp, x, *, out=None):
    return at_least(xp, x, 0, out)


@kernel("relu_grad")
def relu_grad(xp, result, d_out, *, out=None):
    return xp.multiply(d_out, result > 0, out=out)


kernel("relu_grad_grad")(relu_grad)


@kernel("sigmoid")
def sigmoid(xp, x, *, out=None):
    """``1 / (1 + exp(-x))``, with x bounded from below so that ``exp(-x)`` does not overflow."""
    if x.dtype == np.float16:
        return xp.positive(sigmoid(xp, x.astype(xp.float32)).astype(xp.float16), out=out)
    y = at_least(xp, x, LOWEST_EXPONENT[x.dtype], out)
    xp.negative(y, out=y)
    xp.exp(y, out=y)
    xp.add(y, 1, out=y)
    return xp.reciprocal(y, out=y)


@kernel("sigmoid_grad")
def sigmoid_grad(xp, result, d_out, *, out=None):
    slope = 1 - result
    xp.multiply(slope, result, out=slope)
    return xp.multiply(slope, d_out, out=slope if out is None else out)


@kernel("tanh")
def tanh(xp, x, *, out=None):
    return xp.tanh(x, out=out)


@kernel("tanh_grad")
def tanh_grad(xp, result, d_out, *, out=None):
    # `out` may be the memory of `d_out`, which is read after the square is written.
    slope = xp.square(result, out=unshared(xp, out, d_out))
    xp.subtract(1, slope, out=slope)
    return xp.multiply(slope, d_out, out=slope if out is None else out)


@kernel("exp")
def exp(xp, x, *, out=None):
    if x.dtype.kind == "f":
        return xp.exp(x, out=out)
    return xp.positive(xp.exp(x.astype(xp.float64)).astype(x.dtype), out=out)


@kernel("exp_grad")
def exp_grad(xp, result, d_out, *, out=None):
    return xp.multiply(d_out, result, out=out)


@kernel("log_grad")
def log_grad(xp, x, d_out, *, out=None):
    return xp.true_divide(d_out, x, out=out)


@kernel("log1p_grad")
def log1p_grad(xp, x, d_out, *, out=None):
    return xp.true_divide(d_out, x + 1, out=out)


@kernel("sqrt_grad")
def sqrt_grad(xp, result, d_out, *, out=None):
    return xp.true_divide(d_out * 0.5, result, out=out)


@kernel("sqrt_grad_grad")
def sqrt_grad_grad(xp, result, d_x, dd_x, *, wanted, out=None):
    """``dOut`` is what flows into the root itself."""
    d_result_buffer, dd_out_buffer = out or (None, None)
    d_result = dd_out = None
    if wanted[1]:
        free = unshared(xp, dd_out_buffer, result, d_x, dd_x) if wanted[0] else dd_out_buffer
        dd_out = sqrt_grad(xp, result, dd_x, out=free)
    if wanted[0]:
        d_result = xp.multiply(d_x, dd_x / result, out=d_result_buffer)
        d_result = xp.negative(d_result, out=d_result)
    return d_result, deliver(xp, dd_out, dd_out_buffer)


@kernel("abs_grad")
def abs_grad(xp, x, d_out, *, out=None):
    return xp.multiply(d_out, xp.sign(x), out=out)


@kernel("square_grad")
def square_grad(xp, x, d_out, *, out=None):
    d_x = xp.multiply(x, d_out, out=out)
    return xp.multiply(d_x, 2, out=d_x)


@kernel("square_grad_grad")
def square_grad_grad(xp, x, d_out, dd_x, *, wanted, out=None):
    d_x_buffer, dd_out_buffer = out or (None, None)
    d_x = dd_out = None
    if wanted[1]:
        free = unshared(xp, dd_out_buffer, d_out, dd_x) if wanted[0] else dd_out_buffer
        dd_out = square_grad(xp, x, dd_x, out=free)
    if wanted[0]:
        d_x = square_grad(xp, d_out, dd_x, out=d_x_buffer)
    return d_x, deliver(xp, dd_out, dd_out_buffer)


@kernel("rsqrt")
@widened
def rsqrt(xp, x, *, out=None):
    return xp.reciprocal(xp.sqrt(x), out=out)


@kernel("rsqrt_grad")
@widened
def rsqrt_grad(xp, result, d_out, *, out=None):
    # From the gradient on, as Paddle multiplies: a power of the result may overflow where the gradient is 0.
    return xp.multiply(-0.5 * d_out * result * result, result, out=out)


@kernel("reciprocal_grad")
@widened
def reciprocal_grad(xp, result, d_out, *, out=None):
    return xp.multiply(-d_out * result, result, out=out)


@kernel("pow")
def pow(xp, x, factor_tensor, *, factor, out=None):
    if x.dtype.kind == "f":
        return deliver(xp, xp.power(x, _factor(factor_tensor, factor, x.dtype)), out)
    number = factor if factor_tensor is None else float(factor_tensor.reshape(-1)[0])
    if not number.is_integer():
        raise ExecutionError(f"X holds integers ({x.dtype}), the power must be whole, got {number:g}")
    return deliver(xp, integer_power(xp, x, xp.asarray(int(number), np.int64)), out)


@kernel("pow_grad")
@widened
def pow_grad(xp, x, factor_tensor, d_out, *, factor, out=None):
    number = _factor(factor_tensor, factor, x.dtype)
    slope = number * xp.power(x, number - 1)
    slope = xp.where(xp.asarray(number == 0), x.dtype.type(0), slope)  # where x is 0, too
    return xp.multiply(slope, d_out, out=out)


def _factor(factor_tensor, factor, dtype) -> Any:
    """The power as an array without dimensions, of the type of the elements."""
    return dtype.type(factor) if factor_tensor is None else factor_tensor.reshape(()).astype(dtype)


@kernel("round")
def round(xp, x, *, out=None):
    """Round half away from zero. The fraction cut off is exact, while a sum with 0.5 may be rounded."""
    whole = xp.trunc(x)
    step = xp.copysign((xp.absolute(x - whole) >= 0.5).astype(x.dtype), x)
    return xp.add(whole, step, out=out)


def _zeros(xp, d_out, *, out=None):
    if out is None:
        return xp.zeros(d_out.shape, d_out.dtype)
    out.fill(0)
    return out


for _type in ("floor_grad", "ceil_grad", "round_grad"):
    kernel(_type)(_zeros)


@kernel("sin_grad")
def sin_grad(xp, x, d_out, *, out=None):
    return xp.multiply(d_out, xp.cos(x), out=out)


@kernel("cos_grad")
def cos_grad(xp, x, d_out, *, out=None):
    return xp.multiply(d_out, -xp.sin(x), out=out)


@kernel("asin_grad")
@widened
def asin_grad(xp, x, d_out, *, out=None):
    return xp.true_divide(d_out, xp.sqrt((1 - x) * (1 + x)), out=out)


@kernel("acos_grad")
@widened
def acos_grad(xp, x, d_out, *, out=None):
    return xp.true_divide(d_out, -xp.sqrt((1 - x) * (1 + x)), out=out)


@kernel("atan_grad")
@widened
def atan_grad(xp, x, d_out, *, out=None):
    return xp.true_divide(d_out, 1 + xp.square(x), out=out)


def log_of_one_plus_exp(xp, x) -> Any:
    """``log(1 + exp(x))``, without overflow."""
    if xp is not np and isinstance(xp, Primitives):
        return xp.log_of_one_plus_exp(x)
    y = xp.absolute(x)
    xp.negative(y, out=y)
    xp.exp(y, out=y)
    xp.log1p(y, out=y)
    y += at_least(xp, x, 0)
    return y


@kernel("softplus")
@widened
def softplus(xp, x, *, out=None):
    return deliver(xp, log_of_one_plus_exp(xp, x), out)


@kernel("softplus_grad")
@widened
def softplus_grad(xp, x, d_out, *, out=None):
    return xp.multiply(d_out, logistic(xp, x), out=out)


@kernel("logsigmoid")
@widened
def logsigmoid(xp, x, *, out=None):
    return xp.negative(log_of_one_plus_exp(xp, -x), out=out)


@kernel("logsigmoid_grad")
@widened
def logsigmoid_grad(xp, x, d_out, *, out=None):
    return xp.multiply(d_out, logistic(xp, -x), out=out)


@kernel("softsign")
@widened
def softsign(xp, x, *, out=None):
    result = x / (1 + xp.absolute(x))
    # inf / inf would be NaN.
    xp.copyto(result, xp.sign(x), where=xp.absolute(x) == math.inf)
    return deliver(xp, result, out)


@kernel("softsign_grad")
@widened
def softsign_grad(xp, x, d_out, *, out=None):
    return xp.multiply(d_out, xp.square(1 / (1 + xp.absolute(x))), out=out)


@kernel("swish")
@widened
def swish(xp, x, *, beta, out=None):
    share = logistic(xp, x if beta == 1 else beta * x)
    result = x * share
    xp.copyto(result, 0, where=share == 0)  # at -inf, too
    return deliver(xp, result, out)


@kernel("swish_grad")
@widened
def swish_grad(xp, x, d_out, *, beta, out=None):
    scaled = x if beta == 1 else beta * x
    share = logistic(xp, scaled)
    curve = share * (1 - share)
    term = scaled * curve
    xp.copyto(term, 0, where=curve == 0)  # at both infinities, too
    return xp.multiply(share + term, d_out, out=out)


@kernel("elu")
@widened
def elu(xp, x, *, alpha, out=None):
    # Only negative elements go through the exponential, so that none overflows; `expm1` is exact near 0.
    result = alpha * xp.expm1(xp.minimum(x, 0))
    xp.copyto(result, x, where=x > 0)
    return deliver(xp, result, out)


@kernel("elu_grad")
@widened
def elu_grad(xp, x, d_out, *, alpha, out=None):
    slope = alpha * xp.exp(xp.minimum(x, 0))
    xp.copyto(slope, 1, where=x > 0)
    return xp.multiply(slope, d_out, out=out)


@kernel("elu_grad_grad")
def elu_grad_grad(xp, x, d_out, dd_x, *, alpha, wanted, out=None):
    d_x_buffer, dd_out_buffer = out or (None, None)
    d_x = _bend_of_elu(xp, x, d_out, dd_x, alpha=alpha) if wanted[0] else None
    dd_out = elu_grad(xp, x, dd_x, alpha=alpha, out=dd_out_buffer) if wanted[1] else None
    return deliver(xp, d_x, d_x_buffer), dd_out


@widened
def _bend_of_elu(xp, x, d_out, dd_x, *, alpha, out=None):
    bend = alpha * xp.exp(xp.minimum(x, 0))
    xp.copyto(bend, 0, where=x > 0)
    bend *= d_out
    return xp.multiply(bend, dd_x, out=out)


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
        infinity = np.array(math.inf, x.dtype)
        return lambda x, out=None: x.clip(zero, infinity, out)
    maximum = np.maximum
    return lambda x, out=None: maximum(x, zero, out=out)


@specialize("relu_grad")
def _quicker_relu_grad(xp, result, d_out):
    """Offer a mask in the dtype of the gradient, which is faster for few elements."""
    if xp is not np or math.prod(result.shape) > 1024:
        return None
    zero, multiply, sign, fmax = np.zeros((), result.dtype), np.multiply, np.sign, np.fmax
    return lambda result, d_out, out=None: multiply(d_out, sign(fmax(result, zero)), out)
