"""Gradients of operators that select elements by index. Other such operators are linear and need no rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.types import DType, normalize_axis


@rewritten_as("scatter_grad")
def _scatter(g: Rewriting) -> Mapping[str, Any]:
    d_out = g["Out@GRAD"]
    picked = g.emit("gather", X=d_out, Index=g["Ids"], overwrite=False) if g.wants("Updates@GRAD") else None
    return {"X@GRAD": d_out, "Updates@GRAD": picked}


@rewritten_as("argsort_grad", "top_k_grad")
def _sorted(g: Rewriting) -> Mapping[str, Any]:
    """Scatter each element back to its position before sorting, which Indices holds."""
    x, indices, d_out = g["X"], g["Indices"], g["Out@GRAD"]
    rank = len(x.shape or ())
    axis = normalize_axis(g.attr("axis"), rank) if g.op.type == "argsort_grad" else rank - 1
    order = [i for i in range(rank) if i != axis] + [axis]
    last = g.transpose(g.cast(indices, DType.INT64), order)
    rows = g.emit("flatten2", X=last, axis=rank - 1)
    # A running count of ones, because the number of rows may be unknown.
    row_numbers = g.emit("cumsum", X=_int_ones(g, rows), axis=0, exclusive=True)
    size = g.dim(x, axis)
    width = g.cast(size, DType.INT64) if isinstance(size, Variable) else g.number(size, last)
    places = g.like(g.add(g.mul(row_numbers, width), rows), (-1,))
    zeros = g.zeros(g.transpose(x, order))
    flat = g.emit(
        "scatter", X=g.like(zeros, (-1,)), Ids=places, Updates=g.like(g.transpose(d_out, order), (-1,)), overwrite=True
    )  # fmt: skip
    back = g.like(flat, zeros.shape or (), zeros)
    return {"X@GRAD": g.transpose(back, [order.index(i) for i in range(rank)])}


@rewritten_as("max_pool2d_with_index_grad", "max_pool3d_with_index_grad")
def _greatest(g: Rewriting) -> Mapping[str, Any]:
    """Add the gradient of each maximum at its place in the image, which Mask holds."""
    x, mask, d_out = g["X"], g["Mask"], g["Out@GRAD"]
    places = g.emit("flatten2", X=g.cast(mask, DType.INT64), axis=2)
    numbers = g.emit("cumsum", X=_int_ones(g, places), axis=0, exclusive=True)
    size = g.cast(g.emit("reduce_prod", X=_image_size(g, x), reduce_all=True), DType.INT64)
    places = g.emit("unsqueeze2", X=g.like(g.add(g.mul(numbers, size), places), (-1,)), axes=[1])
    flat = g.emit("scatter_nd_add", X=g.like(g.zeros(x), (-1,)), Index=places, Updates=g.like(d_out, (-1,)))
    return {"X@GRAD": g.like(flat, x.shape or (), x)}


def _image_size(g: Rewriting, x: Variable) -> Variable:
    return g.piece(g.emit("shape", Input=x), 0, 2, len(x.shape or ()))


@rewritten_as("scatter_nd_add_grad")
def _scatter_nd_add(g: Rewriting) -> Mapping[str, Any]:
    d_out = g["Out@GRAD"]
    picked = g.emit("gather_nd", X=d_out, Index=g["Index"]) if g.wants("Updates@GRAD") else None
    return {"X@GRAD": d_out, "Updates@GRAD": picked}


def _int_ones(g: Rewriting, like: Variable) -> Variable:
    return g.emit("fill_any_like", X=like, value=1.0, dtype=int(DType.INT64))
