"""Normalization: computed in float64 for few elements, else in float32 for float16, else in the type of X."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.support.communicator import Call, current
from minigraph.support.window_rules import CHANNELS_LAST

_FEW = 4096
"""Maximum elements for which float64 is about as fast as float32."""

FEW_TO_A_MEAN = 16
"""Maximum elements of a mean for which gradients are computed in float64, because most of their terms cancel."""


def _working(x, means) -> Any:
    """`x` in the type in which its normalization is computed; `means` is the number of means."""
    is_wide = x.dtype == np.float64 or x.size <= max(_FEW, FEW_TO_A_MEAN * means)
    return x.astype(np.float64 if is_wide else np.float32, copy=False)


def _mean(xp, x, axes) -> Any:
    return add_over(xp, x, axes, keepdims=True, divisor=math.prod(x.shape[axis] for axis in axes))


def _centered(xp, x, mean, axes) -> tuple[Any, Any]:
    """`x`, in its working type, minus its mean over `axes`, and that mean, of which `mean` is a rounding.

    If numbers are alike, the rounding error of their mean is large beside their differences.
    """
    centered = x - mean
    # The differences are small, so that their mean is the error of `mean` to many digits.
    if x.size and mean.dtype != np.float64:
        rest = _mean(xp, centered, axes)
        centered -= rest
        mean = mean + rest
    return centered, mean


def _moments(xp, x, axes) -> tuple[Any, Any, Any]:
    """`x` minus its mean over `axes`, the mean, and the variance; reduced dimensions are kept as 1."""
    if not x.size:
        none = xp.zeros([1 if axis in axes else size for axis, size in enumerate(x.shape)], x.dtype)
        return x.copy(), none, none.copy()
    centered, mean = _centered(xp, x, _mean(xp, x, axes), axes)
    return centered, mean, _mean(xp, xp.square(centered), axes)


def _normalized_again(xp, x, mean, inverse, epsilon, axes) -> tuple[Any, Any]:
    """`x` with mean 0 and variance 1 over `axes`, and the factor for that, as in the forward kernel.

    The saved mean and factor are in the type of X. A gradient in a wider type computes both again.
    """
    centered, _ = _centered(xp, x, mean, axes)
    if x.size and x.dtype != mean.dtype:
        inverse = 1 / xp.sqrt(_mean(xp, xp.square(centered), axes) + epsilon)
    centered *= inverse
    return centered, inverse.astype(x.dtype, copy=False)


def _gradient_through(xp, d, normalized, inverse, axes) -> Any:
    """Gradient by x of ``normalized = (x - mean) * inverse``, with both statistics computed from `x` over `axes`.

    The result overwrites `normalized`.
    """
    along, total = (add_over(xp, each, axes, keepdims=True) for each in (d * normalized, d))
    return _through(xp, d, normalized, along, total, inverse)


def _through(xp, d, normalized, along, total, factor) -> Any:
    """`_gradient_through` for the sums of ``d * normalized`` and `d`."""
    count = max(normalized.size // max(total.size, 1), 1)
    normalized *= along / count
    normalized += total / count
    xp.subtract(d, normalized, out=normalized)
    normalized *= factor
    return normalized


def _like(x, value) -> Any:
    """`value`, if there is one, in the type and shape of `x`."""
    return None if value is None else value.astype(x.dtype, copy=False).reshape(x.shape)


# By channel


def _channels(x, data_layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions to reduce, and the shape in which a vector of channels broadcasts to `x`."""
    place = x.ndim - 1 if data_layout == CHANNELS_LAST else 1
    axes = tuple(axis for axis in range(x.ndim) if axis != place)
    return axes, tuple(-1 if axis == place else 1 for axis in range(x.ndim))


def uses_running_statistics(is_test, use_global_stats, trainable_statistics) -> bool:
    """Whether the running statistics are used."""
    return use_global_stats or (is_test and not trainable_statistics)


