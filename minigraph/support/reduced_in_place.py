"""Sums over ranks that read and write the memory of each other: each reduces its part of all arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigraph.support.communicator import tree

CHUNK = 1 << 16
"""Number of elements that a rank adds up at once, so that they stay in its cache."""


def reduce_part(
    rank: int,
    given: Sequence[np.ndarray[Any, Any]],
    targets: Sequence[np.ndarray[Any, Any]],
    combine: Callable[..., Any],
    squares: Callable[[np.ndarray[Any, Any]], Sequence[float]] | None = None,
) -> tuple[float, float]:
    """Reduce a rank's part of the vectors of all ranks, and write it to those of `targets`, which may be the same.

    Returns two numbers, whose sum is that of the squares of the part; `squares` adds them up while the part is in the
    cache. They are NaN without it.
    """
    found: list[float] = []
    length = -(-given[0].size // len(given))
    part = slice(length * rank, length * (rank + 1))
    sources, results = [each[part] for each in given], [each[part] for each in targets]
    for begin in range(0, sources[0].size, CHUNK):
        first, *others = [each[begin : begin + CHUNK] for each in results]
        combine_into([each[begin : begin + CHUNK] for each in sources], combine, first)
        if squares is not None:
            found.extend(squares(first))
        for piece in others:
            piece[...] = first
    if squares is None:
        return math.nan, math.nan
    total = math.fsum(found)
    return total, math.fsum([*found, -total]) if math.isfinite(total) else 0.0


def total_of(parts: Sequence[Sequence[float]]) -> float | None:
    """The sum of the squares of all parts, as `reduce_part` gives them; None if one rank has not added them up."""
    numbers = [number for part in parts for number in part]
    return None if any(map(math.isnan, numbers)) else math.fsum(numbers)


def combine_into(given: Sequence[np.ndarray[Any, Any]], combine: Callable[..., Any], out: np.ndarray[Any, Any]) -> None:
    """Write the `tree` of some arrays to `out`, which may be one of them."""
    if len(given) == 2:  # without an array in between
        combine(*given, out=out)
    else:
        out[...] = tree(given, combine)
