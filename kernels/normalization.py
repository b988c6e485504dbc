"""Normalization. Mean, variance and gradients are computed in float32 for float16, else in the type of X."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.windows import CHANNELS_LAST


def _wide(x) -> Any:
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _moments(xp, x, axes) -> tuple[Any, Any]:
    """Mean and variance of `x` over `axes`, with dimensions of 1 in their places."""
    count = math.prod(x.shape[axis] for axis in axes)
    mean = add_over(xp, x, axes, keepdims=True, divisor=count)
    return mean, add_over(xp, xp.square(x - mean), axes, keepdims=True, divisor=count)


def _gradient_through(xp, d, normalized, inverse, axes) -> Any:
    """What flows into x where ``normalized = (x - mean) * inverse``, and both follow from `x` over `axes`."""
    count = math.prod(d.shape[axis] for axis in axes)
    mean_d = add_over(xp, d, axes, keepdims=True, divisor=count)
    mean_product = add_over(xp, d * normalized, axes, keepdims=True, divisor=count)
    return inverse * (d - mean_d - normalized * mean_product)


# By channel


def _channels(x, data_layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions to reduce, and the shape in which a vector of channels lies over `x`."""
    place = x.ndim - 1 if data_layout == CHANNELS_LAST else 1
    axes = tuple(axis for axis in range(x.ndim) if axis != place)
    return axes, tuple(-1 if axis == place else 1 for axis in range(x.ndim))


def _is_given(is_test, use_global_stats, trainable_statistics) -> bool:
    """Whether the running statistics are used."""
    return use_global_stats or (is_test and not trainable_statistics)


@kernel("batch_norm")
def batch_norm(
    xp, x, scale, bias, mean, variance, momentum_tensor, *, is_test, momentum, epsilon, data_layout, use_global_stats,
    trainable_statistics,
):  # fmt: skip
    wide = _wide(x)
    axes, over = _channels(x, data_layout)
    if not _is_given(is_test, use_global_stats, trainable_statistics):
        if x.size == scale.size:
            return x.copy(), mean.copy(), variance.copy(), xp.zeros_like(mean), xp.zeros_like(mean)
        if x.size:
            found_mean, found_variance = _moments(xp, wide, axes)
            share = momentum if momentum_tensor is None else momentum_tensor.reshape(())
            mean_out = _moved(mean, found_mean.reshape(-1), share)
            variance_out = _moved(variance, found_variance.reshape(-1), share)
            inverse = 1 / xp.sqrt(found_variance + epsilon)
            y = _scaled(wide, found_mean, inverse, scale.reshape(over), bias.reshape(over), x.dtype)
            return y, mean_out, variance_out, _vector(found_mean, mean), _vector(inverse, mean)
    inverse = 1 / xp.sqrt(_wide(variance) + epsilon)
    y = _scaled(wide, mean.reshape(over), inverse.reshape(over), scale.reshape(over), bias.reshape(over), x.dtype)
    return y, mean.copy(), variance.copy(), mean.copy(), _vector(inverse, mean)


def _moved(running, found, momentum) -> Any:
    return (running * momentum + found * (1 - momentum)).astype(running.dtype, copy=False)


def _vector(statistic, like) -> Any:
    return statistic.reshape(-1).astype(like.dtype, copy=False)


def _scaled(x, mean, inverse, scale, bias, dtype) -> Any:
    return ((x - mean) * (inverse * scale) + bias).astype(dtype, copy=False)


@kernel("batch_norm_grad")
def batch_norm_grad(
    xp, x, scale, bias, saved_mean, saved_inverse, d_y, *, is_test, data_layout, use_global_stats, trainable_statistics,
    wanted,
):  # fmt: skip
    is_given = _is_given(is_test, use_global_stats, trainable_statistics)
    if x.size == scale.size and not is_given:
        return d_y.copy(), xp.zeros_like(scale), xp.zeros_like(bias)
    axes, over = _channels(x, data_layout)
    d, inverse = _wide(d_y), _wide(saved_inverse).reshape(over)
    normalized = (_wide(x) - _wide(saved_mean).reshape(over)) * inverse
    factor = _wide(scale).reshape(over)
    d_x = d_scale = d_bias = None
    if wanted[0]:
        flowing = d * factor
        d_x = flowing * inverse if is_given or not x.size else _gradient_through(xp, flowing, normalized, inverse, axes)
        d_x = d_x.astype(x.dtype, copy=False)
    if wanted[1]:
        d_scale = add_over(xp, d * normalized, axes).astype(scale.dtype, copy=False)
    if wanted[2]:
        d_bias = add_over(xp, d, axes).astype(bias.dtype, copy=False)
    return d_x, d_scale, d_bias


# By sample


