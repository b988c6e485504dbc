"""Sums of squares."""

import numpy as np

REASSOCIATED = ("sum_of_squares",)


def sum_of_squares(x):
    """In float64, whatever the type of `x`."""
    total = 0.0
    for i in range(x.size):
        wide = np.float64(x[i])
        total += wide * wide
    return total
