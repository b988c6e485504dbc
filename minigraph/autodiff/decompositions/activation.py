"""Gradients of activation functions for which `from_kernels` cannot run the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.types import DType, normalize_axis


@rewritten_as("floor_grad", "ceil_grad", "round_grad")
def _nothing(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.zeros(g["Out@GRAD"])}


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
    # The slope of the power 0 is 0 everywhere; the power 1 replaces x ** -1 there, because it is finite.
    exponent = g.add(factor, g.scale(g.mask(is_zero, factor), 2.0, -1.0))
    return {"X@GRAD": g.mul(d_out, g.mul(g.emit("pow", X=x, FactorTensor=exponent), factor))}


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


@rewritten_as("maxout_grad")
def _maxout(g: Rewriting) -> Mapping[str, Any]:
    """Give the gradient of a group to the first of its largest elements."""
    x, shape, groups = g["X"], g["X"].shape or (), g.attr("groups")
    at = normalize_axis(g.attr("axis"), len(shape))
    split = g.like(x, (*shape[:at], shape[at] // groups if shape[at] >= 0 else -1, groups, *shape[at + 1 :]))
    hits = g.cast(g.compare("equal", split, g.emit("unsqueeze2", X=g["Out"], axes=[at + 1])), DType.INT32)
    counted = g.emit("cumsum", X=hits, axis=at + 1)
    is_first = g.emit("elementwise_mul", X=hits, Y=g.cast(g.compare("equal", counted, 1), DType.INT32))
    chosen = g.constant(g.cast(is_first, x.dtype))
    return {"X@GRAD": g.like(g.mul(chosen, g.emit("unsqueeze2", X=g["Out@GRAD"], axes=[at + 1])), shape, x)}
