"""Tensors divided by norms of their own elements. float16 is computed in float32."""

from __future__ import annotations

from typing import Any

from minigraph.kernels.cuda import gemm
from minigraph.kernels.registry import kernel
from minigraph.kernels.sliding import channels_first, channels_restored
from minigraph.kernels.upcast import narrow, widen


@kernel("spectral_norm")
def spectral_norm(xp, weight, u, v, *, dim, power_iters, eps):
    wide = widen(weight)
    _, _, sigma = _singular(xp, _matrix(xp, wide, dim), widen(u), widen(v), power_iters, eps)
    return narrow(xp, wide / sigma, weight.dtype)


@kernel("spectral_norm_grad")
def spectral_norm_grad(xp, weight, u, v, d_out, *, dim, power_iters, eps):
    matrix, d = _matrix(xp, widen(weight), dim), _matrix(xp, widen(d_out), dim)
    u, v, sigma = _singular(xp, matrix, widen(u), widen(v), power_iters, eps)
    share = (matrix * d).sum() / sigma
    found = (d - share * u[:, None] * v) / sigma
    moved = (weight.shape[dim], *(size for i, size in enumerate(weight.shape) if i != dim % weight.ndim))
    return narrow(xp, xp.ascontiguousarray(xp.moveaxis(found.reshape(moved), 0, dim)), weight.dtype)


def _matrix(xp, x, dim) -> Any:
    """`x` with dimension `dim` as rows."""
    moved = xp.moveaxis(x, dim, 0)
    return moved.reshape(moved.shape[0], x.size // max(moved.shape[0], 1))


def _singular(xp, matrix, u, v, power_iters, eps) -> tuple[Any, Any, Any]:
    """Left and right singular vectors after the power iterations, and the singular value."""
    for _ in range(power_iters):
        v = _of_length_one(xp, _times(xp, matrix.T, u), eps)
        u = _of_length_one(xp, _times(xp, matrix, v), eps)
    return u, v, _times(xp, u[None], _times(xp, matrix, v))[0]


def _times(xp, matrix, vector) -> Any:
    return gemm.dot(xp, matrix, vector[:, None])[:, 0]


def _of_length_one(xp, x, eps) -> Any:
    return x / (xp.sqrt((x * x).sum()) + x.dtype.type(eps))


@kernel("lrn")
def lrn(xp, x, *, n, k, alpha, beta, data_format):
    images = channels_first(widen(x), data_format)
    around = _sum_around(xp, images * images, (n - 1) // 2, n // 2)
    around *= alpha
    around += k
    result = images * around**-beta
    return tuple(narrow(xp, channels_restored(xp, each, data_format), x.dtype) for each in (result, around))


@kernel("lrn_grad")
def lrn_grad(xp, x, result, around, d_out, *, n, k, alpha, beta, data_format):
    images, out, mid, d = (channels_first(widen(each), data_format) for each in (x, result, around, d_out))
    # A channel stands in the sums of those around it, as many the other way round.
    flowing = _sum_around(xp, d * out / mid, n // 2, (n - 1) // 2)
    d_x = d * mid**-beta - 2 * alpha * beta * images * flowing
    return narrow(xp, channels_restored(xp, d_x, data_format), x.dtype)


def _sum_around(xp, images, before, after) -> Any:
    """The sum of each channel, the `before` channels before it and the `after` channels after it."""
    total, channels = images.copy(), images.shape[1]
    for i in range(1, min(before, channels - 1) + 1):
        total[:, i:] += images[:, :-i]
    for i in range(1, min(after, channels - 1) + 1):
        total[:, :-i] += images[:, i:]
    return total
