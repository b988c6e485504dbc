"""Gradients of clipping by value and by norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.autodiff.decompositions.norm import Norm
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.types import DType, normalize_axis


@rewritten_as("guard_nonfinite_grad")
def _guard_nonfinite(g: Rewriting) -> Mapping[str, Any]:
    d_outs = g.all("Out@GRAD")
    if g.attr("policy") != "zero":
        return {"X@GRAD": d_outs}
    found = []
    for x, d_out in zip(g.all("X"), d_outs, strict=True):
        # The difference is NaN for infinities and NaN.
        is_finite = g.compare("equal", g.sub(x, x), 0.0)
        found.append(g.where(is_finite, d_out, g.zeros(d_out)))
    return {"X@GRAD": found}


@rewritten_as("clip_by_norm_grad")
def _clip_by_norm(g: Rewriting) -> Mapping[str, Any]:
    clipped = _Clipped(g, [g["X"]], None, 2.0, g.number(g.attr("max_norm"), g["X"]))
    return {"X@GRAD": clipped.d_xs([g["Out@GRAD"]])[0]}


@rewritten_as("clip_by_global_norm_grad")
def _clip_by_global_norm(g: Rewriting) -> Mapping[str, Any]:
    clipped = _Clipped(g, g.all("X"), None, g.attr("p"), g["ClipNorm"])
    d_outs = g.all("Out@GRAD")
    return {"X@GRAD": clipped.d_xs(d_outs, g["Norm@GRAD"]), "ClipNorm@GRAD": clipped.d_threshold(d_outs, g["ClipNorm"])}


@rewritten_as("clip_by_axis_norm_grad")
def _clip_by_axis_norm(g: Rewriting) -> Mapping[str, Any]:
    x, threshold = g["X"], g.given("MaxNorm")
    rank = len(x.shape or ())
    axes = sorted(normalize_axis(axis, rank) for axis in g.attr("axes")) or list(range(rank))
    limit = g.number(g.attr("max_norm"), x) if threshold is None else threshold
    clipped = _Clipped(g, [x], axes, g.attr("p"), limit)
    d_threshold = None if threshold is None else clipped.d_threshold([g["Out@GRAD"]], threshold)
    return {"X@GRAD": clipped.d_xs([g["Out@GRAD"]])[0], "MaxNorm@GRAD": d_threshold}


class _Clipped:
    """Tensors scaled down together to a norm n of at most c; everything is computed in float64.

    Up to the threshold ``dX = dOut`` and ``dc = 0``. Above it ``dc = sum(X * dOut) / n`` and
    ``dX = c / n * (dOut - dc * g)``, where g is the gradient of n.
    """

    def __init__(
        self, g: Rewriting, xs: Sequence[Variable], axes: Sequence[int] | None, p: float, threshold: Variable
    ) -> None:
        self._g, self._xs, self._norm = g, xs, Norm(g, xs, axes, p)
        rank = len(self._norm.value.shape or ())
        self._threshold = g.like(g.cast(threshold, DType.FP64), (1,) * rank)
        exceeds = g.compare("greater_than", self._norm.value, self._threshold)
        self._exceeds = g.mask(exceeds, self._norm.value)
        self._length = g.emit("elementwise_max", X=self._norm.value, Y=self._threshold)

    def _along(self, d_outs: Sequence[Variable]) -> Variable:
        """``dc``, or 0 where nothing is clipped."""
        g = self._g
        wide = [g.cast(d_out, DType.FP64) for d_out in d_outs]
        return g.mul(g.div(self._norm.dot(wide), self._length), self._exceeds)

    def d_xs(self, d_outs: Sequence[Variable], d_norm: Variable | None = None) -> list[Variable]:
        g = self._g
        along, slopes = self._along(d_outs), self._norm.slopes()
        factor = g.div(self._threshold, self._length)
        factor = g.add(g.mul(factor, self._exceeds), g.scale(self._exceeds, -1.0, 1.0))
        found = []
        for x, d_out, slope in zip(self._xs, d_outs, slopes, strict=True):
            d_x = g.mul(g.sub(g.cast(d_out, DType.FP64), g.mul(slope, along)), factor)
            if d_norm is not None:
                d_x = g.add(d_x, g.mul(slope, g.cast(d_norm, DType.FP64)))
            found.append(g.cast(d_x, x.dtype))
        return found

    def d_threshold(self, d_outs: Sequence[Variable], threshold: Variable) -> Variable:
        g = self._g
        return g.like(g.cast(g.total(self._along(d_outs)), threshold.dtype), threshold.shape or (), threshold)
