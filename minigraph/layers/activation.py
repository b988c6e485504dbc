"""Functions of one variable, element by element or along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from minigraph.errors import ProgramError, warn
from minigraph.initializer import Constant
from minigraph.ir import Variable
from minigraph.layer_helper import (
    LayerHelper,
    check_floating,
    check_variable,
    emit,
    input_or_attr,
    layer,
    layer_called,
    one_of,
)
from minigraph.layers.tensor import assign
from minigraph.types import DType, as_dtype

__all__ = [
    "abs", "acos", "asin", "atan", "brelu", "ceil", "cos", "elu", "erf", "exp", "floor", "gelu", "hard_shrink",
    "hard_sigmoid", "hard_swish", "leaky_relu", "log", "log1p", "log_softmax", "logsigmoid", "maxout", "mish", "pow",
    "prelu", "reciprocal", "relu", "relu6", "round", "rsqrt", "selu", "sigmoid", "sign", "sin", "soft_relu", "softmax",
    "softplus", "softshrink", "softsign", "sqrt", "square", "stanh", "swish", "tanh", "tanh_shrink", "thresholded_relu",
]  # fmt: skip


class Unary(Protocol):
    def __call__(self, x: Variable, name: str | None = None) -> Variable: ...


def _unary(op_type: str, formula: str, check: Callable[[Any, str], Variable] = check_floating) -> Unary:
    @layer_called(op_type, formula)
    def unary(x: Variable, name: str | None = None) -> Variable:
        return emit(op_type, name, X=check(x, f"{op_type}: x"))

    return unary


def _cut_or_floating(x: Any, what: str) -> Variable:
    """`x`, if it is a floating-point Variable or, with a warning, one of integers."""
    if check_variable(x, what).dtype in (DType.INT32, DType.INT64):
        warn(f"{what} is {x.dtype}, and so is the result: e is cut to 2. Convert x with layers.cast", registry=_WARNED)
        return x
    return check_floating(x, what)


_WARNED: dict[Any, Any] = {}

relu = _unary("relu", "``max(x, 0)``; the gradient at 0 is 0.")
sigmoid = _unary("sigmoid", "``1 / (1 + exp(-x))``, without overflow.")
tanh = _unary("tanh", "Hyperbolic tangent.")
exp = _unary("exp", "``e ** x``.", _cut_or_floating)
log = _unary("log", "Natural logarithm; -inf at 0, NaN below.")
sqrt = _unary("sqrt", "Square root; NaN below 0.")
rsqrt = _unary("rsqrt", "``1 / sqrt(x)``; infinite at 0, NaN below.")
square = _unary("square", "``x * x``.", check_variable)
abs = _unary("abs", "``|x|``; the gradient at 0 is 0.", check_variable)
reciprocal = _unary("reciprocal", "``1 / x``.")
floor = _unary("floor", "The largest integer that is not above `x`; the gradient is 0.")
ceil = _unary("ceil", "The smallest integer that is not below `x`; the gradient is 0.")
round = _unary("round", "The nearest integer, of two the one farther from 0; the gradient is 0.")
sin = _unary("sin", "Sine.")
cos = _unary("cos", "Cosine.")
asin = _unary("asin", "The angle whose sine is `x`; NaN beyond -1 and 1.")
acos = _unary("acos", "The angle whose cosine is `x`; NaN beyond -1 and 1.")
atan = _unary("atan", "The angle whose tangent is `x`.")
logsigmoid = _unary("logsigmoid", "``log(sigmoid(x))``, without overflow.")
softplus = _unary("softplus", "``log(1 + exp(x))``, without overflow.")
softsign = _unary("softsign", "``x / (1 + |x|)``.")


@layer
def sign(x: Variable | np.ndarray[Any, Any]) -> Variable:
    """-1, 0 or 1, also of an array."""
    return _activation("sign", assign(x) if isinstance(x, np.ndarray) else x)


@layer
def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """``exp(x) / sum(exp(x))`` along `axis`, without overflow. `use_cudnn` changes nothing."""
    return emit("softmax", name, X=check_floating(input, "softmax: input"), axis=axis)


@layer
def log_softmax(
    input: Variable, axis: int | None = None, dtype: str | None = None, name: str | None = None
) -> Variable:
    """``log(softmax(input))`` along `axis` (default: the last), in `dtype` if given.

    As in fluid 1.8 these are the two operators softmax and log; the operator ``log_softmax`` does it without underflow.
    """
    helper = LayerHelper("log_softmax", name)
    check_floating(input, "log_softmax: input")
    if dtype is not None:
        input = helper.emit("cast", X=input, in_dtype=int(input.dtype), out_dtype=int(as_dtype(dtype)))
    return helper.emit("log", X=helper.emit("softmax", X=input, axis=-1 if axis is None else axis))


@layer
def erf(x: Variable) -> Variable:
    """Error function."""
    return _activation("erf", x)


@layer
def gelu(x: Variable, approximate: bool = False) -> Variable:
    """``x * P(Z <= x)`` with Z standard normal; or by its approximation with tanh."""
    return _activation("gelu", one_of(x), approximate=approximate)


@layer
def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """``x ** factor``; a `factor` that is a Variable holds one number, and no gradient flows to it."""
    return emit("pow", name, X=x, **input_or_attr(factor, "FactorTensor", "factor"))


@layer
def swish(x: Variable, beta: float | Variable = 1.0, name: str | None = None) -> Variable:
    """``x * sigmoid(beta * x)``. Fluid's function ignores `beta`. A variable may be learned, and broadcasts to `x`."""
    if isinstance(beta, Variable):
        check_floating(x, "swish: x")
        return emit("elementwise_mul", name, X=x, Y=sigmoid(x * beta))
    return _activation("swish", x, name, beta=beta)


