"""Functions of one variable, element by element or along an axis."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ProgramError, caller_site
from minigraph.initializer import Constant
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, layer
from minigraph.layers.normalization import required
from minigraph.types import as_dtype


@layer
def relu(x: Variable, name: str | None = None) -> Variable:
    """``max(x, 0)``; the gradient at 0 is 0."""
    return LayerHelper("relu", name).unary("relu", {"X": check_floating(x, "relu: x")})


@layer
def sigmoid(x: Variable, name: str | None = None) -> Variable:
    """``1 / (1 + exp(-x))``, without overflow."""
    return LayerHelper("sigmoid", name).unary("sigmoid", {"X": check_floating(x, "sigmoid: x")})


@layer
def tanh(x: Variable, name: str | None = None) -> Variable:
    """Hyperbolic tangent."""
    return LayerHelper("tanh", name).unary("tanh", {"X": check_floating(x, "tanh: x")})


@layer
def exp(x: Variable, name: str | None = None) -> Variable:
    """``e ** x``."""
    return LayerHelper("exp", name).unary("exp", {"X": check_floating(x, "exp: x")})


@layer
def log(x: Variable, name: str | None = None) -> Variable:
    """Natural logarithm; -inf at 0, NaN below."""
    return LayerHelper("log", name).unary("log", {"X": check_floating(x, "log: x")})


@layer
def sqrt(x: Variable, name: str | None = None) -> Variable:
    """Square root; NaN below 0."""
    return LayerHelper("sqrt", name).unary("sqrt", {"X": check_floating(x, "sqrt: x")})


@layer
def square(x: Variable, name: str | None = None) -> Variable:
    """``x * x``."""
    return LayerHelper("square", name).unary("square", {"X": check_variable(x, "square: x")})


@layer
def abs(x: Variable, name: str | None = None) -> Variable:
    """``|x|``; the gradient at 0 is 0."""
    return LayerHelper("abs", name).unary("abs", {"X": check_variable(x, "abs: x")})


@layer
def sign(x: Variable) -> Variable:
    """-1, 0 or 1."""
    return LayerHelper("sign").unary("sign", {"X": check_floating(x, "sign: x")})


@layer
def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """``exp(x) / sum(exp(x))`` along `axis`, without overflow. `use_cudnn` changes nothing."""
    helper = LayerHelper("softmax", name)
    return helper.unary("softmax", {"X": check_floating(input, "softmax: input")}, axis=axis)


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
        input = helper.unary("cast", {"X": input}, in_dtype=int(input.dtype), out_dtype=int(as_dtype(dtype)))
    probability = helper.unary("softmax", {"X": input}, axis=-1 if axis is None else axis)
    return helper.unary("log", {"X": probability})


@layer
def rsqrt(x: Variable, name: str | None = None) -> Variable:
    """``1 / sqrt(x)``; infinite at 0, NaN below."""
    return LayerHelper("rsqrt", name).unary("rsqrt", {"X": check_floating(x, "rsqrt: x")})


@layer
def reciprocal(x: Variable, name: str | None = None) -> Variable:
    """``1 / x``."""
    return LayerHelper("reciprocal", name).unary("reciprocal", {"X": check_floating(x, "reciprocal: x")})


@layer
def floor(x: Variable, name: str | None = None) -> Variable:
    """The largest integer that is not above `x`; the gradient is 0."""
    return LayerHelper("floor", name).unary("floor", {"X": check_floating(x, "floor: x")})


@layer
def ceil(x: Variable, name: str | None = None) -> Variable:
    """The smallest integer that is not below `x`; the gradient is 0."""
    return LayerHelper("ceil", name).unary("ceil", {"X": check_floating(x, "ceil: x")})


@layer
def round(x: Variable, name: str | None = None) -> Variable:
    """The nearest integer, of two the one farther from 0; the gradient is 0."""
    return LayerHelper("round", name).unary("round", {"X": check_floating(x, "round: x")})


@layer
def sin(x: Variable, name: str | None = None) -> Variable:
    """Sine."""
    return LayerHelper("sin", name).unary("sin", {"X": check_floating(x, "sin: x")})


@layer
def cos(x: Variable, name: str | None = None) -> Variable:
    """Cosine."""
    return LayerHelper("cos", name).unary("cos", {"X": check_floating(x, "cos: x")})


@layer
def logsigmoid(x: Variable, name: str | None = None) -> Variable:
    """``log(sigmoid(x))``, without overflow."""
    return LayerHelper("logsigmoid", name).unary("logsigmoid", {"X": check_floating(x, "logsigmoid: x")})


@layer
def softplus(x: Variable, name: str | None = None) -> Variable:
    """``log(1 + exp(x))``, without overflow."""
    return LayerHelper("softplus", name).unary("softplus", {"X": check_floating(x, "softplus: x")})


@layer
def softsign(x: Variable, name: str | None = None) -> Variable:
    """``x / (1 + |x|)``."""
    return LayerHelper("softsign", name).unary("softsign", {"X": check_floating(x, "softsign: x")})


@layer
def erf(x: Variable) -> Variable:
    """Error function."""
    return LayerHelper("erf").unary("erf", {"X": check_floating(x, "erf: x")})


@layer
def gelu(x: Variable, approximate: bool = False) -> Variable:
    """``x * P(Z <= x)`` with Z standard normal; or by its approximation with tanh."""
    return LayerHelper("gelu").unary("gelu", {"X": check_floating(x, "gelu: x")}, approximate=approximate)


@layer
def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """``x ** factor``; a `factor` that is a Variable holds one number, and no gradient flows to it."""
    helper = LayerHelper("pow", name)
    inputs = {"X": check_variable(x, "pow: x")}
    if isinstance(factor, Variable):
        return helper.unary("pow", {**inputs, "FactorTensor": factor})
    return helper.unary("pow", inputs, factor=factor)


@layer
def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """``x * sigmoid(beta * x)``. Fluid's function does not heed `beta`."""
    return LayerHelper("swish", name).unary("swish", {"X": check_floating(x, "swish: x")}, beta=beta)


