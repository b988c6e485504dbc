"""Clip values and norms. Every norm comes from `minigraph.kernels.norm`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver
from minigraph.kernels.norm import norm, norm_gradient, norm_gradients, norms_over, unit
from minigraph.kernels.registry import kernel, specialize
from minigraph.kernels.sums import sum_of_squares

_FEW = 4096
"""Maximum elements for which `maximum` and `minimum` are quicker than NumPy's clip."""

_FLOAT64 = np.dtype(np.float64)  # compared quicker than the scalar type

LEAST_FACTOR = {np.dtype(np.float32): 1e-30, _FLOAT64: 1e-290}
"""Minimum factors, by dtype, that keep all their digits when they are rounded to it."""


@kernel("clip")
def clip(xp, x, lower, upper, *, min, max, out=None):
    low, high = _bounds(x, lower, upper, min, max)
    if xp is not np or x.size > _FEW or not x.ndim:  # `maximum` returns a number for an array without dimensions
        return x.clip(low, high, out)
    y = np.maximum(x, low, out=out)
    return np.minimum(y, high, out=y)


def _bounds(x, lower, upper, min, max) -> tuple[Any, Any]:
    """Both bounds in the dtype of `x`, from the attributes or from the arrays that replace them."""
    low = x.dtype.type(min) if lower is None else lower.reshape(1)
    high = x.dtype.type(max) if upper is None else upper.reshape(1)
    # Attributes were checked when the operator was made; tensors have values only here.
    if not (lower is None and upper is None) and not low < high:
        raise ExecutionError(f"Min must be below Max, got {low.item():g} and {high.item():g}")
    return low, high


def _scale_down(xp, x, threshold, scale, ratio, out=None) -> Any:
    """`x` times ``threshold / (scale * ratio)`` if that norm exceeds the threshold, else `x` itself.

    A ratio of NaN gives NaN.
    """
    keeps = ratio <= threshold / scale  # as quotient, because the product may overflow
    if xp is not np:
        wide, factor = x.astype(xp.float64), threshold / ratio / scale
        shrunk = wide * factor
        if not isinstance(scale, float):
            shrunk = xp.where(factor > LEAST_FACTOR[_FLOAT64], shrunk, wide / scale / ratio * threshold)
        return deliver(xp, xp.where(keeps, x, shrunk).astype(x.dtype), out)
    if keeps:
        return deliver(np, x, out)
    factor = threshold / ratio / scale if ratio else np.nan
    if factor > LEAST_FACTOR.get(x.dtype, np.inf):
        return np.multiply(x, x.dtype.type(factor), out=out)
    # A smaller factor, or any in float16, would lose digits.
    shrunk = x.astype(np.float64) / scale / (ratio or np.nan) * threshold
    return deliver(np, shrunk.astype(x.dtype), out)


def scale_all_down(xp, xs: Sequence[Any], threshold, scale, ratio, outs: Sequence[Any], scale_all=None) -> list[Any]:
    """`_scale_down` of each array, with one factor for all if they have one dtype."""
    dtypes = {x.dtype for x in xs}
    if xp is np and len(dtypes) == 1 and ratio > threshold / scale:
        (dtype,) = dtypes
        factor = threshold / ratio / scale
        if factor > LEAST_FACTOR.get(dtype, np.inf):
            number = dtype.type(factor)
            if scale_all is not None:
                return list(scale_all(xs, number, outs))
            return [np.multiply(x, number, out=out) for x, out in zip(xs, outs, strict=True)]
    return [_scale_down(xp, x, threshold, scale, ratio, out) for x, out in zip(xs, outs, strict=True)]


def shrinker(xp, dtype, factor) -> Callable[[Any], Any] | None:
    """A function that scales an array of `dtype` by the result of `clip_factor`; None if nothing is scaled."""
    if xp is not np:
        return lambda x: _scale_down(xp, x, *factor)
    threshold, scale, ratio = factor.tolist()
    if ratio <= threshold / scale:
        return None
    number = threshold / ratio / scale if ratio else np.nan
    if number > LEAST_FACTOR.get(dtype, np.inf):
        return Times(dtype.type(number))
    return lambda x: _scale_down(np, x, threshold, scale, ratio)


