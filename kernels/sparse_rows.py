"""Selected rows: the rows of an array that are not zero, and their numbers.

A row number may occur several times; the row of the array is then their sum. `merged` adds them up, in their order, so
that each row has the bits of the dense array that `added_rows` makes. An operation on whole rows, such as a norm, needs
merged rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.kernels import reduce, tensor
from minigraph.kernels.buffers import Scratch
from minigraph.kernels.cuda.launching import is_recording
from minigraph.kernels.indexing import added_rows, taken

_ROUNDS = 8
"""Maximum occurrences of one row number that are added for all rows at once; further ones are added one by one."""


class SparseRows:
    """Some rows of an array whose other rows are zero.

    Attributes
    ----------
    rows : array, int64[k]
        Row numbers.
    value : array, [k, ...]
        Values of the rows.
    height : int
        Number of rows of the whole array.
    is_merged : bool
        Whether `rows` is known to be in ascending order, without repetitions.
    """

    __slots__ = ("height", "is_merged", "rows", "value")

    def __init__(self, rows: Any, value: Any, height: int, is_merged: bool = False) -> None:
        self.rows, self.value, self.height, self.is_merged = rows, value, height, is_merged

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.value.dtype
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return (self.height, *self.value.shape[1:])

    @property
    def base(self) -> Any:
        """Owner of the memory of `value`, as in an array."""
        return self.value.base

    def __len__(self) -> int:
        return self.height

    def copy(self) -> SparseRows:
        return SparseRows(self.rows.copy(), self.value.copy(), self.height, self.is_merged)

    def with_value(self, value: Any) -> SparseRows:
        """Other values in the same rows."""
        return SparseRows(self.rows, value, self.height, self.is_merged)


def merged(xp, x: SparseRows, scratch: Scratch | None = None) -> SparseRows:
    """`x` with each row number once, in ascending order; `x` itself if it is known to be so.

    Rows of one number are added in their order, float16 in float32. With `scratch` the values may lie there.
    """
    if x.is_merged:
        return x
    if xp is not np:
        rows, at = xp.unique(x.rows, return_inverse=True)
        like = xp.empty((len(rows), *x.value.shape[1:]), x.dtype)
        return SparseRows(rows, added_rows(xp, like, at.reshape(-1), x.value), x.height, is_merged=True)
    # Stable, so that rows of one number are added in the order of the dense gradient, with its roundings.
    order = np.argsort(x.rows, kind="stable")
    ordered = x.rows[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)])
    buffer = None if scratch is None else scratch.empty((len(first), *x.value.shape[1:]), x.dtype)
    rows, total = ordered[first], taken(np, x.value, order[first], buffer)
    if len(first) < len(ordered):
        total = _add_others(total, x.value, order, first)
    return SparseRows(rows, total, x.height, is_merged=True)


def merged_or_repeated(xp, x: SparseRows, scratch: Scratch | None = None) -> SparseRows:
    """`merged`; while a CUDA graph is recorded as many rows as `x` has, those left over like the first.

    A recording has fixed shapes, and how many numbers are different depends on values. This is for updates of the rows
    alone, which write the same to a row each time that it occurs.
    """
    if x.is_merged or not is_recording():
        return merged(xp, x, scratch)
    order, count = xp.argsort(x.rows, kind="stable"), len(x.rows)
    ordered = x.rows[order]
    is_new = xp.ones(count, bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    place_in_order = xp.cumsum(is_new) - 1
    place, numbers = xp.empty(count, np.int64), xp.empty(count, np.int64)
    place[order] = place_in_order
    numbers[place_in_order] = ordered
    total, at = added_rows(xp, x.value, place, x.value), xp.arange(count)
    at = xp.where(at <= place_in_order[-1:], at, 0)
    return SparseRows(numbers[at], total[at], x.height, is_merged=True)


def _add_others(total, value, order, first) -> Any:
    """Add to each row of `total` the later rows of its number: ``value[order[first[i] + 1]]`` and so on."""
    dtype = total.dtype
    if dtype == np.float16:
        total = total.astype(np.float32)
    counts = np.diff(first, append=len(order))
    left = np.flatnonzero(counts > 1)
    for nth in range(1, _ROUNDS):
        total[left] += value[order[first[left] + nth]]
        left = left[counts[left] > nth + 1]
        if not left.size:
            return total.astype(dtype, copy=False)
    behind = counts[left] - _ROUNDS
    starts = first[left] + _ROUNDS - np.concatenate(([0], np.cumsum(behind[:-1])))
    others = value[order[np.repeat(starts, behind) + np.arange(behind.sum())]]
    # `np.add.at` is fast for single elements only, so that each row becomes as many indices.
    width = total[0].size
    places = (np.repeat(left, behind)[:, None] * width + np.arange(width)).reshape(-1)
    np.add.at(total.reshape(-1), places, others.astype(total.dtype, copy=False).reshape(-1))
    return total.astype(dtype, copy=False)


def dense(xp, x: SparseRows) -> Any:
    """The whole array."""
    x = merged(xp, x)
    whole = xp.zeros(x.shape, x.dtype)
    whole[x.rows] = x.value
    return whole


def no_rows(xp, like: Any) -> SparseRows:
    """Zeros of the shape and type of the array `like`."""
    return SparseRows(xp.zeros(0, np.int64), xp.zeros((0, *like.shape[1:]), like.dtype), len(like), is_merged=True)


def joined(xp, parts: Sequence[SparseRows]) -> SparseRows:
    """The sum of `parts`: all their rows, one part after the other."""
    return SparseRows(
        tensor.joined(xp, [each.rows for each in parts], 0),
        tensor.joined(xp, [each.value for each in parts], 0),
        parts[0].height,
    )


def sum_of_rows(xp, xs) -> Any:
    """The rows of all terms one after the other; the dense sum if a term is dense."""
    parts = [x for x in xs if isinstance(x, SparseRows)]
    total = joined(xp, parts)
    if len(parts) == len(xs):
        return total
    arrays = [x for x in xs if not isinstance(x, SparseRows)]
    whole = reduce.sum(xp, arrays)
    total = merged(xp, total)
    whole[total.rows] += total.value
    return whole


def added(xp, x, y) -> Any:
    """``x + y``, each an array or selected rows."""
    return sum_of_rows(xp, [x, y]) if isinstance(x, SparseRows) or isinstance(y, SparseRows) else x + y


def values_of(xp, given: Any) -> Any:
    """`given`, an input of a kernel, with selected rows replaced by the values of merged rows: norms need no others."""
    if isinstance(given, list | tuple):
        return [values_of(xp, each) for each in given]
    return merged(xp, given).value if isinstance(given, SparseRows) else given
