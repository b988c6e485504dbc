"""Products of vectors and batches, and the distance between tensors. float16 is added up in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.cuda import gemm
from minigraph.kernels.norm import norm_gradient, norms_over
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import widen, widened

_FIRST_OF_SIZE_3 = 9
"""Value of `dim` that stands for the first dimension of size 3, as Paddle writes it."""

LEAST_SQUARE = 1e-8  # fluid's bound, below which vectors count as zero


def _like(xp, total, x) -> Any:
    """`total` summed over the dimensions along which `x` was repeated, in its shape and type."""
    extra = total.ndim - x.ndim
    axes = tuple(i for i, size in enumerate(total.shape) if i < extra or x.shape[i - extra] != size)
    if axes:
        total = add_over(xp, total, axes, keepdims=True)
    return total.reshape(x.shape).astype(x.dtype, copy=False)


@kernel("bmm")
@widened
def bmm(xp, x, y, *, out=None):
    return deliver(xp, gemm.matmul(xp, x, y), out)


@kernel("bmm_grad")
def bmm_grad(xp, x, y, d_out, *, wanted):
    x, y, d = widen(x), widen(y), widen(d_out)
    d_x = gemm.matmul(xp, d, y.swapaxes(1, 2)).astype(d_out.dtype, copy=False) if wanted[0] else None
    return d_x, gemm.matmul(xp, x.swapaxes(1, 2), d).astype(d_out.dtype, copy=False) if wanted[1] else None


@kernel("dot")
@widened
def dot(xp, x, y, *, out=None):
    return deliver(xp, add_over(xp, x * y, (x.ndim - 1,), keepdims=True), out)


@kernel("dot_grad")
def dot_grad(xp, x, y, d_out, *, wanted):
    return d_out * y if wanted[0] else None, d_out * x if wanted[1] else None


@kernel("cross")
@widened
def cross(xp, x, y, *, dim, out=None):
    at = _vectors_along(x, dim)
    return deliver(xp, xp.cross(x, y, axis=at), out)


@kernel("cross_grad")
def cross_grad(xp, x, y, d_out, *, dim, wanted):
    at = _vectors_along(x, dim)
    x, y, d = widen(x), widen(y), widen(d_out)
    d_x = xp.cross(y, d, axis=at).astype(d_out.dtype, copy=False) if wanted[0] else None
    return d_x, xp.cross(d, x, axis=at).astype(d_out.dtype, copy=False) if wanted[1] else None


def _vectors_along(x, dim) -> int:
    return x.shape.index(3) if dim == _FIRST_OF_SIZE_3 else dim % x.ndim


@kernel("kron")
def kron(xp, x, y, *, out=None):
    a, b, shape = _interleaved(x, y)
    return deliver(xp, (a * b).reshape(shape), out)


@kernel("kron_grad")
def kron_grad(xp, x, y, d_out, *, wanted):
    a, b, _ = _interleaved(x, y)
    rank = a.ndim // 2
    full = [rows * columns for rows, columns in zip(a.shape, b.shape, strict=True)]
    d = widen(d_out).reshape(full)
    of_x, of_y = tuple(range(0, 2 * rank, 2)), tuple(range(1, 2 * rank, 2))
    d_x = add_over(xp, d * widen(b), of_y).reshape(x.shape).astype(x.dtype, copy=False) if wanted[0] else None
    return d_x, add_over(xp, d * widen(a), of_x).reshape(y.shape).astype(y.dtype, copy=False) if wanted[1] else None


def _interleaved(x, y) -> tuple[Any, Any, list[int]]:
    """`x` and `y` as tensors whose product has two dimensions for each of the result, and the shape of that."""
    rank = max(x.ndim, y.ndim)
    sides = [(1,) * (rank - each.ndim) + each.shape for each in (x, y)]
    rows = x.reshape([size for pair in zip(sides[0], (1,) * rank, strict=True) for size in pair])
    columns = y.reshape([size for pair in zip((1,) * rank, sides[1], strict=True) for size in pair])
    return rows, columns, [a * b for a, b in zip(*sides, strict=True)]


@kernel("addmm")
@widened
def addmm(xp, input, x, y, *, Alpha, Beta, out=None):
    return xp.add(Beta * input, Alpha * gemm.dot(xp, x, y), out=out)


@kernel("addmm_grad")
def addmm_grad(xp, input, x, y, d_out, *, Alpha, Beta, wanted):
    x_wide, y_wide, d = widen(x), widen(y), widen(d_out)
    return (
        _like(xp, Beta * d, input) if wanted[0] else None,
        (Alpha * gemm.dot(xp, d, y_wide.T)).astype(x.dtype, copy=False) if wanted[1] else None,
        (Alpha * gemm.dot(xp, x_wide.T, d)).astype(y.dtype, copy=False) if wanted[2] else None,
    )


@kernel("dist")
def dist(xp, x, y, *, p, out=None):
    sizes = xp.absolute(widen(x) - widen(y)).reshape(-1)
    if p == 0:
        total = xp.count_nonzero(sizes)
    # By scale and ratio, so that no power overflows.
    elif p > 0:
        scale, ratio = norms_over(xp, sizes, (0,), p)
        total = scale * ratio
    else:
        total = sizes.min() if p == -math.inf else (sizes ** x.dtype.type(p)).sum() ** (1 / p)
    return deliver(xp, xp.asarray(total).astype(x.dtype).reshape(1), out)


@kernel("dist_grad")
def dist_grad(xp, x, y, result, d_out, *, p, wanted):
    difference = widen(x) - widen(y)
    slope = _slope_of_distance(xp, difference, widen(result), p) * widen(d_out)
    return _like(xp, slope, x) if wanted[0] else None, _like(xp, -slope, y) if wanted[1] else None


def _slope_of_distance(xp, difference, distance, p) -> Any:
    if p == 0:
        return xp.zeros_like(difference)
    if math.isinf(p) and difference.size:  # not by `distance`, which was rounded
        sizes = xp.absolute(difference)
        return xp.sign(difference) * (sizes == (sizes.max() if p > 0 else sizes.min()))
    flat = difference.reshape(-1)
    if p > 0:
        scale, ratio = norms_over(xp, flat, (0,), p)
        slope = norm_gradient(xp, flat, scale, ratio, p)
    else:
        sizes = xp.absolute(flat)
        ratio = xp.where(sizes > 0, sizes / xp.where(distance > 0, distance, 1), 1)
        slope = xp.where((sizes > 0) & (distance > 0), xp.sign(flat) * ratio ** (p - 1), 0)
    return slope.reshape(difference.shape).astype(difference.dtype)


@kernel("cos_sim")
def cos_sim(xp, x, y):
    a, b = _vectors(xp, x), _vectors(xp, y)
    norms = [xp.sqrt(xp.maximum(add_over(xp, each * each, (1,), keepdims=True), LEAST_SQUARE)) for each in (a, b)]
    cosine = add_over(xp, a * b, (1,), keepdims=True) / (norms[0] * norms[1])
    return tuple(each.astype(x.dtype, copy=False) for each in (cosine, *norms))


@kernel("cos_sim_grad")
def cos_sim_grad(xp, x, y, cosine, x_norm, y_norm, d_out, *, wanted):
    a, b = _vectors(xp, x), _vectors(xp, y)
    cosine, x_norm, y_norm, d = (each.astype(a.dtype, copy=False) for each in (cosine, x_norm, y_norm, d_out))
    both = d / (x_norm * y_norm)
    d_x = b * both - a * _turning(xp, a, cosine * d, x_norm) if wanted[0] else None
    d_y = a * both - b * _turning(xp, b, cosine * d, y_norm) if wanted[1] else None
    return tuple(
        None if slope is None else _like(xp, slope.reshape((len(slope), *like.shape[1:])), like)
        for slope, like in ((d_x, x), (d_y, y))
    )


def _vectors(xp, x) -> Any:
    """One vector a row, wide enough to add up squares."""
    wide = x.astype(np.float64 if x.dtype == np.float32 else np.float32) if x.dtype != np.float64 else x
    return wide.reshape(len(x), math.prod(x.shape[1:]))


def _turning(xp, vectors, slope, norm) -> Any:
    """Factor of the component along a vector, which the gradient must not have; zero where the norm is its bound."""
    # Where the norm is its bound it is a constant, and turning the vector changes no length.
    squares = add_over(xp, vectors * vectors, (1,), keepdims=True)
    return xp.where(squares > LEAST_SQUARE, slope / (norm * norm), 0)