@layer
def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """`x` where it is positive, else ``alpha * (exp(x) - 1)``."""
    return _activation("elu", x, name, alpha=alpha)


@layer
def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """`x` where it is positive, else ``alpha * x``."""
    return _activation("leaky_relu", x, name, alpha=alpha)


@layer
def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """``min(max(x, 0), threshold)``."""
    return _activation("relu6", x, name, threshold=threshold)


@layer
def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """``min(max(slope * x + offset, 0), 1)``."""
    return _activation("hard_sigmoid", x, name, slope=slope, offset=offset)


@layer
def hard_swish(
    x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None
) -> Variable:
    """``x * min(max(x + offset, 0), threshold) / scale``."""
    return _activation("hard_swish", x, name, threshold=threshold, scale=scale, offset=offset)


@layer
def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """`x` where it is positive, else ``alpha * x`` with learned slopes, which start at 0.25.

    Parameters
    ----------
    mode : str
        One slope for everything ('all'), for each index of dimension 1 ('channel') or for each element of a sample
        ('element').

    Raises
    ------
    ProgramError
        If `mode` is another word, a dimension that counts the slopes is not known, or `param_attr` is False.

    References
    ----------
    K. He, X. Zhang, S. Ren and J. Sun, Delving deep into rectifiers, ICCV 2015.
    """
    check_floating(x, "prelu: x")
    helper = LayerHelper("prelu", name)
    slopes = helper.required(param_attr, _slopes_shape(x, mode), x.dtype, default_initializer=Constant(0.25))
    return helper.emit("prelu", X=x, Alpha=slopes, mode=mode)


def _slopes_shape(x: Variable, mode: str) -> list[int]:
    assert x.shape is not None
    if mode not in ("all", "channel", "element"):
        raise ProgramError(f"prelu: mode must be all, channel or element, got {mode!r:.60}")
    if mode == "channel" and len(x.shape) < 2:
        raise ProgramError(f"prelu: x must have at least 2 dimensions, got {x}")
    # In fluid the shape of the slopes of channels has always four dimensions.
    shape = {"all": [1], "channel": [1, *x.shape[1:2], 1, 1], "element": [1, *x.shape[1:]]}[mode]
    if -1 in shape:
        raise ProgramError(f"prelu: the number of slopes for {x} is not known")
    return shape


@layer
def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``log(1 + x)``, exact near 0 too; written to `out` if given."""
    return _activation("log1p", x, name, into=out)


def _activation(op_type: str, x: Variable, name: str | None = None, /, **attrs: Any) -> Variable:
    """The operator `op_type` on `x`; attributes that are None keep their defaults."""
    return emit(op_type, name, X=check_floating(x, f"{op_type}: x"), **attrs)


@layer
def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """``min(max(x, t_min), t_max)``."""
    return _activation("brelu", x, name, t_min=t_min, t_max=t_max)


@layer
def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """``log(1 + exp(min(max(x, -threshold), threshold)))``."""
    return _activation("soft_relu", x, name, threshold=threshold)


@layer
def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """`x` where it is above `threshold` (None: 1), else 0."""
    return _activation("thresholded_relu", x, threshold=threshold)


@layer
def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """`x` where its magnitude is above `threshold` (None: 0.5), else 0."""
    return _activation("hard_shrink", x, threshold=threshold)


@layer
def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """`x` moved toward 0 by `alpha` (None: 0.5), and 0 where it is no farther from 0 than that."""
    # `lambda` is a word of Python's.
    return _activation("softshrink", x, None, **{"lambda": alpha})


@layer
def tanh_shrink(x: Variable, name: str | None = None) -> Variable:
    """``x - tanh(x)``."""
    return _activation("tanh_shrink", x, name)


@layer
def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """``scale_b * tanh(scale_a * x)``."""
    return _activation("stanh", x, name, scale_a=scale_a, scale_b=scale_b)


@layer
def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """``scale * x`` where `x` is positive, else ``scale * alpha * (exp(x) - 1)``.

    With the defaults activations keep mean 0 and variance 1 through a deep network.

    References
    ----------
    G. Klambauer, T. Unterthiner, A. Mayr and S. Hochreiter, Self-normalizing neural networks, NIPS 2017.
    """
    return _activation("selu", x, name, scale=scale, alpha=alpha)


@layer
def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """``x * tanh(log(1 + exp(x)))``; the logarithm is `x` above `threshold` and ``exp(x)`` below ``-threshold``."""
    return _activation("mish", x, name, threshold=float(threshold))


@layer
def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The largest of each `groups` channels that follow one another along `axis`."""
    return _activation("maxout", x, name, groups=groups, axis=axis)