@kernel("batch_norm")
def batch_norm(
    xp, x, scale, bias, mean, variance, momentum_tensor, *, is_test, momentum, epsilon, data_layout, use_global_stats,
    trainable_statistics,
):  # fmt: skip
    wide = _working(x, scale.size)
    axes, over = _channels(x, data_layout)
    if not uses_running_statistics(is_test, use_global_stats, trainable_statistics):
        if x.size == scale.size:  # one element a channel has no variance; fluid returns X
            return x.copy(), mean.copy(), variance.copy(), xp.zeros_like(mean), xp.zeros_like(mean)
        if x.size:
            centered, found_mean, found_variance = _moments(xp, wide, axes)
            share = momentum if momentum_tensor is None else momentum_tensor.reshape(())
            mean_out = _moved(mean, found_mean.reshape(-1), share)
            variance_out = _moved(variance, found_variance.reshape(-1), share)
            inverse = 1 / xp.sqrt(found_variance + epsilon)
            y = _like(x, _affine(centered, inverse * scale.reshape(over), bias, over))
            return y, mean_out, variance_out, _vector(found_mean, mean), _vector(inverse, mean)
    inverse = 1 / xp.sqrt(variance.astype(wide.dtype, copy=False) + epsilon)
    y = _like(x, _affine(wide - mean.reshape(over), inverse * scale, bias, over))
    return y, mean.copy(), variance.copy(), mean.copy(), _vector(inverse, mean)


def _moved(running, found, momentum) -> Any:
    return (running * momentum + found * (1 - momentum)).astype(running.dtype, copy=False)


def _vector(statistic, like) -> Any:
    return statistic.reshape(-1).astype(like.dtype, copy=False)


@kernel("batch_norm_grad")
def batch_norm_grad(
    xp, x, scale, bias, saved_mean, saved_inverse, d_y, *, is_test, epsilon, data_layout, use_global_stats,
    trainable_statistics, wanted,
):  # fmt: skip
    is_given = uses_running_statistics(is_test, use_global_stats, trainable_statistics)
    if x.size == scale.size and not is_given:
        return d_y.copy(), xp.zeros_like(scale), xp.zeros_like(bias)
    axes, over = _channels(x, data_layout)
    wide = _working(x, scale.size)
    d = _like(wide, d_y)
    mean, inverse = saved_mean.reshape(over), saved_inverse.reshape(over)
    if is_given:
        normalized = (wide - mean) * inverse
    else:
        normalized, inverse = _normalized_again(xp, wide, mean, inverse, epsilon, axes)
    # Only statistics of this batch depend on X.
    flows_through = wanted[0] and not is_given and x.size
    d_scale = add_over(xp, d * normalized, axes, keepdims=True) if wanted[1] or flows_through else None
    d_bias = add_over(xp, d, axes, keepdims=True) if wanted[2] or flows_through else None
    d_x = None
    if wanted[0]:
        factor = inverse * scale.reshape(over)
        d_x = d * factor if not flows_through else _through(xp, d, normalized, d_scale, d_bias, factor)
    return _like(x, d_x), _vector(d_scale, scale) if wanted[1] else None, _vector(d_bias, bias) if wanted[2] else None


# By channel, over the samples of all ranks


class _OfAll(NamedTuple):
    """Statistics of the channels over the elements of all ranks, float64."""

    elements: int
    """Elements of each channel."""
    mean: Any
    variance: Any
    means: Any
    """The mean of each rank, in rows."""
    sums: Any
    """Other sums that each rank has given, in rows."""


def _of_all(xp, count, mean, variance, *sums, type) -> _OfAll:
    """Exchange this rank's number of elements of a channel, their mean, variance, and other sums for each channel."""
    given = [each.reshape(-1).astype(xp.float64) for each in (mean, variance, *sums)]
    mine = xp.stack([xp.full_like(given[0], count), *given])
    call = Call(type, f"statistics of {mean.size} channels", 0, str(mine.dtype), mine.shape)
    rows = xp.stack(list(current().on(xp).gather(mine, call)))
    counts, means, variances = rows[:, 0], rows[:, 1], rows[:, 2]
    total = xp.maximum(counts.sum(0), 1.0)
    mean = (counts * means).sum(0) / total
    variance = (counts * (variances + xp.square(means - mean))).sum(0) / total
    return _OfAll(int(rows[:, 0, 0].sum()) if mean.size else 0, mean, variance, means, rows[:, 3:])


