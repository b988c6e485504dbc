"""Sums over dimensions, in float64."""

import numpy as np

REASSOCIATED = ("piece_sum",)


def column_sums(x, total, out):
    """`total` is a vector to work in."""
    for j in range(x.shape[1]):
        total[j] = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[j] += np.float64(x[i, j])
    for j in range(x.shape[1]):
        out[j] = total[j]


def piece_sum(x, i, j):
    total = 0.0
    for k in range(x.shape[2]):
        total += np.float64(x[i, j, k])
    return total


def middle_sums(x, total, out):
    """Over the first and the last dimension; `total` is a vector to work in."""
    for j in range(x.shape[1]):
        total[j] = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[j] += piece_sum(x, i, j)
    for j in range(x.shape[1]):
        out[j] = total[j]
