"""Sums, means and extremes over dimensions or over a list of arrays.

There is no rank 0: reducing over everything gives shape [1].
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.registry import kernel, specialize
from minigraph.types import as_dtype

_MANY_ROWS = 1024
"""From so many rows on, rows are added in stages."""

_SPAN = 2048
"""So many squares of float32 are added in float32 before the sums go on in float64."""

_PIECE = 8192
"""So many elements are converted to float64 at a time: they stay in the cache."""

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)  # compared quicker than the scalar types


def add_over(xp, x, axes, keepdims=False, divisor=1, out=None) -> Any:
    """Sum of `x` over the dimensions `axes`, a tuple, divided by `divisor`; in the dtype of `x`.

    float16 is added in float32. NumPy adds pairwise along the last dimension but row after row along others, so that
    rounding errors pile up; rows are therefore added by `sum_of_rows`.
    """
    if x.dtype == np.float16:
        total = xp.sum(x, axis=axes, dtype=xp.float32, keepdims=keepdims) / divisor
        return deliver(xp, total.astype(xp.float16), out)
    if xp is not np:
        total = xp.sum(x, axis=axes, dtype=x.dtype, out=out, keepdims=keepdims)
    elif x.dtype in (_FLOAT32, _FLOAT64) and are_rows(x.shape, axes):
        kept = x.shape[len(axes) :]
        total = sum_of_rows(x.reshape(math.prod(x.shape[: len(axes)]), math.prod(kept)))
        total = deliver(np, total.reshape((1,) * len(axes) + kept if keepdims else kept), out)
    else:
        total = np.add.reduce(x, axes, x.dtype, out, keepdims=keepdims)
    return total if divisor == 1 else xp.true_divide(total, divisor, out=total)


def are_rows(shape, axes) -> bool:
    """Whether `axes`, of which there are some, are the leading dimensions but not all."""
    return len(axes) < len(shape) and max(axes) == len(axes) - 1


def sum_of_rows(x: np.ndarray, out=None) -> np.ndarray:
    """Sum of the rows of a matrix of float32 or float64, as a product with ones.

    That is several times as quick as NumPy's sum and rounds less. Many rows are added 32 at a time and then the sums
    likewise, short ones joined to long vectors.
    """
    rows, columns = x.shape
    if rows < _MANY_ROWS or not columns:
        return np.dot(ones(rows, x.dtype), x, out)
    joined = max(1, min(rows // 32, 2048 // columns))
    even = rows // (32 * joined) * 32 * joined
    total = sum_of_rows(np.add.reduce(x[:even].reshape(-1, 32, joined * columns), 1).reshape(-1, columns))
    return deliver(np, total + sum_of_rows(x[even:]) if even < rows else total, out)


@lru_cache(maxsize=64)
def ones(count, dtype) -> np.ndarray:
    """A vector of ones that is kept and must not be written to."""
    vector = np.ones(count, dtype)
    vector.flags.writeable = False
    return vector


def sum_of_squares(xp, x) -> Any:
    """Sum of the squares of all elements of `x`, in float64.

    Of float16 and float32 it neither overflows nor underflows.

    Returns
    -------
    float or array of rank 0
        A Python float for NumPy.

    Notes
    -----
    Long float32 arrays are taken in spans of 2048, whose squares one matrix product adds in float32. That is nearly as
    quick as ``np.vdot`` and agrees with float64 to about 1e-8. Where float32 might lose squares at either end of its
    range the sum is made anew in float64.
    """
    if xp is not np:
        return xp.sum(xp.square(x, dtype=xp.float64))
    flat = x.reshape(-1)
    if flat.size <= _PIECE or flat.dtype == _FLOAT64:
        return _squares_in_float64(flat)
    if flat.dtype == _FLOAT32:
        count = flat.size // _SPAN
        spans, rest = flat[: count * _SPAN].reshape(count, 1, _SPAN), flat[count * _SPAN :]
        total = float(np.add.reduce(np.matmul(spans, spans.reshape(count, _SPAN, 1)), None, _FLOAT64))
        if rest.size:
            total += float(rest.dot(rest))
        # A square lost to underflow is below 1e-37; a span overflows above 3e38. NaN and infinity fail this too.
        if flat.size * 1e-28 < total < 1e38:
            return total
    return math.fsum([sum_of_squares(np, flat[start : start + _PIECE]) for start in range(0, flat.size, _PIECE)])


def _squares_in_float64(flat) -> float:
    flat = flat.astype(_FLOAT64, copy=False)
    return float(flat.dot(flat))


def _over(x, dim, keep_dim, reduce_all) -> tuple[Any, tuple[int, ...]]:
    """`x` and the dimensions to reduce, arranged so that one remains."""
    axes = tuple(range(x.ndim)) if reduce_all else tuple(sorted(axis % x.ndim for axis in dim))
    if len(axes) == x.ndim and not keep_dim:
        return x.reshape(1, -1), (1,)
    return x, axes


def _converted(x, out_dtype) -> Any:
    return x if out_dtype == -1 else x.astype(as_dtype(out_dtype).numpy, copy=False)


def _count(x, axes) -> int:
    return math.prod(x.shape[axis] for axis in axes)


@kernel("mean")
def mean(xp, x, *, out=None):
    return add_over(xp, x.reshape(1, -1), (1,), divisor=x.size, out=out)


@kernel("reduce_sum")
def reduce_sum(xp, x, *, dim, keep_dim, reduce_all, out_dtype, out=None):
    x, axes = _over(_converted(x, out_dtype), dim, keep_dim, reduce_all)
    return add_over(xp, x, axes, keep_dim, out=out)


@kernel("reduce_mean")
def reduce_mean(xp, x, *, dim, keep_dim, reduce_all, out_dtype, out=None):
    x, axes = _over(_converted(x, out_dtype), dim, keep_dim, reduce_all)
    if x.dtype.kind == "f":
        return add_over(xp, x, axes, keep_dim, divisor=_count(x, axes), out=out)
    total = add_over(xp, x, axes, keep_dim)
    return deliver(xp, xp.sign(total) * (xp.abs(total) // _count(x, axes)), out)  # toward zero


@kernel("reduce_max")
def reduce_max(xp, x, *, dim, keep_dim, reduce_all, out_dtype, out=None):
    x, axes = _over(_converted(x, out_dtype), dim, keep_dim, reduce_all)
    if _count(x, axes) == 0:
        return _filled(xp, x, axes, keep_dim, -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, out)
    return xp.amax(x, axis=axes, out=out, keepdims=keep_dim)


@kernel("reduce_min")
def reduce_min(xp, x, *, dim, keep_dim, reduce_all, out_dtype, out=None):
    x, axes = _over(_converted(x, out_dtype), dim, keep_dim, reduce_all)
    if _count(x, axes) == 0:
        return _filled(xp, x, axes, keep_dim, np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max, out)
    return xp.amin(x, axis=axes, out=out, keepdims=keep_dim)


@kernel("reduce_prod")
def reduce_prod(xp, x, *, dim, keep_dim, reduce_all, out_dtype, out=None):
    x, axes = _over(_converted(x, out_dtype), dim, keep_dim, reduce_all)
    if x.dtype == np.float16:
        total = xp.prod(x, axis=axes, dtype=xp.float32, keepdims=keep_dim)
        return deliver(xp, total.astype(xp.float16), out)
    return xp.prod(x, axis=axes, dtype=x.dtype, out=out, keepdims=keep_dim)


@kernel("reduce_all")
def reduce_all(xp, x, *, dim, keep_dim, reduce_all, out=None):
    x, axes = _over(x, dim, keep_dim, reduce_all)
    return xp.all(x, axis=axes, out=out, keepdims=keep_dim)


@kernel("reduce_any")
def reduce_any(xp, x, *, dim, keep_dim, reduce_all, out=None):
    x, axes = _over(x, dim, keep_dim, reduce_all)
    return xp.any(x, axis=axes, out=out, keepdims=keep_dim)


_WIDER = {np.dtype(np.float16): np.dtype(np.float32), _FLOAT32: _FLOAT64}
"""In what type sums that are added one after the other are kept."""


@kernel("cumsum")
def cumsum(xp, x, *, axis, exclusive, reverse, out=None):
    ordered = xp.flip(x, axis) if reverse else x
    totals = xp.cumsum(ordered, axis=axis, dtype=_WIDER.get(x.dtype, x.dtype))
    if exclusive and x.shape[axis]:
        # Moved by one, not less the element: that would lose digits, and infinities.
        at = axis % x.ndim
        before = totals[(slice(None),) * at + (slice(None, -1),)]
        totals = xp.concatenate([xp.zeros((*x.shape[:at], 1, *x.shape[at + 1 :]), totals.dtype), before], axis=at)
    totals = xp.flip(totals, axis) if reverse else totals
    return deliver(xp, xp.ascontiguousarray(totals, dtype=x.dtype), out)


def _filled(xp, x, axes, keep_dim, value, out) -> Any:
    """The extreme of nothing."""
    shape = [1 if i in axes else size for i, size in enumerate(x.shape) if keep_dim or i not in axes]
    return deliver(xp, xp.full(shape, value, x.dtype), out)


@kernel("sum")
def sum(xp, xs, *, out=None):
    """Sum of the arrays `xs`, one after the other; float16 in float32."""
    if isinstance(xs[0], list):
        return _sum_of_arrays(xp, xs)
    first, *rest = xs
    if not rest:
        return xp.positive(first, out=out)
    if first.dtype == np.float16:
        total = xp.add(first, rest[0], dtype=xp.float32)
    else:
        # A later term must not be overwritten before it is added.
        total = xp.add(first, rest[0], out=unshared(xp, out, *rest[1:]))
    for x in rest[1:]:
        xp.add(total, x, out=total)
    return deliver(xp, total.astype(first.dtype, copy=False), out)


def _sum_of_arrays(xp, arrays):
    """The sums of their elements at each index, without those that are not there."""
    columns = ([each for each in column if each is not None] for column in zip_longest(*arrays))
    return [sum(xp, column) if column else None for column in columns]


@kernel("squared_l2_norm")
def squared_l2_norm(xp, x, *, out=None):
    return deliver(xp, xp.asarray(sum_of_squares(xp, x)).reshape(1).astype(x.dtype), out)


@kernel("mean_grad")
def mean_grad(xp, x, d_out, *, out=None):
    return _spread(xp, d_out / x.size, x, out)


@kernel("reduce_sum_grad")
def reduce_sum_grad(xp, x, d_out, *, dim, reduce_all, out=None):
    return _spread(xp, d_out.reshape(_kept_shape(x, dim, reduce_all)), x, out)


@kernel("reduce_mean_grad")
def reduce_mean_grad(xp, x, d_out, *, dim, reduce_all, out=None):
    kept = _kept_shape(x, dim, reduce_all)
    return _spread(xp, d_out.reshape(kept) / (x.size // max(math.prod(kept), 1)), x, out)


@kernel("reduce_max_grad")
def reduce_max_grad(xp, x, result, d_out, *, dim, reduce_all, out=None):
    """The full gradient for every element that attains the extreme."""
    kept = _kept_shape(x, dim, reduce_all)
    attains = x.astype(result.dtype, copy=False) == result.reshape(kept)
    return xp.multiply(d_out.reshape(kept).astype(x.dtype, copy=False), attains, out=out)


kernel("reduce_min_grad")(reduce_max_grad)


@kernel("reduce_prod_grad")
def reduce_prod_grad(xp, x, result, d_out, *, dim, reduce_all, out=None):
    """The product of the other elements: of those before times those after."""
    axes = tuple(range(x.ndim)) if reduce_all else tuple(axis % x.ndim for axis in dim)
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    wide = x.astype(_WIDER.get(x.dtype, x.dtype) if x.dtype == np.float16 else x.dtype, copy=False)
    last = wide.transpose(kept + axes)
    rows = last.reshape(math.prod(last.shape[: len(kept)]), math.prod(last.shape[len(kept) :]))
    others = _products_before(xp, rows)
    others *= xp.flip(_products_before(xp, xp.flip(rows, 1)), 1)
    others = others.reshape(last.shape).transpose(tuple(int(i) for i in np.argsort(kept + axes)))
    d_x = others * d_out.reshape(_kept_shape(x, dim, reduce_all))
    return deliver(xp, d_x.astype(x.dtype, copy=False), out)


def _products_before(xp, rows) -> Any:
    """For each element of each row the product of those before it."""
    products = xp.ones_like(rows)
    if rows.shape[1] > 1:
        products[:, 1:] = xp.cumprod(rows[:, :-1], axis=1)
    return products


@kernel("squared_l2_norm_grad")
def squared_l2_norm_grad(xp, x, d_out, *, out=None):
    return xp.multiply(x, 2 * d_out, out=out)


def _kept_shape(x, dim, reduce_all) -> tuple[int, ...]:
    """Shape of the result with the reduced dimensions as 1."""
    axes = range(x.ndim) if reduce_all else [axis % x.ndim for axis in dim]
    return tuple(1 if i in axes else size for i, size in enumerate(x.shape))


def _spread(xp, d, x, out) -> Any:
    """`d` repeated to the shape of `x`, in its dtype."""
    result = xp.empty(x.shape, x.dtype) if out is None else out
    xp.copyto(result, d, casting="same_kind")
    return result


@specialize("mean")
def _quicker_mean(xp, x):
    if xp is not np or x.dtype == np.float16:
        return None
    add, divide, size = np.add.reduce, np.true_divide, math.prod(x.shape)

    def mean(x, out=None):
        total = add(x.reshape(1, -1), 1, None, out)
        return divide(total, size, total)

    return mean


@specialize("reduce_sum")
def _quicker_reduce_sum(xp, x, *, dim, keep_dim, reduce_all, out_dtype):
    """NumPy's own reduction, where no other care is taken."""
    if xp is not np or x.dtype == np.float16 or out_dtype not in (-1, int(as_dtype(x.dtype))):
        return None
    view, axes = _over(np.broadcast_to(np.zeros((), x.dtype), x.shape), dim, keep_dim, reduce_all)
    if x.dtype.kind == "f" and are_rows(view.shape, axes):
        return None
    add, dtype = np.add.reduce, x.dtype
    if view.shape != x.shape:
        return lambda x, out=None: add(x.reshape(1, -1), axes, dtype, out)
    return lambda x, out=None: add(x, axes, dtype, out, keepdims=keep_dim)


@specialize("sum")
def _quicker_sum(xp, xs):
    if len(xs) != 2:
        return None
    add = xp.add
    return lambda xs, out=None: add(xs[0], xs[1], out=out)