def _own_moments(xp, x, scale, axes) -> tuple[int, Any, Any, Any]:
    """The number of elements of a channel on this rank, X minus their mean, the mean, and the variance."""
    count = math.prod(x.shape[axis] for axis in axes)
    return count, *_moments(xp, _working(x, scale.size), axes)


@kernel("sync_batch_norm")
def sync_batch_norm(
    xp, x, scale, bias, mean, variance, momentum_tensor, *, is_test, momentum, epsilon, data_layout, use_global_stats,
    trainable_statistics,
):  # fmt: skip
    alone = current().size == 1 or uses_running_statistics(is_test, use_global_stats, trainable_statistics)
    attrs = {"is_test": is_test, "use_global_stats": use_global_stats, "trainable_statistics": trainable_statistics}
    if not alone:
        axes, over = _channels(x, data_layout)
        count, centered, own, own_variance = _own_moments(xp, x, scale, axes)
        found = _of_all(xp, count, own, own_variance, type="sync_batch_norm")
        alone = found.elements <= 1  # no variance; all ranks find the same
    if alone:
        return batch_norm(
            xp, x, scale, bias, mean, variance, momentum_tensor, momentum=momentum, epsilon=epsilon,
            data_layout=data_layout, **attrs,
        )  # fmt: skip
    share = momentum if momentum_tensor is None else momentum_tensor.reshape(())
    inverse = 1 / xp.sqrt(found.variance + epsilon)
    centered += (own.reshape(-1) - found.mean).astype(centered.dtype).reshape(over)
    factor = (inverse * scale).astype(centered.dtype)
    return (
        _like(x, _affine(centered, factor, bias, over)), _moved(mean, found.mean, share),
        _moved(variance, found.variance, share), _vector(found.mean, mean), _vector(inverse, mean),
    )  # fmt: skip


@kernel("sync_batch_norm_grad")
def sync_batch_norm_grad(
    xp, x, scale, bias, saved_mean, saved_inverse, d_y, *, is_test, epsilon, data_layout, use_global_stats,
    trainable_statistics, wanted,
):  # fmt: skip
    alone = current().size == 1 or uses_running_statistics(is_test, use_global_stats, trainable_statistics)
    attrs = {"is_test": is_test, "use_global_stats": use_global_stats, "trainable_statistics": trainable_statistics}
    if not alone:
        axes, over = _channels(x, data_layout)
        count, centered, own, own_variance = _own_moments(xp, x, scale, axes)
        d = _like(centered, d_y)
        along, total = (add_over(xp, each, axes, keepdims=True).reshape(-1) for each in (d * centered, d))
        found = _of_all(xp, count, own, own_variance, along, total, type="sync_batch_norm_grad")
        alone = found.elements <= 1
    if alone:
        return batch_norm_grad(
            xp, x, scale, bias, saved_mean, saved_inverse, d_y, epsilon=epsilon, data_layout=data_layout,
            wanted=wanted, **attrs,
        )  # fmt: skip
    shift = own.reshape(-1) - found.mean
    inverse = 1 / xp.sqrt(found.variance + epsilon)
    d_x = None
    if wanted[0]:
        all_total = found.sums[:, 1].sum(0)
        all_along = (found.sums[:, 0] + (found.means - found.mean) * found.sums[:, 1]).sum(0) * inverse
        slope, shared = -inverse * all_along / found.elements, all_total / found.elements
        # d - mean(d) - normalized * mean(d * normalized), where normalized is (centered + shift) * inverse.
        centered *= slope.astype(d.dtype).reshape(over)
        centered += d
        centered += (slope * shift - shared).astype(d.dtype).reshape(over)
        centered *= (inverse * scale).astype(d.dtype).reshape(over)
        d_x = _like(x, centered)
    d_scale = _vector((along + shift * total) * inverse, scale) if wanted[1] else None
    return d_x, d_scale, _vector(total, bias) if wanted[2] else None


