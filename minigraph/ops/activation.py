"""Functions of one variable, applied to each element."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


def _define(
    type: str, reads: str, doc: str, infer: Callable[[TensorType], TensorType] = floating, double: bool = False
) -> None:
    """Define a function of each element without attributes.

    Parameters
    ----------
    reads : str
        The slots that the gradient reads, X or Out.
    double : bool
        Whether the gradient of the gradient is an operator too.
    """
    grad = fused(*reads.split(), grad=DoubleGrad() if double else None)
    op(type, inputs="X", outputs="Out", lod="X", grad=grad, doc=doc)(infer)


_define("relu", "Out", "Rectifier, ``Out = max(X, 0)``; the gradient at 0 is 0.", double=True)
_define("sigmoid", "Out", "Logistic function, ``Out = 1 / (1 + exp(-X))``.")
_define("tanh", "Out", "Hyperbolic tangent of X.")
_define("exp", "Out", "``Out = e ** X``; for integers cut to an integer.", infer=_numeric)
_define("log", "X", "Natural logarithm of X.")
_define("log1p", "X", "``Out = log(1 + X)``, exact near 0 too.")
_define("sqrt", "Out", "Square root of X; the gradient at 0 is infinite.", double=True)
_define("abs", "X", "``Out = |X|``; the gradient at 0 is 0.", infer=_numeric)
_define("square", "X", "``Out = X ** 2``.", infer=_numeric, double=True)


def _sign_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("scale", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {"scale": 0.0})


@op("sign", inputs="X", outputs="Out", lod="X", grad=_sign_grad)
def sign(x: TensorType) -> TensorType:
    """-1, 0 or 1 as X is negative, zero or positive; the gradient is 0."""
    return floating(x)


# Powers

_define("rsqrt", "Out", "``Out = 1 / sqrt(X)``; infinite at 0.")
_define("reciprocal", "Out", "``Out = 1 / X``.")


@op("pow", inputs="X FactorTensor", outputs="Out", lod="X", grad=fused("X", "FactorTensor"))
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

_define("floor", "", "The largest integer that is not above X; the gradient is 0.")
_define("ceil", "", "The smallest integer that is not below X; the gradient is 0.")
_define(
    "round", "",
    """The nearest integer, halves away from 0; the gradient is 0.

    Notes
    -----
    Fluid takes the even one of two for some elements of a longer array.
    """,
)  # fmt: skip

# Trigonometry

_define("sin", "X", "Sine of X.")
_define("cos", "X", "Cosine of X.")
_define(
    "asin", "X",
    "The angle whose sine is X, in [-pi/2, pi/2]; NaN beyond -1 and 1, where the gradient is infinite.",
)  # fmt: skip
_define(
    "acos", "X",
    "The angle whose cosine is X, in [0, pi]; NaN beyond -1 and 1, where the gradient is infinite.",
)  # fmt: skip
_define("atan", "X", "The angle whose tangent is X, in (-pi/2, pi/2).")

# Smooth activations

_define("logsigmoid", "X", "Logarithm of the logistic function, ``Out = -log(1 + exp(-X))``, without overflow.")
_define("softplus", "X", "Smooth rectifier, ``Out = log(1 + exp(X))``, without overflow.")
_define("softsign", "X", "``Out = X / (1 + |X|)``; 1 and -1 at the infinities.")


@op("swish", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def swish(x: TensorType, *, beta: float = 1.0) -> TensorType:
    """``Out = X * sigmoid(beta * X)``.

    References
    ----------
    P. Ramachandran, B. Zoph and Q. V. Le, Searching for activation functions, arXiv:1710.05941, 2017.
    """
    return floating(x)


@op("elu", inputs="X", outputs="Out", lod="X", grad=fused("X", grad=DoubleGrad()))
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
