"""Convolutions over the rows of sequences of different lengths: one pass for each place of the window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.cuda import gemm
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import lengths_of
from minigraph.kernels.sums import add_over


@kernel("sequence_conv")
def sequence_conv(xp, x, padding, filter, x_lod, *, contextLength, contextStart, contextStride):
    return gemm.dot(xp, _windows(xp, x, x_lod[-1], contextLength, contextStart), filter)


@kernel("sequence_conv_grad")
def sequence_conv_grad(xp, x, filter, d_out, x_lod, *, contextLength, contextStart, contextStride, wanted):
    d_x = d_filter = None
    if wanted[1]:
        d_filter = gemm.dot(xp, _windows(xp, x, x_lod[-1], contextLength, contextStart).T, d_out)
    if wanted[0]:
        d_windows = gemm.dot(xp, d_out, filter.T).reshape(len(x), contextLength, -1)
        d_x = xp.zeros_like(x)
        for place, target, source, outside in _shifts(len(x), x_lod[-1], contextLength, contextStart):
            d_windows[outside, place] = 0
            d_x[source] += d_windows[target, place]
    return d_x, d_filter


def _windows(xp, x, offsets, length, start) -> Any:
    """The `length` rows from `start` after each row, side by side; zeros outside of its sequence."""
    rows, width = x.shape
    result = xp.empty((rows, length, width), x.dtype)
    for place, target, source, outside in _shifts(rows, offsets, length, start):
        result[target, place] = x[source]
        result[outside, place] = 0
    return result.reshape(rows, length * width)


def _shifts(rows, offsets, length, start) -> Iterator[tuple[int, slice, slice, Any]]:
    """Each place of a window, with slices of rows and of their neighbours there, and the rows without a neighbour."""
    numbers = np.arange(rows)
    first, last = (np.repeat(ends, lengths_of(offsets)) for ends in (offsets[:-1], offsets[1:] - 1))
    for place in range(length):
        step = start + place
        target = slice(min(rows, max(0, -step)), max(0, min(rows, rows - step)))
        source = slice(target.start + step, max(target.start, target.stop) + step)
        found = numbers + step
        yield place, target, source, ((found < first) | (found > last)).nonzero()[0]


def lookahead(xp, x, filter, offsets) -> Any:
    """``row_conv`` over sequences of different lengths."""
    out = xp.zeros_like(x)
    for place, target, source, outside in _shifts(len(x), offsets, len(filter), 0):
        part = x[source] * filter[place]
        part[outside[outside < len(part)]] = 0
        out[target] += part
    return out


def lookahead_grad(xp, x, filter, d_out, offsets) -> tuple[Any, Any]:
    d_x, d_filter = xp.zeros_like(x), xp.zeros_like(filter)
    for place, target, source, outside in _shifts(len(x), offsets, len(filter), 0):
        part = d_out[target].copy()
        part[outside[outside < len(part)]] = 0
        d_filter[place] = add_over(xp, part * x[source], (0,))
        d_x[source] += part * filter[place]
    return d_x, d_filter


def offsets_of_rows(x, x_lod) -> np.ndarray:
    """The offsets of the sequences of `x`, which must have some."""
    if not x_lod:
        raise ExecutionError(
            "X is a matrix without sequences",
            hint="Feed it as a LoDTensor, or padded as [batch, steps, features].",
        )
    return x_lod[-1]
