"""Normalization of rows or channels and its gradients, with sums in float64.

Results are within 16 units of the last place of the largest.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit import offers
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import numba_name, offer, vectors
from minigraph.kernels.normalization import FEW_TO_A_MEAN, uses_running_statistics
from minigraph.support.window_rules import CHANNELS_LAST

_LOOPS = Loops("normalization")


def _kind(x: Any, begin: int, *vectors_of_rows: Any) -> str | None:
    """The name of the type, if all that a loop takes is of it, and large enough."""
    if any(each is not None and each.dtype != x.dtype for each in vectors_of_rows):
        return None
    fits = prod(x.shape) >= offers.LEAST and 0 not in x.shape and 0 < begin < len(x.shape)
    fits = fits and prod(x.shape[begin:]) > FEW_TO_A_MEAN
    return numba_name(x.dtype) if fits else None


def _kind_of_channels(x: Any, data_layout: str, *vectors_of_channels: Any) -> str | None:
    """The same for channels, which are the second dimension."""
    if any(each is None or each.dtype != x.dtype for each in vectors_of_channels) or data_layout == CHANNELS_LAST:
        return None
    size, channels = prod(x.shape), prod(x.shape[1:2])
    return numba_name(x.dtype) if size >= offers.LEAST and size > FEW_TO_A_MEAN * channels else None


@offer("layer_norm")
def layer_norm(xp, x, scale, bias, *, epsilon, begin_norm_axis):
    kind = _kind(x, begin_norm_axis, scale, bias)
    if kind is None:
        return None
    matrix, vector = f"{kind}[:, ::1]", f"{kind}[::1]"
    loop = _LOOPS.compiled("layer_norm", f"void({matrix}, {vector}, {vector}, float64, {matrix}, {vector}, {vector})")
    rows = prod(x.shape[:begin_norm_axis])
    ones, zeros = (make(prod(x.shape) // rows, x.dtype) for make in (np.ones, np.zeros))

    def normalize(x, scale, bias, out=None):
        shapes = x.shape, (rows,), (rows,)
        found = [
            np.empty(shape, x.dtype) if buffer is None else buffer
            for shape, buffer in zip(shapes, out or (None,) * 3, strict=True)
        ]
        scale, bias = ones if scale is None else scale, zeros if bias is None else bias
        x_flat, y_flat, *others = vectors(x, found[0], scale, bias, found[1], found[2])
        matrix = (rows, x.size // rows)
        loop(x_flat.reshape(matrix), others[0], others[1], epsilon, y_flat.reshape(matrix), others[2], others[3])
        return tuple(found)

    return normalize


@offer("layer_norm_grad")
def layer_norm_grad(xp, x, scale, bias, mean, variance, d_y, *, epsilon, begin_norm_axis, wanted):
    kind = _kind(x, begin_norm_axis, scale, bias, mean, variance, d_y)
    if kind is None or not wanted[0]:
        return None
    matrix, vector, wide = f"{kind}[:, ::1]", f"{kind}[::1]", "float64[::1]"
    loop = _LOOPS.compiled(
        "layer_norm_grad",
        f"void({matrix}, {vector}, {vector}, {vector}, {matrix}, float64, {matrix}, {matrix}, {wide}, {wide})",
    )
    rows = prod(x.shape[:begin_norm_axis])
    ones = np.ones(prod(x.shape) // rows, x.dtype)

    def gradients(x, scale, bias, mean, variance, d_y):
        columns = x.size // rows
        d_x, d_scale, d_bias = np.empty(x.shape, x.dtype), np.empty(columns), np.empty(columns)
        x_flat, d_flat, s, m, v = vectors(x, d_y, ones if scale is None else scale, mean, variance)
        matrix = (rows, columns)
        loop(
            x_flat.reshape(matrix), s, m, v, d_flat.reshape(matrix), epsilon, d_x.reshape(matrix),
            np.empty((2, columns), x.dtype), d_scale, d_bias,
        )  # fmt: skip
        own = [each.astype(x.dtype, copy=False) for each in (d_scale, d_bias)]
        return d_x, own[0] if wanted[1] else None, own[1] if wanted[2] else None

    return gradients


@offer("batch_norm")
def batch_norm(
    xp, x, scale, bias, mean, variance, momentum_tensor, *, is_test, momentum, epsilon, data_layout, use_global_stats,
    trainable_statistics,
):  # fmt: skip
    kind = _kind_of_channels(x, data_layout, scale, bias, mean, variance)
    if kind is None or momentum_tensor is not None:
        return None
    matrix, vector = f"{kind}[:, ::1]", f"{kind}[::1]"
    own = ", ".join([vector] * 4)
    if uses_running_statistics(is_test, use_global_stats, trainable_statistics):
        given = _LOOPS.compiled("batch_norm_given", f"void({matrix}, {own}, float64, {matrix}, {vector})")
        return partial(_normalize_by, given, epsilon)
    loop = _LOOPS.compiled("batch_norm", f"void({matrix}, {own}, float64, float64, {matrix}, {own})")
    channels = x.shape[1]

    def normalize(x, scale, bias, mean, variance, _momentum_tensor):
        y, found = np.empty(x.shape, x.dtype), [np.empty(channels, x.dtype) for _ in range(4)]
        x_flat, y_flat, *given = vectors(x, y, scale, bias, mean, variance)
        loop(_by_channel(x_flat, x), *given, momentum, epsilon, _by_channel(y_flat, x), *found)
        return y, *found

    return normalize


def _normalize_by(loop, epsilon, x, scale, bias, mean, variance, _momentum_tensor):
    y, inverse = np.empty(x.shape, x.dtype), np.empty(scale.shape, x.dtype)
    x_flat, y_flat, *given = vectors(x, y, scale, bias, mean, variance)
    loop(_by_channel(x_flat, x), *given, epsilon, _by_channel(y_flat, x), inverse)
    return y, mean.copy(), variance.copy(), mean.copy(), inverse


def _by_channel(flat, x):
    """The elements of `x` as rows, one for each image and channel."""
    rows = len(x) * x.shape[1]
    return flat.reshape(rows, x.size // rows)


@offer("batch_norm_grad")
def batch_norm_grad(
    xp, x, scale, bias, saved_mean, saved_inverse, d_y, *, is_test, epsilon, data_layout, use_global_stats,
    trainable_statistics, wanted,
):  # fmt: skip
    kind = _kind_of_channels(x, data_layout, scale, bias, saved_mean, saved_inverse, d_y)
    if kind is None or not all(wanted):
        return None
    is_given = uses_running_statistics(is_test, use_global_stats, trainable_statistics)
    matrix, vector = f"{kind}[:, ::1]", f"{kind}[::1]"
    loop = _LOOPS.compiled(
        "batch_norm_given_grad" if is_given else "batch_norm_grad",
        f"void({matrix}, {vector}, {vector}, {vector}, {matrix}, {matrix}, {vector}, {vector})",
    )
    channels = x.shape[1]

    def gradients(x, scale, bias, saved_mean, saved_inverse, d_y):
        d_x, d_scale, d_bias = np.empty(x.shape, x.dtype), np.empty(channels, x.dtype), np.empty(channels, x.dtype)
        x_flat, d_flat, d_x_flat, *given = vectors(x, d_y, d_x, scale, saved_mean, saved_inverse)
        loop(_by_channel(x_flat, x), *given, _by_channel(d_flat, x), _by_channel(d_x_flat, x), d_scale, d_bias)
        return d_x, d_scale, d_bias

    return gradients