@kernel("layer_norm")
def layer_norm(xp, x, scale, bias, *, epsilon, begin_norm_axis, out=None):
    rows = _wide(_as_rows(x, begin_norm_axis))
    mean, variance = _moments(xp, rows, (1,)) if x.size else _no_moments(xp, rows)
    y = (rows - mean) * (1 / xp.sqrt(variance + epsilon))
    if scale is not None:
        xp.multiply(y, scale, out=y)
    if bias is not None:
        xp.add(y, bias, out=y)
    results = y.reshape(x.shape), mean.reshape(-1), variance.reshape(-1)
    buffers = out or (None, None, None)
    return tuple(
        deliver(xp, result.astype(x.dtype, copy=False), buffer) for result, buffer in zip(results, buffers, strict=True)
    )


@kernel("layer_norm_grad")
def layer_norm_grad(xp, x, scale, bias, mean, variance, d_y, *, epsilon, begin_norm_axis, wanted):
    rows, d = _wide(_as_rows(x, begin_norm_axis)), _wide(_as_rows(d_y, begin_norm_axis))
    inverse = 1 / xp.sqrt(_wide(variance)[:, None] + epsilon)
    normalized = (rows - _wide(mean)[:, None]) * inverse
    d_x = d_scale = d_bias = None
    if wanted[0]:
        flowing = d if scale is None else d * scale
        d_x = _gradient_through(xp, flowing, normalized, inverse, (1,)) if x.size else flowing
        d_x = d_x.reshape(x.shape).astype(x.dtype, copy=False)
    if scale is not None and wanted[1]:
        d_scale = add_over(xp, d * normalized, (0,)).astype(scale.dtype, copy=False)
    if bias is not None and wanted[2]:
        d_bias = add_over(xp, d, (0,)).astype(bias.dtype, copy=False)
    return d_x, d_scale, d_bias


def _as_rows(x, begin) -> Any:
    return x.reshape(math.prod(x.shape[:begin]), math.prod(x.shape[begin:]))


def _no_moments(xp, rows) -> tuple[Any, Any]:
    """Those of rows without elements, or of no rows."""
    return xp.zeros((len(rows), 1), rows.dtype), xp.zeros((len(rows), 1), rows.dtype)


# By sample and channel, or group of channels


@kernel("group_norm")
def group_norm(xp, x, scale, bias, *, groups, epsilon, data_layout):
    wide, axes, over = _grouped(x, groups, data_layout)
    mean, variance = _moments(xp, wide, axes) if x.size else _no_moments(xp, wide.reshape(len(x) * groups, 0))
    normalized = (wide - _kept(mean, axes, wide)) * (1 / xp.sqrt(_kept(variance, axes, wide) + epsilon))
    y = _affine(normalized, scale, bias, over).astype(x.dtype, copy=False).reshape(x.shape)
    return y, mean.reshape(len(x), groups), variance.reshape(len(x), groups)


@kernel("group_norm_grad")
def group_norm_grad(xp, x, scale, bias, mean, variance, d_y, *, groups, epsilon, data_layout, wanted):
    wide, axes, over = _grouped(x, groups, data_layout)
    d = _wide(d_y).reshape(wide.shape)
    inverse = 1 / xp.sqrt(_kept(variance, axes, wide) + epsilon)
    normalized = (wide - _kept(mean, axes, wide)) * inverse
    d_x = None
    if wanted[0]:
        flowing = d if scale is None else d * _wide(scale).reshape(over)
        if not x.size:
            d_x = flowing
        elif scale is None:
            count = math.prod(d.shape[axis] for axis in axes)
            along = add_over(xp, d * normalized, axes, keepdims=True, divisor=count)
            d_x = inverse * (d - normalized * along)
        else:
            d_x = _gradient_through(xp, flowing, normalized, inverse, axes)
        d_x = d_x.astype(x.dtype, copy=False).reshape(x.shape)
    return d_x, *_affine_gradients(xp, d, normalized, scale, bias, over, wanted)


@kernel("instance_norm")
def instance_norm(xp, x, scale, bias, *, epsilon):
    wide, axes, over = _grouped(x, x.shape[1], "NCHW")
    mean, variance = _moments(xp, wide, axes) if x.size else _no_moments(xp, wide.reshape(len(x) * x.shape[1], 0))
    inverse = 1 / xp.sqrt(variance + epsilon)
    normalized = (wide - _kept(mean, axes, wide)) * _kept(inverse, axes, wide)
    y = _affine(normalized, scale, bias, over).astype(x.dtype, copy=False).reshape(x.shape)
    return y, mean.reshape(-1), inverse.reshape(-1)


