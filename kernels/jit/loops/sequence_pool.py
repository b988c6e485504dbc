"""Sums and maxima of the rows of each sequence; sums are taken in float64."""

import numpy as np

from minigraph.kernels.jit.loops.functions32 import T


def sums(x, offsets, factors, pad_value, out):
    """The sum of each sequence times its factor, and `pad_value` for one without rows."""
    columns = x.shape[1]
    total = np.empty(columns)
    for sequence in range(out.shape[0]):
        start, end = offsets[sequence], offsets[sequence + 1]
        for j in range(columns):
            total[j] = np.float64(x[start, j]) if start < end else pad_value
        for row in range(start + 1, end):
            for j in range(columns):
                total[j] += np.float64(x[row, j])
        factor = factors[sequence]
        for j in range(columns):
            out[sequence, j] = T(total[j] * factor if start < end else total[j])


def maxima(x, offsets, pad_value, out, places):
    """The first largest element of each column, the first NaN if there is one, and its row; -1 where there are none."""
    columns = x.shape[1]
    for sequence in range(out.shape[0]):
        start, end = offsets[sequence], offsets[sequence + 1]
        most, place = out[sequence], places[sequence]
        for j in range(columns):
            most[j] = x[start, j] if start < end else T(pad_value)
            place[j] = start if start < end else -1
        for row in range(start + 1, end):
            for j in range(columns):
                value, old = x[row, j], most[j]
                is_more = (value > old) | ((value != value) & (old == old))
                most[j] = value if is_more else old
                place[j] = np.int32(row) if is_more else place[j]
