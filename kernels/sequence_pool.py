"""Reductions of sequences to one row each, and their gradients."""

from __future__ import annotations

import numpy as np

from minigraph.kernels.registry import kernel
from minigraph.kernels.segments import of_rows, reduced


@kernel("sequence_pool")
def sequence_pool(xp, x, levels, *, pooltype, pad_value):
    offsets = levels[-1]
    nothing = xp.zeros((0, *x.shape[1:]), np.int32)
    if pooltype == "MAX":
        return _largest(xp, x, offsets, pad_value)
    if pooltype in ("FIRST", "LAST"):
        out = xp.full((len(offsets) - 1, *x.shape[1:]), pad_value, x.dtype)
        is_filled = np.diff(offsets) > 0
        rows = offsets[:-1] if pooltype == "FIRST" else offsets[1:] - 1
        out[xp.asarray(is_filled)] = x[xp.asarray(rows[is_filled])]
        return out, nothing
    out = reduced(xp, "add", x, offsets, 0)
    if pooltype != "SUM":
        out *= _factors(xp, pooltype, offsets, x)
    if pad_value or pooltype == "SUM":
        out[xp.asarray(np.diff(offsets) == 0)] = pad_value
    return out, nothing


def _factors(xp, pooltype, offsets, x):
    """Factor of the sum of each sequence, along its first dimension."""
    lengths = np.maximum(np.diff(offsets), 1).astype(x.dtype)
    factors = 1 / (np.sqrt(lengths) if pooltype == "SQRT" else lengths)
    return xp.asarray(factors.reshape(-1, *[1] * (x.ndim - 1)))


def _largest(xp, x, offsets, pad_value):
    out = reduced(xp, "maximum", x, offsets, pad_value)
    # NaN equals nothing: the first one is the largest, as for `maximum`.
    is_largest = (x == of_rows(xp, out, offsets)) | (x != x)
    rows = xp.arange(len(x), dtype=np.int32).reshape(-1, *[1] * (x.ndim - 1))
    candidates = xp.where(is_largest, rows, np.int32(len(x)))
    return out, reduced(xp, "minimum", candidates, offsets, -1)


@kernel("sequence_pool_grad")
def sequence_pool_grad(xp, x, max_index, d_out, levels, *, pooltype):
    offsets = levels[-1]
    if pooltype in ("SUM", "AVERAGE", "SQRT"):
        return of_rows(xp, d_out if pooltype == "SUM" else d_out * _factors(xp, pooltype, offsets, x), offsets)
    dx = xp.zeros_like(x)
    is_filled = np.diff(offsets) > 0
    if pooltype == "MAX":
        columns = xp.arange(x[:1].size).reshape(1, *x.shape[1:]) if len(x) else None
        if columns is not None:
            filled = xp.asarray(is_filled)
            at = max_index[filled].astype(np.int64) * columns.size + columns
            dx.reshape(-1)[at.reshape(-1)] = d_out[filled].reshape(-1)
        return dx
    rows = offsets[:-1] if pooltype == "FIRST" else offsets[1:] - 1
    dx[xp.asarray(rows[is_filled])] = d_out[xp.asarray(is_filled)]
    return dx
