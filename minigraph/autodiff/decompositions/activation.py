"""Gradients of functions of one element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable

Slope = Callable[[Rewriting], Variable]


def by_slope(*types: str) -> Callable[[Slope], Slope]:
    """Register a function that gives what the gradient of Out is multiplied by."""

    def decorate(slope: Slope) -> Slope:
        rewritten_as(*types)(lambda g: {"X@GRAD": g.mul(g["Out@GRAD"], slope(g))})
        return slope

    return decorate


@rewritten_as("floor_grad", "ceil_grad", "round_grad")
def _nothing(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.zeros(g["Out@GRAD"])}


# Smooth functions


@by_slope("tanh_grad")
def _tanh(g: Rewriting) -> Variable:
    return g.scale(g.square(g["Out"]), -1.0, 1.0)


@by_slope("sigmoid_grad")
def _sigmoid(g: Rewriting) -> Variable:
    return g.mul(g["Out"], g.scale(g["Out"], -1.0, 1.0))


@by_slope("exp_grad")
def _exp(g: Rewriting) -> Variable:
    return g["Out"]


@rewritten_as("log_grad")
def _log(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.div(g["Out@GRAD"], g["X"])}


@by_slope("rsqrt_grad")
def _rsqrt(g: Rewriting) -> Variable:
    return g.scale(g.mul(g.square(g["Out"]), g["Out"]), -0.5)


@by_slope("reciprocal_grad")
def _reciprocal(g: Rewriting) -> Variable:
    return g.negative(g.square(g["Out"]))


@rewritten_as("pow_grad")
def _pow(g: Rewriting) -> Mapping[str, Any]:
    x, d_out, factor = g["X"], g["Out@GRAD"], g.given("FactorTensor")
    if factor is None:
        number = g.attr("factor")
        if number == 0:
            return {"X@GRAD": g.zeros(x)}
        return {"X@GRAD": g.mul(d_out, g.scale(g.power(x, number - 1), number))}
    factor = g.cast(g.like(factor, (1,)), x.dtype)
    is_zero = g.compare("equal", factor, 0.0)
    # The slope of the power 0 is 0 everywhere; there the power 1 stands in, which is finite.
    exponent = g.add(factor, g.scale(g.mask(is_zero, factor), 2.0, -1.0))
    return {"X@GRAD": g.mul(d_out, g.mul(g.emit("pow", X=x, FactorTensor=exponent), factor))}


@by_slope("sin_grad")
def _sin(g: Rewriting) -> Variable:
    return g.emit("cos", X=g["X"])


@by_slope("cos_grad")
def _cos(g: Rewriting) -> Variable:
    return g.negative(g.emit("sin", X=g["X"]))


@rewritten_as("log1p_grad")
def _log1p(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.div(g["Out@GRAD"], g.scale(g["X"], 1.0, 1.0))}


def _arc(g: Rewriting) -> Variable:
    """``1 / sqrt(1 - x ** 2)``."""
    return g.emit("rsqrt", X=g.scale(g.square(g["X"]), -1.0, 1.0))


@by_slope("asin_grad")
def _asin(g: Rewriting) -> Variable:
    return _arc(g)


@by_slope("acos_grad")
def _acos(g: Rewriting) -> Variable:
    return g.negative(_arc(g))


@by_slope("atan_grad")
def _atan(g: Rewriting) -> Variable:
    return g.emit("reciprocal", X=g.scale(g.square(g["X"]), 1.0, 1.0))


@by_slope("softplus_grad")
def _softplus(g: Rewriting) -> Variable:
    return g.emit("sigmoid", X=g["X"])


@by_slope("logsigmoid_grad")
def _logsigmoid(g: Rewriting) -> Variable:
    return g.emit("sigmoid", X=g.negative(g["X"]))


@by_slope("softsign_grad")
def _softsign(g: Rewriting) -> Variable:
    return g.square(g.emit("reciprocal", X=g.scale(g.emit("abs", X=g["X"]), 1.0, 1.0)))


@by_slope("swish_grad")
def _swish(g: Rewriting) -> Variable:
    scaled = g.scale(g["X"], g.attr("beta"))
    share = g.emit("sigmoid", X=scaled)
    return g.add(share, g.mul(scaled, g.mul(share, g.scale(share, -1.0, 1.0))))


@by_slope("erf_grad")
def _erf(g: Rewriting) -> Variable:
    return g.scale(_bell(g, g["X"], 1.0), 2 / math.sqrt(math.pi))


def _bell(g: Rewriting, x: Variable, width: float) -> Variable:
    """``exp(-width * x ** 2)``."""
    return g.emit("exp", X=g.scale(g.square(x), -width))


@by_slope("gelu_grad")
def _gelu(g: Rewriting) -> Variable:
    x = g["X"]
    if not g.attr("approximate"):
        share = g.scale(g.emit("erf", X=g.scale(x, math.sqrt(0.5))), 0.5, 0.5)
        return g.add(share, g.scale(g.mul(x, _bell(g, x, 0.5)), 1 / math.sqrt(2 * math.pi)))
    factor, square = math.sqrt(2 / math.pi), g.square(x)
    curve = g.emit("tanh", X=g.mul(x, g.scale(square, 0.044715 * factor, factor)))
    slope = g.mul(g.scale(g.square(curve), -1.0, 1.0), g.scale(square, 3 * 0.044715 * factor, factor))
    return g.scale(g.add(g.mul(x, slope), g.scale(curve, 1.0, 1.0)), 0.5)


# Functions of several pieces


@by_slope("abs_grad")
def _abs(g: Rewriting) -> Variable:
    return g.sign(g["X"])


def between(g: Rewriting, x: Variable, low: Variable | float, high: Variable | float) -> Variable:
    """Where ``low < x < high``."""
    above, below = g.compare("greater_than", x, low), g.compare("less_than", x, high)
    return g.emit("logical_and", X=above, Y=below)


@by_slope("relu6_grad")
def _relu6(g: Rewriting) -> Variable:
    return g.mask(between(g, g["Out"], 0.0, g.attr("threshold")), g["Out"])


@by_slope("hard_sigmoid_grad")
def _hard_sigmoid(g: Rewriting) -> Variable:
    return g.scale(g.mask(between(g, g["Out"], 0.0, 1.0), g["Out"]), g.attr("slope"))


@by_slope("hard_swish_grad")
def _hard_swish(g: Rewriting) -> Variable:
    x, scale, offset = g["X"], g.attr("scale"), g.attr("offset")
    end = g.attr("threshold") - offset
    steady = g.scale(g.mask(g.compare("greater_equal", x, end), x), g.attr("threshold") / scale)
    inner = g.scale(x, 2 / scale, offset / scale)
    return g.where(between(g, x, -offset, end), inner, steady)


@rewritten_as("prelu_grad")
def _prelu(g: Rewriting) -> Mapping[str, Any]:
    x, alpha, d_out = g["X"], g["Alpha"], g["Out@GRAD"]
    shape, own = x.shape or (), alpha.shape or ()
    over = own
    if g.attr("mode") == "all":
        over = (1,) * len(shape)
    elif g.attr("mode") == "channel":
        over = (1, shape[1], *(1 for _ in shape[2:]))
    is_positive = g.compare("greater_than", x, 0.0)
    results: dict[str, Any] = {"X@GRAD": None, "Alpha@GRAD": None}
    if g.wants("X@GRAD"):
        results["X@GRAD"] = g.where(is_positive, d_out, g.mul(d_out, g.like(alpha, over, alpha)))
    if g.wants("Alpha@GRAD"):
        parts = g.where(is_positive, g.zeros(x), g.mul(x, d_out))
        axes = [i for i, (size, have) in enumerate(zip(over, shape, strict=True)) if size == 1 and have != 1]
        results["Alpha@GRAD"] = g.like(g.sum(parts, axes, keep=True) if axes else parts, own, alpha)
    return results


@rewritten_as("dropout_grad")
def _dropout(g: Rewriting) -> Mapping[str, Any]:
    d_out, p = g["Out@GRAD"], g.attr("dropout_prob")
    scales_up = g.attr("dropout_implementation") == "upscale_in_train"
    if g.attr("is_test"):
        return {"X@GRAD": d_out if scales_up else g.scale(d_out, 1 - p)}
    kept = g.emit("cast", X=g["Mask"], in_dtype=int(g["Mask"].dtype), out_dtype=int(d_out.dtype), stop_gradient=True)
    return {"X@GRAD": g.scale(g.mul(d_out, kept), 1 / (1 - p) if scales_up and p < 1 else 1.0)}