@dataclass(frozen=True)
class Times:
    """Multiplication by a number of the array's type."""

    number: Any

    def __call__(self, x, out=None) -> Any:
        return np.multiply(x, self.number, out=out)


@kernel("clip_factor", joins="short")
def clip_factor(xp, xs, clip_norm, *, p, out=None):
    return factor_for(xp, clip_norm, *norm(xp, xs, p), out)


def factor_for(xp, clip_norm, scale, ratio, out) -> tuple[Any, Any]:
    """Result of `clip_factor` for a norm given as two factors."""
    factor_out, norm_out = out or (None, None)
    if xp is np:
        factor = np.array([clip_norm.item(), scale, ratio], np.float64)
        total = np.array([scale * ratio]).astype(clip_norm.dtype, copy=False)
    else:
        threshold = clip_norm.reshape(()).astype(xp.float64)
        factor = xp.stack([xp.asarray(each, xp.float64).reshape(()) for each in (threshold, scale, ratio)])
        total = xp.asarray(scale * ratio).reshape(1).astype(clip_norm.dtype)
    return deliver(xp, factor, factor_out), deliver(xp, total, norm_out)


@kernel("clip_by_norm", view="x")
def clip_by_norm(xp, x, *, max_norm, out=None):
    scale, ratio = norm(xp, [x])
    return _scale_down(xp, x, max_norm, scale, ratio, out)


@kernel("clip_by_global_norm", view="xs", joins="short")
def clip_by_global_norm(xp, xs, clip_norm, *, p=2.0, strict=False, out=None):
    return clipped_by(xp, xs, clip_norm, *norm(xp, xs, p), strict, out)


def clipped_by(xp, xs, clip_norm, scale, ratio, strict, out, scale_all=None) -> tuple[list[Any], Any]:
    """Result of `clip_by_global_norm` for a norm given as two factors.

    ``scale_all(xs, number, outs)`` may multiply all arrays with a number of their type.
    """
    outs, norm_out = out or ([None] * len(xs), None)
    threshold = clip_norm.item() if xp is np else clip_norm.reshape(()).astype(xp.float64)
    total = xp.asarray(scale * ratio).reshape(1).astype(clip_norm.dtype)
    if strict:
        _check_threshold("ClipNorm", clip_norm.item())
        ratio = ratio if xp is np and ratio < np.inf else xp.where(xp.isfinite(ratio), ratio, np.nan)
    return scale_all_down(xp, xs, threshold, scale, ratio, outs, scale_all), deliver(xp, total, norm_out)


@kernel("clip_by_axis_norm", view="x")
def clip_by_axis_norm(xp, x, threshold, *, axes, max_norm, p, out=None):
    threshold, scale, ratio, keeps, _ = _slices(xp, x, threshold, axes, max_norm, p)
    if xp is np and keeps.all():
        return deliver(np, x, out)
    shrunk = x.astype(xp.float64) / scale / ratio * threshold
    return deliver(xp, xp.where(keeps, x, shrunk.astype(x.dtype)), out)


def _slices(xp, x, threshold, axes, max_norm, p) -> tuple[Any, ...]:
    """Threshold, norms of the slices as two factors, mask of the slices that are kept, and dimensions of a slice."""
    axes = tuple(sorted({axis % x.ndim for axis in axes})) or tuple(range(x.ndim))
    if threshold is None:
        threshold = max_norm
    else:
        _check_threshold("MaxNorm", threshold.item())
        threshold = threshold.astype(xp.float64).reshape((1,) * x.ndim)
    scale, ratio = norms_over(xp, x, axes, p)
    return threshold, scale, ratio, ratio <= threshold / scale, axes


def _check_threshold(name, threshold) -> None:
    if not threshold > 0:
        raise ExecutionError(f"{name} must be positive, got {threshold:g}")


@kernel("clip_grad")
def clip_grad(xp, x, lower, upper, d_out, *, min, max, out=None):
    low, high = _bounds(x, lower, upper, min, max)
    return xp.multiply(d_out, (x > low) & (x < high), out=out)


@kernel("clip_by_norm_grad")
def clip_by_norm_grad(xp, x, d_out, *, max_norm, out=None):
    d_xs, _ = _clip_gradients(xp, [x], [d_out], max_norm, 2.0)
    return deliver(xp, d_xs[0], out)


