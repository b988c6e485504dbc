"""Sums of squares."""

import math

import numpy as np

REASSOCIATED = ("sum_of_squares", "sum_of_parts")
PIECE = 8192


def sum_of_squares(x):
    """In float64, whatever the type of `x`."""
    total = 0.0
    for i in range(x.size):
        wide = np.float64(x[i])
        total += wide * wide
    return total


def split(square, power):
    """The multiple of the last digit of `power` that is nearest to a smaller number, and the rest."""
    multiple = (square + power) - power
    return multiple, square - multiple


def sum_of_parts(x, power):
    """The sum of the squares in two parts. The first is exact in any order; roundings of the second do not matter."""
    multiples, rests = 0.0, 0.0
    for i in range(x.size):
        wide = np.float64(x[i])
        multiple, rest = split(wide * wide, power)
        multiples += multiple
        rests += rest
    return multiples, rests


def parts_of_squares(x):
    """Two numbers whose sum is that of the rounded squares; see `minigraph.kernels.sums.parts_of_sizes`."""
    total, rests = 0.0, 0.0
    for start in range(0, x.size, PIECE):
        part = x[start : start + PIECE]
        about, rest = sum_of_squares(part), 0.0
        if x.itemsize == 8 and 1e-290 < about < 1e300:
            about, rest = sum_of_parts(part, math.ldexp(1.0, math.frexp(about)[1]))
        # The sum of two numbers and what rounding takes from it (D. E. Knuth).
        longer = total + about
        added = longer - total
        rests += (total - (longer - added)) + (about - added) + rest
        total = longer
    return total, rests if math.isfinite(total) else 0.0
