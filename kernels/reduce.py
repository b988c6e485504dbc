"""Sums, means and extremes over dimensions or over a list of arrays.

There is no rank 0: reducing over everything gives shape [1].
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.registry import for_all_sizes, kernel, specialize
from minigraph.kernels.sums import add_over, are_rows, last_of, sum_of_squares, sums_of_last
from minigraph.kernels.upcast import widen
from minigraph.types import as_dtype

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)  # compared quicker than the scalar types


def _over(x, dim, keep_dim, reduce_all) -> tuple[Any, tuple[int, ...]]:
    """`x` and the dimensions to reduce; a view with one more dimension if none would remain."""
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
    # Fluid divides integers as C does.
    return deliver(xp, xp.sign(total) * (xp.abs(total) // _count(x, axes)), out)  # toward zero


def largest(xp, x, axis, keepdims=False) -> Any:
    """The maximum along an axis, -inf of no elements; CuPy's ``max`` takes no `initial`."""
    if not x.shape[axis]:
        return _filled(xp, x, (axis % x.ndim,), keepdims, -np.inf)
    return x.max(axis, keepdims=keepdims)


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
    if xp is not np:  # CuPy takes `out` for a type where it reduces with CUB
        return deliver(xp, xp.amin(x, axis=axes, keepdims=keep_dim), out)
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
"""Type in which running sums are kept, by element type."""


@kernel("cumsum")
def cumsum(xp, x, *, axis, exclusive, reverse, out=None):
    ordered = xp.flip(x, axis) if reverse else x
    totals = xp.cumsum(ordered, axis=axis, dtype=_WIDER.get(x.dtype, x.dtype))
    if exclusive and x.shape[axis]:
        # Shifted by one position: subtracting the element would lose digits, and give NaN for infinities.
        at = axis % x.ndim
        before = totals[(slice(None),) * at + (slice(None, -1),)]
        totals = xp.concatenate([xp.zeros((*x.shape[:at], 1, *x.shape[at + 1 :]), totals.dtype), before], axis=at)
    totals = xp.flip(totals, axis) if reverse else totals
    return deliver(xp, xp.ascontiguousarray(totals, dtype=x.dtype), out)


def _filled(xp, x, axes, keep_dim, value, out=None) -> Any:
    """The extreme of dimensions without elements."""
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
    """The sum of the tensors at each index; arrays may be shorter than others or have gaps."""
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
    """Give the full gradient to every element that equals the extreme."""
    kept = _kept_shape(x, dim, reduce_all)
    attains = x.astype(result.dtype, copy=False) == result.reshape(kept)
    return xp.multiply(d_out.reshape(kept).astype(x.dtype, copy=False), attains, out=out)


kernel("reduce_min_grad")(reduce_max_grad)


@kernel("reduce_prod_grad")
def reduce_prod_grad(xp, x, result, d_out, *, dim, reduce_all, out=None):
    """``dX = dOut * product of the other elements``: of those before times those after, since x may be 0."""
    axes = tuple(range(x.ndim)) if reduce_all else tuple(axis % x.ndim for axis in dim)
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    last = widen(x).transpose(kept + axes)
    rows = last.reshape(math.prod(last.shape[: len(kept)]), math.prod(last.shape[len(kept) :]))
    others = _products_before(xp, rows)
    others *= xp.flip(_products_before(xp, xp.flip(rows, 1)), 1)
    others = others.reshape(last.shape).transpose(tuple(int(i) for i in np.argsort(kept + axes)))
    d_x = others * d_out.reshape(_kept_shape(x, dim, reduce_all))
    return deliver(xp, d_x.astype(x.dtype, copy=False), out)


def _products_before(xp, rows) -> Any:
    """Product of the elements before each element of a row."""
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
    """NumPy's own reduction, or the product with ones, for dimensions where `add_over` has no more than that."""
    if xp is not np or x.dtype == np.float16 or out_dtype not in (-1, int(as_dtype(x.dtype))):
        return None
    view, axes = _over(np.broadcast_to(np.zeros((), x.dtype), x.shape), dim, keep_dim, reduce_all)
    if x.dtype.kind == "f":
        last = last_of(view.shape, axes)
        if len(last) == len(axes) and view.shape == x.shape:
            kept = [1 if i in axes else size for i, size in enumerate(x.shape) if keep_dim or i not in axes]
            return lambda x, out=None: deliver(np, sums_of_last(x, last).reshape(kept), out)
        if last or are_rows(view.shape, axes):
            return None
    add, dtype = np.add.reduce, x.dtype
    if view.shape != x.shape:
        return lambda x, out=None: add(x.reshape(1, -1), axes, dtype, out)
    return lambda x, out=None: add(x, axes, dtype, out, keepdims=keep_dim)


@specialize("sum", any_size=True)
def _quicker_sum(xp, xs):
    if len(xs) != 2:
        return None
    add = xp.add

    def add_two(xs, out=None):
        # Arrays of tensors, which are lists, have the shape of an element here.
        return sum(xp, xs, out=out) if isinstance(xs[0], list) else add(xs[0], xs[1], out=out)

    return for_all_sizes(add_two)
