"""Segments of rows, given by the offsets at which they begin and end: sums, maxima and what is the same for each row.

Offsets are int64 NumPy arrays on every place.
"""

from __future__ import annotations

import numpy as np

from minigraph.kernels.indexing import combine_rows


def numbers(offsets):
    """The number of the segment of each row, on the host.

    Examples
    --------
    >>> numbers(np.array([0, 2, 2, 3]))
    array([0, 0, 2])
    """
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def of_rows(xp, values, offsets):
    """A value of each segment, repeated for its rows."""
    return values[xp.asarray(numbers(offsets))]


def reduced(xp, operation, rows, offsets, empty):
    """``"add"``, ``"maximum"`` or ``"minimum"`` over the rows of each segment; `empty` for those without."""
    out = xp.full((len(offsets) - 1, *rows.shape[1:]), empty, rows.dtype)
    is_filled = np.diff(offsets) > 0
    filled, starts = is_filled.nonzero()[0], offsets[:-1][is_filled]
    if not len(filled):
        return out
    if xp is np:
        # Segments without rows lie between no rows, so the other segments follow each other.
        found = getattr(np, operation).reduceat(rows[: offsets[-1]], starts, axis=0)
        if len(filled) == len(out):
            return found
        out[filled] = found
        return out
    out[xp.asarray(filled)] = rows[xp.asarray(starts)]
    others = np.ones(int(offsets[-1]), bool)
    others[starts] = False
    at = others.nonzero()[0]
    combine_rows(xp, operation, out, xp.asarray(numbers(offsets)[at]), rows[xp.asarray(at)])
    return out
