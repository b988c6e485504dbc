"""Gradients of sums, means, extremes and products over dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.types import DType, normalize_axis


@rewritten_as("mean_grad")
def _mean(g: Rewriting) -> Mapping[str, Any]:
    x = g["X"]
    count = g.cast(g.count(x, range(len(x.shape or ()))), x.dtype)
    return {"X@GRAD": g.mul(g.ones(x), g.div(g["Out@GRAD"], count))}


@rewritten_as("reduce_max_grad", "reduce_min_grad")
def _extreme(g: Rewriting) -> Mapping[str, Any]:
    """Every element that attains the extreme has the full gradient."""
    x, out = g["X"], g["Out"]
    attains = g.compare("equal", g.cast(x, out.dtype), _kept(g, out, out.dtype))
    return {"X@GRAD": g.mul(g.mask(attains, x), _kept(g, g["Out@GRAD"]))}


@rewritten_as("reduce_prod_grad")
def _product(g: Rewriting) -> Mapping[str, Any]:
    """The product of the others, also where an element is 0: of a matrix that has ones for the element itself."""
    x, axes = g["X"], _axes(g)
    rank = len(x.shape or ())
    order = [axis for axis in range(rank) if axis not in axes] + axes
    last = g.transpose(x, order)
    rows = g.emit("flatten2", X=last, axis=rank - len(axes))
    indices = g.emit("cumsum", X=g.emit("fill_any_like", X=rows, value=1.0, dtype=int(DType.INT64)), axis=1)
    down, across = g.emit("unsqueeze2", X=indices, axes=[2]), g.emit("unsqueeze2", X=indices, axes=[1])
    others = g.mask(g.compare("not_equal", down, across), x)
    factors = g.add(g.mul(others, g.emit("unsqueeze2", X=rows, axes=[1])), g.scale(others, -1.0, 1.0))
    products = g.emit("reduce_prod", X=factors, dim=[2])
    back = g.like(products, last.shape or (), last)
    return {"X@GRAD": g.mul(g.transpose(back, [order.index(i) for i in range(rank)]), _kept(g, g["Out@GRAD"]))}


def _axes(g: Rewriting) -> list[int]:
    """The dimensions of X that are reduced, in order."""
    rank = len(g["X"].shape or ())
    return list(range(rank)) if g.attr("reduce_all") else sorted(normalize_axis(axis, rank) for axis in g.attr("dim"))


def _kept(g: Rewriting, reduced: Variable, dtype: DType | None = None) -> Variable:
    """Result of a reduction in the type of X, with reduced dimensions kept as 1."""
    axes, rank = _axes(g), len(g["X"].shape or ())
    reduced = g.cast(reduced, dtype or g["X"].dtype)
    if len(reduced.shape or ()) == rank and (g.attr("keep_dim") or rank == 1):
        return reduced
    return g.like(reduced, (1,) * rank) if len(axes) == rank else g.emit("unsqueeze2", X=reduced, axes=axes)
