"""Norms of one array, of several together, or along dimensions: the only place where lengths are computed.

A norm is the root of order p of the sum of the magnitudes to the power of p; the norm of order infinity is the largest
magnitude. A norm is given as two factors in float64, `scale` and `ratio`, which never overflow or underflow, but whose
product may. `scale` is 1 if no power can overflow or underflow; otherwise, for orders from 1 to 64, a power of two, so
that dividing by it loses no digit. `ratio` is NaN if a value is NaN, else infinite if a value is.

Norms of order 1, 2 and infinity are within 2 units of the last place of the exact norm, in whatever order BLAS adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import (
    add_exactly,
    add_over,
    parts_of_sizes,
    pieces,
    squares_in_parts,
    sum_of_sizes,
    sum_of_squares,
)

_FLOAT64 = np.dtype(np.float64)  # compared quicker than the scalar type

SHORT = 8192
"""Maximum elements of an array that is joined with its neighbours before squares are summed."""

_HIGH = 64
"""Maximum order p for which no sum of p-th powers of numbers from 1 to 2 overflows."""


def norm(xp, arrays: Sequence[Any], p: float = 2.0, joined: Sequence[Any] | None = None) -> tuple[Any, Any]:
    """Joint norm of order `p` of all elements of `arrays`, as two factors, `scale` and `ratio`.

    `joined` is what `short_joined` makes of the arrays, if the caller has that already.

    Returns
    -------
    scale, ratio : float or array of rank 0
        Python floats for NumPy. For CuPy arrays, whose values are not waited for.
    """
    if p == np.inf:
        return 1.0, _largest(xp, arrays)
    if p != 2:
        return _general_norm(xp, arrays, p)
    if xp is np:
        joined = short_joined(arrays) if joined is None else joined
        needs_scale = any([x.dtype == _FLOAT64 and x.size for x in joined])
        parts = [part for x in joined for part in squares_in_parts(x)]
        total = parts[0] if len(parts) == 1 else add_exactly(parts)
        if not needs_scale or _has_safe_squares(total):  # narrower types always have
            return 1.0, total**0.5
        return _general_norm(np, arrays, p)
    scale, total = _sum_on_device(xp, arrays, p)
    return scale, xp.sqrt(total)


def sums_of_powers(xp, x, p: float) -> tuple[Any, Any, Any]:
    """A row of the `sums` of `norm_of_sums`, for some of the elements whose norm it computes: `scale`, `high`, `low`.

    Their norm of order `p` is ``scale * (high + low) ** (1 / p)``, and `low` is what rounding the sum of the powers has
    lost. So joint norms of orders 1 and 2 have the same bits however the elements are divided, except on a device, and
    squares of narrower types than float64 in exact programs only. For order infinity `high` is the norm.
    """
    if p == np.inf:
        return 1.0, _largest(xp, [x]), 0.0
    if xp is not np:
        return *_sum_on_device(xp, [x], p), 0.0
    if p == 2:
        parts = squares_in_parts(x)
        high = add_exactly(parts)
        if x.dtype != _FLOAT64 or _has_safe_squares(high):
            return 1.0, high, _rest(high, parts)
    largest = _largest(np, [x])
    if not 0 < largest < np.inf:
        return 1.0, largest, 0.0
    scale = _scale_for(np, largest, p)
    parts = _parts_of_powers([x], scale, p)
    high = add_exactly(parts)
    return float(scale), high, _rest(high, parts)


def norm_of_sums(xp, sums, p: float) -> tuple[Any, Any]:
    """The joint norm, as `norm` returns it, of elements whose parts gave the rows of `sums`, see `sums_of_powers`."""
    scales, highs, lows = sums.T
    if p == np.inf:
        return 1.0, float(highs.max(initial=0.0)) if xp is np else highs.max()
    scales = xp.where(highs != 0, scales, 0.0)
    largest = xp.amax(scales)
    scale = xp.where(largest > 0, largest, 1.0)
    # Powers of two for orders 1 and 2, so that no digit is lost; what is not finite stays so.
    shares = xp.where(xp.isfinite(highs), scales / scale, 1.0) ** p
    sums = xp.concatenate([highs * shares, lows * shares])
    if xp is not np:
        return _root(xp, sum_of_sizes(xp, sums, (0,)).reshape(()), scale, p)
    total = add_exactly(sums.tolist())
    if p == 2 and scale == 1 and _has_safe_squares(total):
        return 1.0, total**0.5
    if not 0 < total < math.inf:
        return 1.0, total
    scale, ratio = _root(np, np.float64(total), scale, p)
    return float(scale), float(ratio)


def _rest(high: float, parts: Sequence[float]) -> float:
    """Exact sum of `parts` less `high`, to which it was rounded; 0 where `high` is not finite."""
    return math.fsum([*parts, -high]) if math.isfinite(high) else 0.0


def _has_safe_squares(total: float) -> bool:
    """Whether no square of float64 that changes their sum `total` has overflowed or underflowed."""
    return 1e-280 < total < 1e300


def short_joined(arrays: Sequence[Any]) -> Sequence[Any]:
    """Join runs of short arrays of one dtype to one vector each, which is faster to square.

    A caller that passes one vector for such a run gets the same sum, bit for bit.
    """
    if len(arrays) == 1 or all([x.size > SHORT for x in arrays]):
        return arrays
    found: list[Any] = []
    for kind, group in groupby(arrays, key=lambda x: kind_if_short(x.dtype, x.size)):
        run = list(group)
        found.extend(run if kind is None or len(run) == 1 else [np.concatenate(run, axis=None)])
    return found


def kind_if_short(dtype, size: int) -> str | None:
    """Key by which short neighbours are joined; None for an array that is not short."""
    return dtype.str if size <= SHORT else None  # not the dtype: that of float64 is equal to None


def norms_over(xp, x, axes: tuple[int, ...], p: float = 2.0) -> tuple[Any, Any]:
    """Norms of order `p` over the dimensions `axes`, one for each remaining index; the dimensions are kept as 1."""
    if not x.size:
        kept = xp.zeros([1 if axis in axes else size for axis, size in enumerate(x.shape)])
        return xp.ones_like(kept), kept
    sizes = x.astype(_FLOAT64)
    if p != 2 or x.dtype == _FLOAT64:
        xp.absolute(sizes, out=sizes)
    if x.dtype != _FLOAT64 and p in (1, 2):  # squares of narrower types are safe
        total = add_over(xp, _powers(xp, sizes, p), axes, keepdims=True)
        return _root(xp, total, xp.ones_like(total), p)
    largest = xp.amax(sizes, axis=axes, keepdims=True)
    if p == np.inf:
        return xp.ones_like(largest), largest
    scale = _scale_for(xp, largest, p)
    sizes /= scale
    return _root(xp, sum_of_sizes(xp, _powers(xp, sizes, p), axes), scale, p)


def unit(xp, x, scale, ratio) -> Any:
    """`x` divided by its norm, in float64; zeros where the norm is 0."""
    return x.astype(_FLOAT64) / scale / (ratio + (ratio == 0))


def norm_gradient(xp, x, scale, ratio, p: float, ties=1) -> Any:
    """The derivative of a norm by the elements of `x`, in float64.

    ``sign(x) * (|x| / norm) ** (p - 1)``, and 0 for an element that is 0, so for a norm that is 0. For the order
    infinity the elements that attain the norm, `ties` in number, share the derivative equally, which is one of its
    subgradients.
    """
    if p == np.inf:
        return xp.sign(x).astype(_FLOAT64) * (xp.absolute(x) == ratio) / ties
    direction = unit(xp, x, scale, ratio)
    if p == 2:
        return direction
    sizes = xp.absolute(direction)
    return xp.where(direction == 0, 0.0, xp.sign(direction) * sizes ** (p - 1))


def norm_gradients(xp, arrays: Sequence[Any], scale, ratio, p: float) -> list[Any]:
    """`norm_gradient` of the joint norm of `arrays` for each of them."""
    ties = sum([xp.count_nonzero(xp.absolute(x) == ratio) for x in arrays]) if p == np.inf else 1
    return [norm_gradient(xp, x, scale, ratio, p, ties) for x in arrays]


def _largest(xp, arrays: Sequence[Any]) -> Any:
    """The largest magnitude of all elements, 0 if there are none."""
    extremes = [end.astype(_FLOAT64) for x in arrays if x.size for end in (xp.amax(x), -xp.amin(x))]
    if xp is np:
        return abs(float(np.amax(extremes))) if extremes else 0.0
    largest = xp.zeros((), xp.float64)
    for extreme in extremes:
        largest = xp.maximum(largest, extreme)
    return largest


def _scale_for(xp, largest, p: float) -> Any:
    """Divisor that keeps every power of order `p` that matters from overflow and underflow; 1 for 0, inf and NaN."""
    if 1 <= p <= _HIGH:
        _, exponent = xp.frexp(largest)
        scale = xp.ldexp(xp.ones_like(largest, dtype=xp.float64), exponent - 1)
    else:
        scale = largest
    return xp.where((largest > 0) & (largest < np.inf), scale, 1.0)


def _powers(xp, sizes, p: float) -> Any:
    """`sizes` to the power of `p`; `sizes` may be overwritten."""
    return sizes if p == 1 else xp.square(sizes, out=sizes) if p == 2 else xp.power(sizes, p, out=sizes)


def _root(xp, total, scale, p: float) -> tuple[Any, Any]:
    """The root of order `p`, with half of it moved to the scale where it would overflow, as for p = 0.01."""
    if p == 1:
        return scale, total
    if p == 2:
        return scale, xp.sqrt(total)
    root, half = total ** (1 / p), total ** (0.5 / p)
    is_split = xp.isinf(root) & xp.isfinite(total)
    # The rounding of 1 / p is magnified by the logarithm of the total; a step of Newton's method corrects the root.
    error = root * ((root**p - total) / total) / p
    root = xp.where(xp.isfinite(error), root - error, root)
    return xp.where(is_split, scale * half, scale), xp.where(is_split, half, root)


def _general_norm(xp, arrays: Sequence[Any], p: float) -> tuple[Any, Any]:
    """The norm of order `p`, neither 2 with safe squares nor infinity, in factors with a scale."""
    if xp is not np:
        scale, total = _sum_on_device(xp, arrays, p)
        return _root(xp, total, scale, p)
    largest = _largest(xp, arrays)
    if not 0 < largest < np.inf:
        return 1.0, largest
    scale = _scale_for(np, largest, p)
    # As a NumPy number, because a power of a Python float that overflows raises an error.
    scale, ratio = _root(np, np.float64(add_exactly(_parts_of_powers(arrays, scale, p))), scale, p)
    return float(scale), float(ratio)


def _parts_of_powers(arrays: Sequence[np.ndarray], scale, p: float) -> list[float]:
    """Numbers whose exact sum is that of the p-th powers of all elements, divided by `scale`."""
    found = [piece for x in arrays for piece in pieces(x.reshape(-1))]
    return [part for piece in found for part in parts_of_sizes(_scaled_powers(np, piece, scale, p))]


def _scaled_powers(xp, x, scale, p: float) -> Any:
    return _powers(xp, xp.absolute(x).astype(_FLOAT64) / scale, p)


def _sum_on_device(xp, arrays: Sequence[Any], p: float) -> tuple[Any, Any]:
    """The sum of the p-th powers of all elements, divided by a scale, which is returned with it."""
    if p != 2:
        scale = _scale_for(xp, _largest(xp, arrays), p)
        powers = [_scaled_powers(xp, x.reshape(-1), scale, p) for x in arrays]
        return scale, _added(xp, [sum_of_sizes(xp, each, (0,)).reshape(()) for each in powers])
    scale = 1.0
    if any([x.dtype == _FLOAT64 and x.size for x in arrays]):
        largest = _largest(xp, arrays)
        is_extreme = ((largest > 0) & (largest < 1e-140)) | ((largest > 1e140) & (largest < xp.inf))
        scale = xp.where(is_extreme, _scale_for(xp, largest, p), 1.0)
        arrays = [x.astype(xp.float64) / scale for x in arrays]
    return scale, _added(xp, [sum_of_squares(xp, x) for x in arrays])


def _added(xp, sizes: Sequence[Any]) -> Any:
    """The sum of arrays of rank 0, on a device."""
    return sum_of_sizes(xp, xp.stack(sizes), (0,)).reshape(()) if sizes else xp.zeros((), xp.float64)


@kernel("global_norm", joins="short")
def global_norm(xp, xs, *, p, out=None):
    scale, ratio = norm(xp, xs, p)
    dtype = np.result_type(np.float32, *[x.dtype for x in xs])
    return deliver(xp, xp.asarray(scale * ratio).reshape(1).astype(dtype), out)


@kernel("global_norm_grad")
def global_norm_grad(xp, xs, d_out, *, p):
    scale, ratio = norm(xp, xs, p)
    gradients = norm_gradients(xp, xs, scale, ratio, p)
    return [(each * d_out).astype(x.dtype).reshape(x.shape) for x, each in zip(xs, gradients, strict=True)]


@kernel("l1_norm")
def l1_norm(xp, x, *, out=None):
    scale, ratio = norm(xp, [x], 1)
    return deliver(xp, xp.asarray(scale * ratio).reshape(1).astype(x.dtype), out)


@kernel("l1_norm_grad")
def l1_norm_grad(xp, x, d_out, *, out=None):
    return xp.multiply(xp.sign(x), d_out, out=out)


@kernel("p_norm")
def p_norm(xp, x, *, porder, axis, keepdim, out=None):
    scale, ratio = norms_over(xp, x, (axis % x.ndim,), porder)
    total = scale * ratio
    if not keepdim and x.ndim > 1:
        total = xp.squeeze(total, axis)
    return deliver(xp, total.astype(x.dtype, copy=False), out)


@kernel("p_norm_grad")
def p_norm_grad(xp, x, result, d_out, *, porder, axis, epsilon, out=None):
    """Compute the norm again: rounded to the type of `result` it may have overflowed."""
    scale, ratio = norms_over(xp, x, (axis % x.ndim,), porder)
    slope = norm_gradient(xp, x, scale, ratio, porder)
    if epsilon:
        slope /= 1 + epsilon * (scale * ratio) ** (1 - porder)
    return deliver(xp, (slope * d_out.reshape(ratio.shape)).astype(x.dtype), out)


@kernel("norm")
def norm_along(xp, x, *, axis, epsilon, out=None):
    norm_out, result_out = out or (None, None)
    wide, length = _wide_and_length(xp, x, axis, epsilon)
    result = _over_length(wide, length, x.dtype).astype(x.dtype, copy=False)
    return deliver(xp, length.astype(x.dtype, copy=False), norm_out), deliver(xp, result, result_out)


@kernel("norm_grad")
def norm_along_grad(xp, x, length, d_out, *, axis, epsilon, out=None):
    """``dX = (dOut - Out * sum(Out * dOut)) / Norm``; Norm is computed again: the given one may have overflowed."""
    wide, length = _wide_and_length(xp, x, axis, epsilon)
    result, d = _over_length(wide, length, x.dtype), d_out.astype(_FLOAT64)
    product = result * d
    along = add_over(xp, product, (axis % x.ndim,), keepdims=True)
    d -= xp.multiply(result, along, out=product)
    return deliver(xp, _over_length(d, length, x.dtype).astype(x.dtype, copy=False), out)


def _over_length(wide, length, dtype) -> Any:
    """``wide / length``, in place; for narrower types by the reciprocal, which takes half the time and loses no digit.

    Both are float64, whatever the type.
    """
    if dtype == _FLOAT64:
        wide /= length
    else:
        wide *= 1 / length
    return wide


def _wide_and_length(xp, x, axis, epsilon) -> tuple[Any, Any]:
    """A copy of `x` in float64, and ``sqrt(sum(x ** 2) + epsilon)``."""
    wide = x.astype(_FLOAT64)
    if x.dtype != _FLOAT64 and x.size:  # squares of narrower types are safe
        return wide, xp.sqrt(add_over(xp, wide * wide, (axis % x.ndim,), keepdims=True) + epsilon)
    scale, ratio = norms_over(xp, x, (axis % x.ndim,))
    return wide, xp.hypot(scale * ratio, math.sqrt(epsilon))
