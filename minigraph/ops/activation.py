"""Functions of one variable, applied to each element."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import DoubleGrad, fused
from minigraph.ops.tensor import require_one_element
from minigraph.types import (
    TensorType,
    require,
    require_floating,
    require_number,
)


def _numeric(x: TensorType) -> TensorType:
    require_number(x)
    return x


def floating(x: TensorType) -> TensorType:
    require_floating(x)
    return x


@op("relu", inputs="X", outputs="Out", grad=fused("Out", grad=DoubleGrad()))
def relu(x: TensorType) -> TensorType:
    """Rectifier, ``Out = max(X, 0)``; the gradient at 0 is 0."""
    return floating(x)


@op("sigmoid", inputs="X", outputs="Out", grad=fused("Out"))
def sigmoid(x: TensorType) -> TensorType:
    """Logistic function, ``Out = 1 / (1 + exp(-X))``."""
    return floating(x)


@op("tanh", inputs="X", outputs="Out", grad=fused("Out"))
def tanh(x: TensorType) -> TensorType:
    """Hyperbolic tangent of X."""
    return floating(x)


@op("exp", inputs="X", outputs="Out", grad=fused("Out"))
def exp(x: TensorType) -> TensorType:
    """``Out = e ** X``; for integers cut to an integer."""
    return _numeric(x)


@op("log", inputs="X", outputs="Out", grad=fused("X"))
def log(x: TensorType) -> TensorType:
    """Natural logarithm of X."""
    return floating(x)


@op("log1p", inputs="X", outputs="Out", grad=fused("X"))
def log1p(x: TensorType) -> TensorType:
    """``Out = log(1 + X)``, exact near 0 too."""
    return floating(x)


@op("sqrt", inputs="X", outputs="Out", grad=fused("Out", grad=DoubleGrad()))
def sqrt(x: TensorType) -> TensorType:
    """Square root of X; the gradient at 0 is infinite."""
    return floating(x)


@op("abs", inputs="X", outputs="Out", grad=fused("X"))
def abs(x: TensorType) -> TensorType:
    """``Out = |X|``; the gradient at 0 is 0."""
    return _numeric(x)


@op("square", inputs="X", outputs="Out", grad=fused("X", grad=DoubleGrad()))
def square(x: TensorType) -> TensorType:
    """``Out = X ** 2``."""
    return _numeric(x)


def _sign_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("scale", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {"scale": 0.0})


@op("sign", inputs="X", outputs="Out", grad=_sign_grad)
def sign(x: TensorType) -> TensorType:
    """-1, 0 or 1 as X is negative, zero or positive; the gradient is 0."""
    return floating(x)


# Powers


@op("rsqrt", inputs="X", outputs="Out", grad=fused("Out"))
def rsqrt(x: TensorType) -> TensorType:
    """``Out = 1 / sqrt(X)``; infinite at 0."""
    return floating(x)


@op("reciprocal", inputs="X", outputs="Out", grad=fused("Out"))
def reciprocal(x: TensorType) -> TensorType:
    """``Out = 1 / X``."""
    return floating(x)


@op("pow", inputs="X FactorTensor", outputs="Out", grad=fused("X", "FactorTensor"))
def pow(x: TensorType, factor_tensor: TensorType | None, *, factor: float = 1.0) -> TensorType:
    """``Out = X ** factor``; FactorTensor, of one element, takes the place of `factor`.

    Integers have whole powers only; a negative one is cut to an integer, as in ``elementwise_pow``. The gradient for
    the power 0 is 0, also where X is 0.

    Notes
    -----
    Fluid cuts the power itself to an integer where X holds integers, so that the power 0.5 is 0.
    """
    _numeric(x)
    if factor_tensor is not None:
        require_one_element(factor_tensor, "FactorTensor")
    else:
        require(
            x.dtype.is_floating or factor.is_integer(),
            f"X holds integers ({x.dtype}), the power must be whole, got {factor:g}",
            hint="Convert X with layers.cast.",
        )
    return x


# Rounding


@op("floor", inputs="X", outputs="Out", grad=fused())
def floor(x: TensorType) -> TensorType:
    """The largest integer that is not above X; the gradient is 0."""
    return floating(x)


@op("ceil", inputs="X", outputs="Out", grad=fused())
def ceil(x: TensorType) -> TensorType:
    """The smallest integer that is not below X; the gradient is 0."""
    return floating(x)


@op("round", inputs="X", outputs="Out", grad=fused())
def round(x: TensorType) -> TensorType:
    """The integer nearest to X, of two the one farther from 0; the gradient is 0.

    Notes
    -----
    Fluid takes the even one of two for some elements of a longer array.
    """
    return floating(x)


# Trigonometry


@op("sin", inputs="X", outputs="Out", grad=fused("X"))
def sin(x: TensorType) -> TensorType:
    """Sine of X."""
    return floating(x)


@op("cos", inputs="X", outputs="Out", grad=fused("X"))
def cos(x: TensorType) -> TensorType:
    """Cosine of X."""
    return floating(x)


@op("asin", inputs="X", outputs="Out", grad=fused("X"))
def asin(x: TensorType) -> TensorType:
    """The angle whose sine is X, in [-pi/2, pi/2]; NaN beyond -1 and 1, where the gradient is infinite."""
    return floating(x)


@op("acos", inputs="X", outputs="Out", grad=fused("X"))
def acos(x: TensorType) -> TensorType:
    """The angle whose cosine is X, in [0, pi]; NaN beyond -1 and 1, where the gradient is infinite."""
    return floating(x)


@op("atan", inputs="X", outputs="Out", grad=fused("X"))
def atan(x: TensorType) -> TensorType:
    """The angle whose tangent is X, in (-pi/2, pi/2)."""
    return floating(x)


# Smooth activations


@op("logsigmoid", inputs="X", outputs="Out", grad=fused("X"))
def logsigmoid(x: TensorType) -> TensorType:
    """Logarithm of the logistic function, ``Out = -log(1 + exp(-X))``, without overflow."""
    return floating(x)


@op("softplus", inputs="X", outputs="Out", grad=fused("X"))
def softplus(x: TensorType) -> TensorType:
    """Smooth rectifier, ``Out = log(1 + exp(X))``, without overflow."""
    return floating(x)


@op("softsign", inputs="X", outputs="Out", grad=fused("X"))
def softsign(x: TensorType) -> TensorType:
    """``Out = X / (1 + |X|)``; 1 and -1 at the infinities."""
    return floating(x)


@op("swish", inputs="X", outputs="Out", grad=fused("X"))
def swish(x: TensorType, *, beta: float = 1.0) -> TensorType:
    """``Out = X * sigmoid(beta * X)``.

    References
    ----------
    P. Ramachandran, B. Zoph and Q. V. Le, Searching for activation functions, arXiv:1710.05941, 2017.
    """
    return floating(x)


@op("elu", inputs="X", outputs="Out", grad=fused("X", grad=DoubleGrad()))
def elu(x: TensorType, *, alpha: float = 1.0) -> TensorType:
    """Exponential linear unit: X where it is positive, else ``alpha * (exp(X) - 1)``.

    Notes
    -----
    Fluid computes something else where `alpha` is negative, and has the gradient NaN where exp(X) overflows.

    References
    ----------
    D.-A. Clevert, T. Unterthiner and S. Hochreiter, Fast and accurate deep network learning by exponential linear units
    (ELUs), ICLR 2016.
    """
    return floating(x)
