"""Sums of magnitudes and of squares in float64, a rounding away from the exact sums, in whatever order BLAS adds.

float64 adds multiples of one power of two exactly, as long as the sum is below ``2**53`` times that. Every number is
therefore split in two: the multiple of such a power nearest to it, and the rest. The rests are so small that what is
lost in adding them is nothing to the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from minigraph.kernels.sums import add_over, ones

_FLOAT64 = np.dtype(np.float64)  # compared quicker than the scalar type

_PIECE = 16_384
"""Elements that are added at a time: with what is made of them they stay in the cache."""


def sum_of_squares(xp, x) -> Any:
    """Sum of the squares of all elements of `x`, in float64.

    Returns
    -------
    float or array of rank 0
        A Python float for NumPy.

    Notes
    -----
    Of float64 it agrees with the exact sum to ``2**-52``, if that is neither below 1e-280 nor above 1e300: the squares
    are rounded, and then their sum. Of float16 and float32, whose squares float64 holds, to 1e-11 and without overflow
    or underflow.
    """
    if xp is not np:
        squares = xp.square(x, dtype=xp.float64).reshape(-1)
        return (sum_over(xp, squares, (0,)) if x.dtype == _FLOAT64 else xp.sum(squares)).reshape(())
    flat = x.reshape(-1)
    if flat.dtype == _FLOAT64:
        return add_exactly(part for piece in pieces(flat) for part in _squares_of(piece))
    if flat.size <= _PIECE:
        flat = flat.astype(_FLOAT64)
        return float(flat.dot(flat))
    total, memory = 0.0, np.empty(_PIECE)
    for piece in pieces(flat):
        wide = memory[: piece.size]
        np.copyto(wide, piece)
        total += float(wide.dot(wide))
    return total


def pieces(flat) -> Iterable[Any]:
    """A vector in pieces that stay in the cache."""
    return [flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE)]


def add_exactly(numbers: Iterable[float]) -> float:
    """The exact sum of numbers that are not negative, rounded once; infinite where it overflows."""
    numbers = list(numbers)
    try:
        return math.fsum(numbers)
    except OverflowError:
        return sum(numbers)


def sum_of_piece(sizes) -> tuple[float, ...]:
    """Numbers whose sum is that of a vector of float64 that are not negative, which may be written over."""
    return _split(sizes, float(np.add.reduce(sizes)))


def _squares_of(piece) -> tuple[float, ...]:
    """As `sum_of_piece`, of the squares."""
    about = float(piece.dot(piece))
    return _split(np.square(piece), about) if _is_safe(about) else (about,)


def _is_safe(total: float) -> bool:
    """Whether a sum is finite, and not so small that it matters to no norm."""
    return 1e-290 < total < 1e300


def _split(sizes, about: float) -> tuple[float, ...]:
    """As `sum_of_piece`, where the sum is about `about`."""
    if not _is_safe(about):
        return (about,)
    # Every size is at most the power, and ulp(power) * 2**53 above the sum.
    power = math.ldexp(1.0, math.frexp(about)[1])
    multiples = sizes + power
    multiples -= power
    sizes -= multiples
    weights = ones(sizes.size, _FLOAT64)
    return float(multiples.dot(weights)), float(sizes.dot(weights))


def sum_over(xp, sizes, axes: tuple[int, ...]) -> Any:
    """Sums of float64 that are not negative over the dimensions `axes`, kept as 1; `sizes` may be written over.

    They are rounded once or twice, except below 1e-290.
    """
    about = add_over(xp, sizes, axes, keepdims=True)
    _, exponent = xp.frexp(about)
    power = xp.ldexp(xp.ones_like(about), exponent)
    multiples = sizes + power
    multiples -= power
    sizes -= multiples
    total = add_over(xp, multiples, axes, keepdims=True) + add_over(xp, sizes, axes, keepdims=True)
    return xp.where(xp.isfinite(about) & xp.isfinite(power), total, about)
