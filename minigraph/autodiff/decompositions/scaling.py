"""Gradients of tensors that are divided by norms of their own elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.support.window_rules import CHANNELS_LAST
from minigraph.types import DType, product


@rewritten_as("spectral_norm_grad")
def _spectral_norm(g: Rewriting) -> Mapping[str, Any]:
    """``dWeight = (d - U V' * sum(Weight * d) / sigma) / sigma``, with U and V taken as constant."""
    weight = g["Weight"]
    shape = weight.shape or ()
    rows = g.attr("dim") % len(shape)
    order = [rows, *(axis for axis in range(len(shape)) if axis != rows)]
    moved = [shape[axis] for axis in order]
    flat = [shape[rows], product(moved[1:])]
    matrix, d = (g.like(g.transpose(x, order), flat) for x in (weight, g["Out@GRAD"]))
    fixed = g.constant(matrix)
    u, v = (g.like(g.constant(g[slot]), [size, 1]) for slot, size in zip("UV", flat, strict=True))
    for _ in range(g.attr("power_iters")):
        v = _of_length_one(g, g.matmul(fixed, u, transpose_X=True))
        u = _of_length_one(g, g.matmul(fixed, v))
    sigma = g.like(g.matmul(u, g.matmul(matrix, v), transpose_X=True), [1])
    share = g.div(g.total(g.mul(matrix, d)), sigma)
    found = g.div(g.sub(d, g.mul(g.matmul(u, v, transpose_Y=True), share)), sigma)
    return {"Weight@GRAD": g.transpose(g.like(found, moved), [order.index(axis) for axis in range(len(shape))])}


def _of_length_one(g: Rewriting, x: Variable) -> Variable:
    length = g.emit("sqrt", X=g.total(g.square(x)))
    return g.div(x, g.add(length, g.number(g.attr("eps"), x)))


@rewritten_as("lrn_grad")
def _lrn(g: Rewriting) -> Mapping[str, Any]:
    """``dX = d / mid ** beta - 2 alpha beta X * (sum of d * X / mid ** (beta + 1) over the channels around)``."""
    x, d, alpha, beta = g["X"], g["Out@GRAD"], g.attr("alpha"), g.attr("beta")
    is_last = g.attr("data_format") == CHANNELS_LAST
    channels, (before, after) = (x.shape or ())[3 if is_last else 1], ((g.attr("n") - 1) // 2, g.attr("n") // 2)
    near = [int(i - before <= j <= i + after) for i in range(channels) for j in range(channels)]
    band = g.emit("assign_value", shape=[channels] * 2, dtype=int(DType.INT32), int32_values=near)
    band = g.cast(band, x.dtype)

    def summed(images: Variable, weights: Variable) -> Variable:
        rows = images if is_last else g.transpose(images, [0, 2, 3, 1])
        found = g.emit("mul", X=rows, Y=weights, x_num_col_dims=3)
        return found if is_last else g.transpose(found, [0, 3, 1, 2])

    turned = g.transpose(band, [1, 0])
    mid = g.scale(summed(g.square(x), turned), alpha, g.attr("k"))
    flowing = summed(g.mul(g.mul(d, x), g.power(mid, -beta - 1)), band)
    return {"X@GRAD": g.sub(g.mul(d, g.power(mid, -beta)), g.scale(g.mul(x, flowing), 2 * alpha * beta))}