# By sample


@kernel("layer_norm")
def layer_norm(xp, x, scale, bias, *, epsilon, begin_norm_axis, out=None):
    y, mean, variance = _moments(xp, _as_rows(x, begin_norm_axis), (1,))
    y *= 1 / xp.sqrt(variance + epsilon)
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
    rows = _as_rows(x, begin_norm_axis)
    d = _like(rows, d_y)
    inverse = 1 / xp.sqrt(variance[:, None] + epsilon)
    normalized, inverse = _normalized_again(xp, rows, mean[:, None], inverse, epsilon, (1,))
    d_scale = d_bias = d_x = None
    if scale is not None and wanted[1]:
        d_scale = add_over(xp, d * normalized, (0,)).astype(scale.dtype, copy=False)
    if bias is not None and wanted[2]:
        d_bias = add_over(xp, d, (0,)).astype(bias.dtype, copy=False)
    if wanted[0]:
        flowing = d if scale is None else d * scale
        d_x = _gradient_through(xp, flowing, normalized, inverse, (1,))
    return _like(x, d_x), d_scale, d_bias


def _as_rows(x, begin) -> Any:
    rows = math.prod(x.shape[:begin])
    return _working(x.reshape(rows, math.prod(x.shape[begin:])), rows)


# By sample and channel, or group of channels


@kernel("group_norm")
def group_norm(xp, x, scale, bias, *, groups, epsilon, data_layout):
    wide, axes, over = _grouped(x, groups, data_layout)
    centered, mean, variance = _moments(xp, wide, axes)
    centered *= 1 / xp.sqrt(variance + epsilon)
    y = _affine(centered, scale, bias, over)
    return _like(x, y), *(_kept_in(x, each, (len(x), groups)) for each in (mean, variance))


@kernel("group_norm_grad")
def group_norm_grad(xp, x, scale, bias, mean, variance, d_y, *, groups, epsilon, data_layout, wanted):
    wide, axes, over = _grouped(x, groups, data_layout)
    mean, inverse = _kept(mean, axes, wide), 1 / xp.sqrt(_kept(variance, axes, wide) + epsilon)
    normalized, inverse = _normalized_again(xp, wide, mean, inverse, epsilon, axes)
    d = _like(wide, d_y)
    d_scale, d_bias = _affine_gradients(xp, d, normalized, scale, bias, over, wanted)
    d_x = None
    if wanted[0] and scale is None:  # as in fluid, without the mean of the incoming gradient
        count = max(math.prod(d.shape[axis] for axis in axes), 1)
        along = add_over(xp, d * normalized, axes, keepdims=True, divisor=count)
        d_x = inverse * (d - normalized * along)
    elif wanted[0]:
        d_x = _gradient_through(xp, d * scale.reshape(over), normalized, inverse, axes)
    return _like(x, d_x), d_scale, d_bias


@kernel("instance_norm")
def instance_norm(xp, x, scale, bias, *, epsilon):
    wide, axes, over = _grouped(x, x.shape[1], "NCHW")
    centered, mean, variance = _moments(xp, wide, axes)
    inverse = 1 / xp.sqrt(variance + epsilon)
    centered *= inverse
    y = _affine(centered, scale, bias, over)
    return _like(x, y), *(_kept_in(x, each, (-1,)) for each in (mean, inverse))


