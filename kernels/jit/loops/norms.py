"""Sums of squares."""

import math

import numpy as np

REASSOCIATED = ("sum_of_squares", "sum_of_parts")
PIECE = 8192


def sum_of_squares(x):
    """Return ``sum(x * x)``, added in float64 whatever the type of `x`."""
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


def added_exactly(numbers):
    """The sum of `numbers`, rounded once, as by ``math.fsum``; the vector is overwritten.

    Partial sums that do not overlap add up to it (J. R. Shewchuk, 1997); they take no more room than what was added.
    """
    rough = 0.0
    for i in range(numbers.size):
        rough += numbers[i]
    if not math.isfinite(rough):
        return rough
    count = 0
    for i in range(numbers.size):
        larger, kept = numbers[i], 0
        for j in range(count):
            smaller = numbers[j]
            if abs(larger) < abs(smaller):
                larger, smaller = smaller, larger
            total = larger + smaller
            rest = smaller - (total - larger)
            if rest != 0:
                numbers[kept] = rest
                kept += 1
            larger = total
        numbers[kept] = larger
        count = kept + 1
    return rounded_once(numbers[:count])


def rounded_once(partials):
    """The sum of numbers that do not overlap, the largest of them last."""
    last = partials.size - 1
    if last < 0:
        return 0.0
    total, rest = partials[last], 0.0
    while last > 0 and rest == 0:
        last -= 1
        larger, smaller = total, partials[last]
        total = larger + smaller
        rest = smaller - (total - larger)
    # Half a digit is rounded to even, unless the next partial sum says that it is more than half.
    if last > 0 and (rest > 0) == (partials[last - 1] > 0) and (total + 2 * rest) - total == 2 * rest:
        total += 2 * rest
    return total


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
