"""Sums over dimensions, and of squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.support.communicator import sums_in_order

MANY_ROWS = 1024
"""Minimum rows for adding them in stages."""

_SHORT_ROW = 1024
"""Maximum elements of a row that a product adds: for more, the rounding is that of NumPy's sum by halves or worse."""

_PIECE = 8192
"""Elements added at a time: they stay in the cache, and BLAS adds them without waking threads."""

_LEAST, _LARGEST = 1e-290, 1e300
"""Range, exclusive, of sums of squares that are split exactly in two; no other sum matters to `sum_of_squares`."""

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)  # compared quicker than the scalar types


def add_over(xp, x, axes, keepdims=False, divisor=1, out=None) -> Any:
    """Sum of `x` over the dimensions `axes`, a tuple, divided by `divisor`; in the dtype of `x`.

    float16 is added in float32. NumPy adds pairwise along the last dimensions but row after row along others, so that
    rounding errors pile up; rows are therefore added by `sum_of_rows`, and sums of last dimensions in float64. Short
    last dimensions are added by a product with ones, which takes a quarter of the time.
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
    elif x.dtype in (_FLOAT32, _FLOAT64) and (last := last_of(x.shape, axes)):
        total = sums_of_last(x, last)
        others = axes[: len(axes) - len(last)]
        if others:
            total = np.add.reduce(total, others, _FLOAT64, keepdims=True).astype(x.dtype, copy=False)
        total = deliver(np, total if keepdims else total.squeeze(axes), out)
    else:
        total = np.add.reduce(x, axes, x.dtype, out, keepdims=keepdims)
    return total if divisor == 1 else xp.true_divide(total, divisor, out=total)


def are_rows(shape, axes) -> bool:
    """Whether `axes`, of which there are some, are the leading dimensions but not all."""
    return len(axes) < len(shape) and max(axes) == len(axes) - 1


def last_of(shape, axes) -> tuple[int, ...]:
    """The trailing run of the ascending `axes` that ends with the last dimension; empty if all are summed.

    Empty as well if `axes` are only this run, and NumPy adds them.
    """
    missing = len(shape) - len(axes)
    last = tuple(axis for place, axis in enumerate(axes) if axis == place + missing)
    return last if missing and (len(last) < len(axes) or are_short_rows(shape, last)) else ()


def are_short_rows(shape, last) -> bool:
    """Whether the trailing dimensions `last` are rows, more than one, that a product with ones adds."""
    columns = math.prod(shape[axis] for axis in last)
    return 1 < columns <= _SHORT_ROW and math.prod(shape) > columns


def sums_of_last(x, last) -> Any:
    """Sums over the trailing dimensions `last`, which are kept as 1."""
    if not are_short_rows(x.shape, last):
        return np.add.reduce(x, last, keepdims=True)
    columns = math.prod(x.shape[last[0] :])
    total = np.dot(x.reshape(x.size // columns, columns), ones(columns, x.dtype))
    return total.reshape(x.shape[: last[0]] + (1,) * len(last))


def sum_of_rows(x: np.ndarray, out=None) -> np.ndarray:
    """Sum of the rows of a matrix of float32 or float64, as a product with ones.

    A product is several times as fast as NumPy's sum and rounds less. Many rows are added 32 at a time, and then the
    sums likewise; short rows are joined to long vectors.
    """
    rows, columns = x.shape
    if rows < MANY_ROWS or not columns:
        return np.dot(ones(rows, x.dtype), x, out)
    joined = max(1, min(rows // 32, 2048 // columns))
    even = rows // (32 * joined) * 32 * joined
    total = sum_of_rows(np.add.reduce(x[:even].reshape(-1, 32, joined * columns), 1).reshape(-1, columns))
    return deliver(np, total + sum_of_rows(x[even:]) if even < rows else total, out)


@lru_cache(maxsize=64)
def ones(count, dtype) -> np.ndarray:
    """A read-only vector of ones, which is cached."""
    vector = np.ones(count, dtype)
    vector.flags.writeable = False
    return vector


def sum_of_squares(xp, x) -> Any:
    """Sum of the squares of all elements of `x`, in float64.

    Sums of float16 and float32 neither overflow nor underflow.

    Returns
    -------
    float or array of rank 0
        A Python float for NumPy.

    Notes
    -----
    The relative error is at most ``2**-52`` for float64, if the sum is from 1e-280 to 1e300: each square is rounded,
    and so is their sum. It is at most 1e-11 for float16 and float32, whose squares float64 holds exactly; in an exact
    program ``2**-53``, so that it does not depend on what is added first.
    """
    if xp is not np:
        squares = xp.square(x, dtype=xp.float64).reshape(-1)
        return xp.sum(squares) if x.dtype != _FLOAT64 else sum_of_sizes(xp, squares, (0,)).reshape(())
    parts = squares_in_parts(x)
    return parts[0] if len(parts) == 1 else add_exactly(parts)


def squares_in_parts(x: np.ndarray) -> Sequence[float]:
    """Numbers whose exact sum is `sum_of_squares`, before it is rounded."""
    flat = x.reshape(-1)
    if flat.dtype == _FLOAT64:
        return [part for piece in pieces(flat) for part in _parts_of_squares(piece)]
    if sums_in_order():  # the same whole in whatever pieces ranks have the elements
        return [part for piece in pieces(flat) for part in _parts_of_squares(piece.astype(_FLOAT64))]
    if flat.size <= _PIECE:
        wide = flat.astype(_FLOAT64)
        return (float(wide.dot(wide)),)
    total, memory = 0.0, np.empty(_PIECE)
    for piece in pieces(flat):
        wide = memory[: piece.size]
        wide[...] = piece
        total += float(wide.dot(wide))
    return (total,)


def sum_of_sizes(xp, sizes, axes: tuple[int, ...]) -> Any:
    """Sums of non-negative float64 over the dimensions `axes`, which are kept as 1; `sizes` is overwritten.

    Each sum is rounded once, as if it were computed exactly; see `parts_of_sizes`.
    """
    about = add_over(xp, sizes, axes, keepdims=True)
    power = xp.ldexp(xp.ones_like(about), xp.frexp(about)[1])
    multiples = sizes + power
    multiples -= power
    sizes -= multiples
    total = add_over(xp, multiples, axes, keepdims=True) + add_over(xp, sizes, axes, keepdims=True)
    return xp.where(xp.isfinite(about) & xp.isfinite(power), total, about)


def parts_of_sizes(sizes: np.ndarray, about: float | None = None) -> tuple[float, ...]:
    """Two numbers whose exact sum is the sum of a vector of non-negative float64; `sizes` is overwritten.

    float64 adds multiples of a unit exactly, in any order, up to ``2**53`` units. So each element is split into the
    nearest multiple of a unit and a rest. The unit is so small that roundings in the sum of the rests do not change the
    rounded whole.

    Parameters
    ----------
    about : float, optional
        Approximate sum.
    """
    if about is None:
        about = float(np.add.reduce(sizes))
    if not _LEAST < about < _LARGEST:
        return (about,)
    power = math.ldexp(1.0, math.frexp(about)[1])  # greater than the sum; its last digit is the unit
    # Adding the power rounds to multiples of the unit; subtracting it again is exact.
    multiples = sizes + power
    multiples -= power
    sizes -= multiples
    weights = ones(sizes.size, _FLOAT64)
    return float(multiples.dot(weights)), float(sizes.dot(weights))


def _parts_of_squares(piece: np.ndarray) -> tuple[float, ...]:
    about = float(piece.dot(piece))
    return parts_of_sizes(np.square(piece), about) if _LEAST < about < _LARGEST else (about,)


def pieces(flat: np.ndarray) -> list[np.ndarray]:
    """Pieces of a vector that fit in the cache."""
    return [flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE)]


def add_exactly(sizes: Sequence[float]) -> float:
    """Sum of non-negative numbers, rounded once; infinite on overflow."""
    try:
        return math.fsum(sizes)
    except OverflowError:
        return math.inf
