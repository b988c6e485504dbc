"""Bounding values and norms. Everything that is clipped by its norm gets it from `norm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver
from minigraph.kernels.reduce import sum_of_squares
from minigraph.kernels.registry import kernel, specialize

_FEW = 4096
"""Up to so many elements two plain functions are quicker than NumPy's clip."""

_FLOAT64 = np.dtype(np.float64)  # compared quicker than the scalar type

_LEAST_FACTOR = {np.dtype(np.float32): 1e-30, _FLOAT64: 1e-290}
"""Factors above these keep all their digits when they are rounded to the type."""


@kernel("clip")
def clip(xp, x, lower, upper, *, min, max, out=None):
    low, high = _bounds(x, lower, upper, min, max)
    if xp is not np or x.size > _FEW:
        return x.clip(low, high, out)
    y = np.maximum(x, low, out=out)
    return np.minimum(y, high, out=y)


def _bounds(x, lower, upper, min, max) -> tuple[Any, Any]:
    """Both bounds in the dtype of `x`, from the attributes or the arrays that stand in for them."""
    low = x.dtype.type(min) if lower is None else lower.reshape(1)
    high = x.dtype.type(max) if upper is None else upper.reshape(1)
    if not (lower is None and upper is None) and not low < high:
        raise ExecutionError(f"Min must be below Max, got {low.item():g} and {high.item():g}")
    return low, high


def norm(xp, arrays: Sequence[Any]) -> tuple[Any, Any]:
    """Joint L2 norm of `arrays`, as two factors in float64, `scale` and `ratio`.

    `scale` is 1 unless the squares of float64 values might overflow or underflow; then it is the largest magnitude.
    The factors themselves never overflow or underflow, their product may. `ratio` is NaN if a value is NaN, else
    infinite if one is.

    Returns
    -------
    scale, ratio : float or array of rank 0
        Python floats for NumPy. For CuPy arrays, whose values are not waited for.
    """
    needs_scale = any([x.dtype == _FLOAT64 and x.size for x in arrays])
    if xp is np:
        total = sum([sum_of_squares(np, x) for x in arrays])
        # In between no square that matters was lost; those of narrower types never are.
        if not needs_scale or 1e-280 < total < 1e300:
            return 1.0, total**0.5
        scale = np.amax([np.amax(np.absolute(x)) for x in arrays if x.size]).item()
        if not 0 < scale < np.inf:
            return 1.0, scale
        return scale, sum([sum_of_squares(np, x.astype(np.float64) / scale) for x in arrays]) ** 0.5
    scale = 1.0
    if needs_scale:
        largest = xp.zeros((), xp.float64)
        for x in arrays:
            if x.size:
                largest = xp.maximum(largest, xp.amax(xp.absolute(x)))
        is_extreme = ((largest > 0) & (largest < 1e-140)) | ((largest > 1e140) & (largest < xp.inf))
        scale = xp.where(is_extreme, largest, scale)
        arrays = [x.astype(xp.float64) / scale for x in arrays]
    total = xp.zeros((), xp.float64)
    for x in arrays:
        total = total + sum_of_squares(xp, x)
    return scale, xp.sqrt(total)


def _scale_down(xp, x, threshold, scale, ratio, out=None) -> Any:
    """`x` times ``threshold / (scale * ratio)`` where that norm exceeds the threshold, else `x` itself.

    NaN as the ratio gives NaN.
    """
    keeps = ratio <= threshold / scale
    if xp is not np:
        wide, factor = x.astype(xp.float64), threshold / ratio / scale
        shrunk = wide * factor
        if not isinstance(scale, float):
            shrunk = xp.where(factor > _LEAST_FACTOR[_FLOAT64], shrunk, wide / scale * (threshold / ratio))
        return deliver(xp, xp.where(keeps, x, shrunk).astype(x.dtype), out)
    if keeps:
        return deliver(np, x, out)
    factor = threshold / ratio / scale if ratio else np.nan
    if factor > _LEAST_FACTOR.get(x.dtype, np.inf):
        return np.multiply(x, x.dtype.type(factor), out=out)
    shrunk = x.astype(np.float64) / scale * (threshold / ratio if ratio else np.nan)
    return deliver(np, shrunk.astype(x.dtype), out)


@kernel("clip_by_norm", view="x")
def clip_by_norm(xp, x, *, max_norm, out=None):
    scale, ratio = norm(xp, [x])
    return _scale_down(xp, x, max_norm, scale, ratio, out)


@kernel("clip_by_global_norm", view="xs")
def clip_by_global_norm(xp, xs, clip_norm, *, out=None):
    outs, norm_out = out or ([None] * len(xs), None)
    scale, ratio = norm(xp, xs)
    threshold = clip_norm.item() if xp is np else clip_norm.reshape(()).astype(xp.float64)
    total = xp.asarray(scale * ratio).reshape(1).astype(clip_norm.dtype)
    clipped = [_scale_down(xp, x, threshold, scale, ratio, each) for x, each in zip(xs, outs, strict=True)]
    return clipped, deliver(xp, total, norm_out)


@kernel("clip_grad")
def clip_grad(xp, x, lower, upper, d_out, *, min, max, out=None):
    low, high = _bounds(x, lower, upper, min, max)
    return xp.multiply(d_out, (x > low) & (x < high), out=out)


@kernel("clip_by_norm_grad")
def clip_by_norm_grad(xp, x, d_out, *, max_norm, out=None):
    """``dX = dOut`` up to the threshold c, above it ``c / n * (dOut - u * sum(u * dOut))`` with n = norm(X), u = X / n.

    What points along X is lost, because Out no longer depends on the length of X.
    """
    scale, ratio = norm(xp, [x])
    keeps = ratio <= max_norm / scale
    if xp is np and keeps:
        return d_out.copy() if out is None else deliver(np, d_out, out)
    unit = x.astype(xp.float64) / scale / ratio
    along = xp.sum(unit * d_out)
    d_x = (d_out - unit * along) * (max_norm / scale / ratio)
    return deliver(xp, xp.where(keeps, d_out, d_x).astype(x.dtype), out)


@specialize("clip")
def _quicker_clip(xp, x, lower, upper, *, min, max):
    """The same functions, with the bounds made beforehand."""
    if xp is not np or lower is not None or upper is not None:
        return None
    low, high = np.array(min, x.dtype), np.array(max, x.dtype)
    if np.prod(x.shape) > _FEW:
        return lambda x, lower, upper, out=None: x.clip(low, high, out)
    minimum, maximum = np.minimum, np.maximum

    def clip(x, lower, upper, out=None):
        y = maximum(x, low, out=out)
        return minimum(y, high, out=y)

    return clip
