"""Gradients of activation functions with thresholds, and of others made of the common ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.activation import between, by_slope
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.support.shape_rules import soft_relu_ends
from minigraph.types import DType, normalize_axis


@by_slope("brelu_grad")
def _brelu(g: Rewriting) -> Variable:
    return g.mask(between(g, g["X"], g.attr("t_min"), g.attr("t_max")), g["X"])


@by_slope("soft_relu_grad")
def _soft_relu(g: Rewriting) -> Variable:
    ends = soft_relu_ends(g["Out"].dtype.numpy, g.attr("threshold"))
    inside = g.mask(between(g, g["Out"], *ends), g["Out"])
    return g.mul(g.scale(g.emit("exp", X=g.negative(g["Out"])), -1.0, 1.0), inside)


@by_slope("thresholded_relu_grad")
def _thresholded_relu(g: Rewriting) -> Variable:
    return g.mask(g.compare("greater_than", g["X"], g.attr("threshold")), g["X"])


def _beyond(g: Rewriting, threshold: float) -> Variable:
    above, below = g.compare("greater_than", g["X"], threshold), g.compare("less_than", g["X"], -threshold)
    return g.mask(g.emit("logical_or", X=above, Y=below), g["X"])


@by_slope("hard_shrink_grad")
def _hard_shrink(g: Rewriting) -> Variable:
    return _beyond(g, g.attr("threshold"))


@by_slope("softshrink_grad")
def _softshrink(g: Rewriting) -> Variable:
    return _beyond(g, g.attr("lambda"))


@by_slope("tanh_shrink_grad")
def _tanh_shrink(g: Rewriting) -> Variable:
    return g.square(g.emit("tanh", X=g["X"]))


@by_slope("stanh_grad")
def _stanh(g: Rewriting) -> Variable:
    curve = g.emit("tanh", X=g.scale(g["X"], g.attr("scale_a")))
    return g.scale(g.scale(g.square(curve), -1.0, 1.0), g.attr("scale_a") * g.attr("scale_b"))


@by_slope("selu_grad")
def _selu(g: Rewriting) -> Variable:
    out, scale = g["Out"], g.attr("scale")
    is_positive = g.compare("greater_than", out, 0.0)
    return g.where(is_positive, g.scale(g.ones(out), scale), g.scale(out, 1.0, scale * g.attr("alpha")))


@by_slope("mish_grad")
def _mish(g: Rewriting) -> Variable:
    x, threshold = g["X"], g.attr("threshold")
    is_above, is_below = g.compare("greater_than", x, threshold), g.compare("less_than", x, -threshold)
    small = g.emit("exp", X=g.emit("elementwise_min", X=x, Y=g.number(-threshold, x)))
    smooth = g.where(is_above, x, g.where(is_below, small, g.emit("softplus", X=x)))
    slope = g.where(is_above, g.ones(x), g.where(is_below, small, g.emit("sigmoid", X=x)))
    bent = g.emit("tanh", X=smooth)
    return g.add(bent, g.mul(g.mul(x, slope), g.scale(g.square(bent), -1.0, 1.0)))


@rewritten_as("maxout_grad")
def _maxout(g: Rewriting) -> Mapping[str, Any]:
    """The first of a group that is its largest gets all."""
    x, shape, groups = g["X"], g["X"].shape or (), g.attr("groups")
    at = normalize_axis(g.attr("axis"), len(shape))
    split = g.like(x, (*shape[:at], shape[at] // groups if shape[at] >= 0 else -1, groups, *shape[at + 1 :]))
    hits = g.cast(g.compare("equal", split, g.emit("unsqueeze2", X=g["Out"], axes=[at + 1])), DType.INT32)
    counted = g.emit("cumsum", X=hits, axis=at + 1)
    is_first = g.emit("elementwise_mul", X=hits, Y=g.cast(g.compare("equal", counted, 1), DType.INT32))
    chosen = g.constant(g.cast(is_first, x.dtype))
    return {"X@GRAD": g.like(g.mul(chosen, g.emit("unsqueeze2", X=g["Out@GRAD"], axes=[at + 1])), shape, x)}