@kernel("clip_by_global_norm_grad")
def clip_by_global_norm_grad(xp, xs, clip_norm, d_outs, d_norm, *, p):
    threshold = clip_norm.item() if xp is np else clip_norm.reshape(()).astype(xp.float64)
    d_xs, d_threshold = _clip_gradients(xp, xs, d_outs, threshold, p, d_norm)
    return d_xs, xp.asarray(d_threshold).astype(clip_norm.dtype).reshape(clip_norm.shape)


def _clip_gradients(xp, xs: Sequence[Any], d_outs: Sequence[Any], threshold, p, d_norm=None) -> tuple[list[Any], Any]:
    """Gradients by the arrays clipped together and by the threshold c.

    ``dX = dOut`` and ``dc = 0`` up to the threshold; above it ``dc = sum(X * dOut) / n`` and
    ``dX = c / n * (dOut - dc * g)`` with n = norm(X) and g its gradient: the component along X vanishes, because Out
    does not depend on the length of X. A gradient of the norm itself adds ``d_norm * g``.
    """
    scale, ratio = norm(xp, xs, p)
    keeps = ratio <= threshold / scale
    if xp is np and keeps and d_norm is None:  # copies, since a gradient is not registered as a view
        return [d_out.copy() for d_out in d_outs], 0.0
    along = sum([xp.sum(unit(xp, x, scale, ratio) * d_out) for x, d_out in zip(xs, d_outs, strict=True)])
    factor = threshold / scale / (ratio + (ratio == 0))
    d_xs = []
    for x, d_out, gradient in zip(xs, d_outs, norm_gradients(xp, xs, scale, ratio, p), strict=True):
        d_x = xp.where(keeps, d_out, (d_out - along * gradient) * factor)
        d_xs.append((d_x if d_norm is None else d_x + d_norm * gradient).astype(x.dtype).reshape(x.shape))
    return d_xs, xp.where(keeps, 0.0, along)


@kernel("clip_by_axis_norm_grad")
def clip_by_axis_norm_grad(xp, x, threshold, d_out, *, axes, max_norm, p):
    """`_clip_gradients` for every slice."""
    given = threshold
    threshold, scale, ratio, keeps, axes = _slices(xp, x, threshold, axes, max_norm, p)
    along = xp.sum(unit(xp, x, scale, ratio) * d_out, axis=axes, keepdims=True)
    ties = xp.sum(xp.absolute(x) == ratio, axis=axes, keepdims=True) if p == np.inf else 1
    factor = threshold / scale / (ratio + (ratio == 0))
    d_x = (d_out - along * norm_gradient(xp, x, scale, ratio, p, ties)) * factor
    d_x = xp.where(keeps, d_out, d_x).astype(x.dtype)
    if given is None:
        return d_x, None
    return d_x, xp.sum(xp.where(keeps, 0.0, along)).astype(given.dtype).reshape(given.shape)


@specialize("clip")
def _quicker_clip(xp, x, lower, upper, *, min, max):
    """The same functions, with the bounds computed in advance."""
    if xp is not np or lower is not None or upper is not None:
        return None
    low, high = np.array(min, x.dtype), np.array(max, x.dtype)
    if np.prod(x.shape) > _FEW or not x.shape:
        return lambda x, lower, upper, out=None: x.clip(low, high, out)
    minimum, maximum = np.minimum, np.maximum

    def clip(x, lower, upper, out=None):
        y = maximum(x, low, out=out)
        return minimum(y, high, out=y)

    return clip


@specialize("clip_by_norm")
def _quicker_clip_by_norm(xp, x, *, max_norm):
    """The same in fewer calls, for float32, whose squares neither overflow nor underflow in float64."""
    if xp is not np or x.dtype != np.float32:
        return None
    least = LEAST_FACTOR[np.dtype(np.float32)]

    def clip(x, out=None):
        norm = sum_of_squares(np, x) ** 0.5
        factor = max_norm / norm if norm > max_norm else 0.0
        if factor > least:
            return np.multiply(x, np.float32(factor), out=out)
        return _scale_down(np, x, max_norm, 1.0, norm, out)

    return clip