@layer
def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """`x` where it is positive, else ``alpha * (exp(x) - 1)``."""
    return LayerHelper("elu", name).unary("elu", {"X": check_floating(x, "elu: x")}, alpha=alpha)


@layer
def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """`x` where it is positive, else ``alpha * x``."""
    return LayerHelper("leaky_relu", name).unary("leaky_relu", {"X": check_floating(x, "leaky_relu: x")}, alpha=alpha)


@layer
def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """``min(max(x, 0), threshold)``."""
    return LayerHelper("relu6", name).unary("relu6", {"X": check_floating(x, "relu6: x")}, threshold=threshold)


@layer
def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """``min(max(slope * x + offset, 0), 1)``."""
    helper = LayerHelper("hard_sigmoid", name)
    return helper.unary("hard_sigmoid", {"X": check_floating(x, "hard_sigmoid: x")}, slope=slope, offset=offset)


@layer
def hard_swish(
    x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None
) -> Variable:
    """``x * min(max(x + offset, 0), threshold) / scale``."""
    helper = LayerHelper("hard_swish", name)
    inputs = {"X": check_floating(x, "hard_swish: x")}
    return helper.unary("hard_swish", inputs, threshold=threshold, scale=scale, offset=offset)


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
    made = helper.parameter(param_attr, _slopes_shape(x, mode), x.dtype, default_initializer=Constant(0.25))
    return helper.unary("prelu", {"X": x, "Alpha": required(made, "prelu: param_attr")}, mode=mode)


def _slopes_shape(x: Variable, mode: str) -> list[int]:
    assert x.shape is not None
    if mode not in ("all", "channel", "element"):
        raise ProgramError(f"prelu: mode must be all, channel or element, got {mode!r:.60}", site=caller_site())
    if mode == "channel" and len(x.shape) < 2:
        raise ProgramError(f"prelu: x must have at least 2 dimensions, got {x}", site=caller_site())
    # In fluid the shape of the slopes of channels has always four dimensions.
    shape = {"all": [1], "channel": [1, *x.shape[1:2], 1, 1], "element": [1, *x.shape[1:]]}[mode]
    if -1 in shape:
        raise ProgramError(f"prelu: the number of slopes for {x} is not known", site=caller_site())
    return shape


@layer
def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``log(1 + x)``, exact near 0 too; written to `out` if given."""
    helper = LayerHelper("log1p", name)
    result = helper.temporary() if out is None else out
    helper.append("log1p", {"X": check_floating(x, "log1p: x")}, {"Out": result})
    return result


@layer
def asin(x: Variable, name: str | None = None) -> Variable:
    """The angle whose sine is `x`; NaN beyond -1 and 1."""
    return LayerHelper("asin", name).unary("asin", {"X": check_floating(x, "asin: x")})


@layer
def acos(x: Variable, name: str | None = None) -> Variable:
    """The angle whose cosine is `x`; NaN beyond -1 and 1."""
    return LayerHelper("acos", name).unary("acos", {"X": check_floating(x, "acos: x")})


@layer
def atan(x: Variable, name: str | None = None) -> Variable:
    """The angle whose tangent is `x`."""
    return LayerHelper("atan", name).unary("atan", {"X": check_floating(x, "atan: x")})
