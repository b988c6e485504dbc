"""Sums of squares, and products with one number."""

import numpy as np

REASSOCIATED = ("sum_of_squares",)


def sum_of_squares(x):
    """In float64, whatever the type of `x`."""
    total = 0.0
    for i in range(x.size):
        wide = np.float64(x[i])
        total += wide * wide
    return total


def multiply(x, number, out):
    for i in range(x.size):
        out[i] = x[i] * number
