"""Exponentials of one number, for the type whose constants come from `functions32` or `functions64`."""

import numpy as np

from minigraph.kernels.jit.loops.functions32 import (
    BIAS,
    DIGITS,
    EXACT,
    HIGHEST,
    LOWEST,
    LOWEST_MINUS_1,
    I,
    T,
    exp_minus_1_of_rest,
    log,
)

CONTRACTED = ("exp", "expm1", "log1p")


def power_of_two(n):
    """``2 ** n`` for the exponents of normal numbers."""
    return I(I(n + BIAS) << DIGITS).view(T)


def exp(x):
    # Beyond these ends the result is 0 or infinite.
    inside = x if x < HIGHEST else HIGHEST
    inside = inside if inside > LOWEST else LOWEST
    n = np.floor(inside * T(1.44269504088896338700) + T(0.5))
    # In two steps, because the power of two alone may overflow, or be subnormal.
    half = I(I(n) >> 1)
    first, second = power_of_two(half), power_of_two(I(I(n) - half))
    result = (exp_minus_1_of_rest(inside, n) + T(1)) * first * second
    return x if x != x else result


def expm1(x):
    inside = x if x < HIGHEST else HIGHEST
    inside = inside if inside > LOWEST_MINUS_1 else LOWEST_MINUS_1
    n = np.floor(inside * T(1.44269504088896338700) + T(0.5))
    rest = exp_minus_1_of_rest(inside, n)
    # 2 ** n * (rest + 1) - 1, where the power may overflow, but in two steps does not.
    half = I(I(n) >> 1)
    other = I(I(n) - half)
    first = power_of_two(half)
    result = (rest * first + (first - power_of_two(I(-other)))) * power_of_two(other)
    return x if x != x else result


def log1p(x):
    u = T(1) + x
    # The part that the sum was rounded by.
    lost = (x - (u - T(1))) / u if abs(x) < EXACT and u > T(0) else T(0)
    return log(u) + lost