@kernel("instance_norm_grad")
def instance_norm_grad(xp, x, scale, saved_mean, saved_inverse, d_y, *, epsilon, wanted):
    wide, axes, over = _grouped(x, x.shape[1], "NCHW")
    mean, inverse = (_kept(each, axes, wide) for each in (saved_mean, saved_inverse))
    normalized, inverse = _normalized_again(xp, wide, mean, inverse, epsilon, axes)
    d = _like(wide, d_y)
    d_scale, d_bias = _affine_gradients(xp, d, normalized, scale, scale, over, wanted)
    d_x = _gradient_through(xp, d * scale.reshape(over), normalized, inverse, axes) if wanted[0] else None
    return _like(x, d_x), d_scale, d_bias


@kernel("instance_norm_grad_grad")
def instance_norm_grad_grad(
    xp, x, scale, saved_mean, saved_inverse, d_y, dd_x, dd_scale, dd_bias, *, epsilon, wanted
) -> tuple[Any, Any, Any]:
    """Second gradient with ``P(v) = v - mean(v) - n * mean(v * n)`` for normalized X, n: P is symmetric, and a change
    dX changes n by ``s * P(dX)``. An input of None is zero.
    """
    wide, axes, over = _grouped(x, x.shape[1], "NCHW")
    mean, inverse = (_kept(each, axes, wide) for each in (saved_mean, saved_inverse))
    normalized, inverse = _normalized_again(xp, wide, mean, inverse, epsilon, axes)
    d, by_channel = _like(wide, d_y), scale.reshape(over)
    through = None
    if dd_x is not None:
        flowing = _like(wide, dd_x)
        through = _gradient_through(xp, flowing, normalized.copy(), inverse, axes)
    results: list[Any] = [None, None, None]
    if wanted[0]:
        d_x = xp.zeros_like(wide)
        if x.size:
            d_through = _gradient_through(xp, d, normalized.copy(), inverse, axes)
            if dd_scale is not None:
                d_x += dd_scale.reshape(over) * d_through
            if through is not None:
                share, along, d_along = (
                    add_over(xp, product, axes, keepdims=True, divisor=math.prod(wide.shape[i] for i in axes))
                    for product in (through * d, flowing * normalized, d * normalized)
                )
                bent = normalized * (inverse * share) + inverse * (along * d_through + d_along * through)
                d_x -= by_channel * bent
        results[0] = _like(x, d_x)
    if wanted[1]:
        parts = xp.zeros_like(wide) if through is None else through * d
        summed = add_over(xp, parts, tuple(axis for axis, size in enumerate(over) if size == 1))
        results[1] = summed.astype(scale.dtype, copy=False).reshape(scale.shape)
    if wanted[2]:
        dd_y = xp.zeros_like(wide) if through is None else by_channel * through
        if dd_scale is not None:
            dd_y += dd_scale.reshape(over) * normalized
        if dd_bias is not None:
            dd_y += dd_bias.reshape(over)
        results[2] = _like(x, dd_y)
    return tuple(results)


def _grouped(x, groups, data_layout) -> tuple[Any, tuple[int, int], tuple[int, ...]]:
    """`x` in four dimensions, the dimensions to reduce, and the shape in which a vector of channels broadcasts to it.

    The four are sample, group, channel of the group and position; or, with the channels last, sample, position, group
    and channel.
    """
    wide, channels = _working(x, len(x) * groups), x.shape[-1 if data_layout == CHANNELS_LAST else 1]
    places = math.prod(x.shape[2:] if data_layout != CHANNELS_LAST else x.shape[1:-1])
    each = channels // groups
    if data_layout == CHANNELS_LAST:
        return wide.reshape(len(x), places, groups, each), (1, 3), (1, 1, groups, each)
    return wide.reshape(len(x), groups, each, places), (2, 3), (1, groups, each, 1)


def _kept(statistic, axes, x) -> Any:
    """`statistic` in the shape of `x` with the dimensions `axes` as 1."""
    return statistic.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)])


def _kept_in(x, statistic, shape) -> Any:
    """`statistic` as it is saved for the gradient: in the type of `x`, or in float32 for float16."""
    return statistic.reshape(shape).astype(np.result_type(np.float32, x.dtype), copy=False)


def _affine(x, scale, bias, over) -> Any:
    """``x * scale + bias`` in place; either may be None."""
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
