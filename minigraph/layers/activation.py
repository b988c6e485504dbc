"""Functions of one variable, element by element or along an axis."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable
from minigraph.types import as_dtype


def relu(x: Variable, name: str | None = None) -> Variable:
    """``max(x, 0)``; the gradient at 0 is 0."""
    return LayerHelper("relu", name).unary("relu", {"X": check_floating(x, "relu: x")})


def sigmoid(x: Variable, name: str | None = None) -> Variable:
    """``1 / (1 + exp(-x))``, without overflow."""
    return LayerHelper("sigmoid", name).unary("sigmoid", {"X": check_floating(x, "sigmoid: x")})


def tanh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic tangent."""
    return LayerHelper("tanh", name).unary("tanh", {"X": check_floating(x, "tanh: x")})


def exp(x: Variable, name: str | None = None) -> Variable:
    """``e ** x``."""
    return LayerHelper("exp", name).unary("exp", {"X": check_floating(x, "exp: x")})


def log(x: Variable, name: str | None = None) -> Variable:
    """Natural logarithm; -inf at 0, NaN below."""
    return LayerHelper("log", name).unary("log", {"X": check_floating(x, "log: x")})


def sqrt(x: Variable, name: str | None = None) -> Variable:
    """Square root; NaN below 0."""
    return LayerHelper("sqrt", name).unary("sqrt", {"X": check_floating(x, "sqrt: x")})


def square(x: Variable, name: str | None = None) -> Variable:
    """``x * x``."""
    return LayerHelper("square", name).unary("square", {"X": check_variable(x, "square: x")})


def abs(x: Variable, name: str | None = None) -> Variable:
    """``|x|``; the gradient at 0 is 0."""
    return LayerHelper("abs", name).unary("abs", {"X": check_variable(x, "abs: x")})


def sign(x: Variable) -> Variable:
    """-1, 0 or 1."""
    return LayerHelper("sign").unary("sign", {"X": check_floating(x, "sign: x")})


def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """``exp(x) / sum(exp(x))`` along `axis`, without overflow. `use_cudnn` changes nothing."""
    helper = LayerHelper("softmax", name)
    return helper.unary("softmax", {"X": check_floating(input, "softmax: input")}, axis=axis)


def log_softmax(
    input: Variable, axis: int | None = None, dtype: str | None = None, name: str | None = None
) -> Variable:
    """``log(softmax(input))`` along `axis` (default: the last), in `dtype` if given.

    As in fluid 1.8 these are the two operators softmax and log; the operator ``log_softmax`` does it without underflow.
    """
    helper = LayerHelper("log_softmax", name)
    check_floating(input, "log_softmax: input")
    if dtype is not None:
        input = helper.unary("cast", {"X": input}, in_dtype=int(input.dtype), out_dtype=int(as_dtype(dtype)))
    probability = helper.unary("softmax", {"X": input}, axis=-1 if axis is None else axis)
    return helper.unary("log", {"X": probability})
