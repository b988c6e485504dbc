"""Functions of one variable, applied to each element."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import GradContext, OpSpec, fused, op
from minigraph.types import DType, TensorType, require, require_floating


def _numeric(x: TensorType) -> TensorType:
    require(x.dtype is not DType.BOOL, "X must be a number, got bool", hint="Convert it with layers.cast.")
    return x


def _floating(x: TensorType) -> TensorType:
    require_floating(x)
    return x


@op("relu", inputs="X", outputs="Out", grad=fused("Out"))
def relu(x: TensorType) -> TensorType:
    """Rectifier, ``Out = max(X, 0)``; the gradient at 0 is 0."""
    return _floating(x)


@op("sigmoid", inputs="X", outputs="Out", grad=fused("Out"))
def sigmoid(x: TensorType) -> TensorType:
    """Logistic function, ``Out = 1 / (1 + exp(-X))``."""
    return _floating(x)


@op("tanh", inputs="X", outputs="Out", grad=fused("Out"))
def tanh(x: TensorType) -> TensorType:
    """Hyperbolic tangent of X."""
    return _floating(x)


@op("exp", inputs="X", outputs="Out", grad=fused("Out"))
def exp(x: TensorType) -> TensorType:
    """``Out = e ** X``; for integers cut to an integer."""
    return _numeric(x)


@op("log", inputs="X", outputs="Out", grad=fused("X"))
def log(x: TensorType) -> TensorType:
    """Natural logarithm of X."""
    return _floating(x)


@op("sqrt", inputs="X", outputs="Out", grad=fused("Out"))
def sqrt(x: TensorType) -> TensorType:
    """Square root of X; the gradient at 0 is infinite."""
    return _floating(x)


@op("abs", inputs="X", outputs="Out", grad=fused("X"))
def abs(x: TensorType) -> TensorType:
    """``Out = |X|``; the gradient at 0 is 0."""
    return _numeric(x)


@op("square", inputs="X", outputs="Out", grad=fused("X"))
def square(x: TensorType) -> TensorType:
    """``Out = X ** 2``."""
    return _numeric(x)


def _sign_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("scale", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {"scale": 0.0})


@op("sign", inputs="X", outputs="Out", grad=_sign_grad)
def sign(x: TensorType) -> TensorType:
    """-1, 0 or 1 as X is negative, zero or positive; the gradient is 0."""
    return _floating(x)