@kernel("instance_norm_grad")
def instance_norm_grad(xp, x, scale, saved_mean, saved_inverse, d_y, *, wanted):
    wide, axes, over = _grouped(x, x.shape[1], "NCHW")
    d = _wide(d_y).reshape(wide.shape)
    inverse = _kept(saved_inverse, axes, wide)
    normalized = (wide - _kept(saved_mean, axes, wide)) * inverse
    d_x = None
    if wanted[0]:
        flowing = d * _wide(scale).reshape(over)
        d_x = _gradient_through(xp, flowing, normalized, inverse, axes) if x.size else flowing
        d_x = d_x.astype(x.dtype, copy=False).reshape(x.shape)
    return d_x, *_affine_gradients(xp, d, normalized, scale, scale, over, wanted)


@kernel("instance_norm_grad_grad")
def instance_norm_grad_grad(
    xp, x, scale, saved_mean, saved_inverse, d_y, dd_x, dd_scale, dd_bias, *, wanted
) -> tuple[Any, Any, Any]:
    """With ``n`` for normalized X and ``P(v) = v - mean(v) - n * mean(v * n)``, which is symmetric and is what
    ``s * P(dX)`` changes n by; what is None is zero.
    """
    wide, axes, over = _grouped(x, x.shape[1], "NCHW")
    inverse = _kept(saved_inverse, axes, wide)
    normalized = (wide - _kept(saved_mean, axes, wide)) * inverse
    d = _wide(d_y).reshape(wide.shape)
    by_channel = _wide(scale).reshape(over)
    through = None
    if dd_x is not None:
        flowing = _wide(dd_x).reshape(wide.shape)
        through = _gradient_through(xp, flowing, normalized, inverse, axes) if x.size else flowing
    results: list[Any] = [None, None, None]
    if wanted[0]:
        d_x = xp.zeros_like(wide)
        if x.size:
            d_through = _gradient_through(xp, d, normalized, inverse, axes)
            if dd_scale is not None:
                d_x += _wide(dd_scale).reshape(over) * d_through
            if through is not None:
                share, along, d_along = (
                    add_over(xp, product, axes, keepdims=True, divisor=math.prod(wide.shape[i] for i in axes))
                    for product in (through * d, flowing * normalized, d * normalized)
                )
                bent = normalized * (inverse * share) + inverse * (along * d_through + d_along * through)
                d_x -= by_channel * bent
        results[0] = d_x.astype(x.dtype, copy=False).reshape(x.shape)
    if wanted[1]:
        parts = xp.zeros_like(wide) if through is None else through * d
        summed = add_over(xp, parts, tuple(axis for axis, size in enumerate(over) if size == 1))
        results[1] = summed.astype(scale.dtype, copy=False).reshape(scale.shape)
    if wanted[2]:
        dd_y = xp.zeros_like(wide) if through is None else by_channel * through
        if dd_scale is not None:
            dd_y += _wide(dd_scale).reshape(over) * normalized
        if dd_bias is not None:
            dd_y += _wide(dd_bias).reshape(over)
        results[2] = dd_y.astype(x.dtype, copy=False).reshape(x.shape)
    return tuple(results)


def _grouped(x, groups, data_layout) -> tuple[Any, tuple[int, int], tuple[int, ...]]:
    """`x` in four dimensions, those to reduce, and the shape in which a vector of channels lies over it.

    The four are the sample, the group, the channel in it and the place; or, with the channels last, sample, place,
    group and channel.
    """
    wide, channels = _wide(x), x.shape[-1 if data_layout == CHANNELS_LAST else 1]
    places = math.prod(x.shape[2:] if data_layout != CHANNELS_LAST else x.shape[1:-1])
    each = channels // groups
    if data_layout == CHANNELS_LAST:
        return wide.reshape(len(x), places, groups, each), (1, 3), (1, 1, groups, each)
    return wide.reshape(len(x), groups, each, places), (2, 3), (1, groups, each, 1)


def _kept(statistic, axes, x) -> Any:
    """`statistic` in the shape of `x` with the dimensions `axes` as 1."""
    return statistic.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)])


def _affine(x, scale, bias, over) -> Any:
    """``x * scale + bias`` in place, where they are given."""
    if scale is not None:
        x *= scale.reshape(over)
    if bias is not None:
        x += bias.reshape(over)
    return x


def _affine_gradients(xp, d, normalized, scale, bias, over, wanted) -> tuple[Any, Any]:
    axes = tuple(axis for axis, size in enumerate(over) if size == 1)
    d_scale = d_bias = None
    if scale is not None and wanted[1]:
        d_scale = add_over(xp, d * normalized, axes).reshape(-1).astype(scale.dtype, copy=False)
    if bias is not None and wanted[2]:
        d_bias = add_over(xp, d, axes).reshape(-1).astype(bias.dtype, copy=False)
    return d_scale, d_bias
