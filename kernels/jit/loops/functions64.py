"""Functions of one float64, without branches, so that loops over them are vectorized. Within 2 units of the last place.

References
----------
Sun Microsystems, fdlibm (exp, log).
"""

import numpy as np

from minigraph.kernels.jit.loops.exponentials import expm1

CONTRACTED = ("exp_minus_1_of_rest", "log", "tanh")

T, I = np.float64, np.int64
BIAS, DIGITS = 1023, 52
LOWEST_EXPONENT = T(-708)
LOWEST, LOWEST_MINUS_1, HIGHEST, EXACT = T(-746), T(-60), T(710), T(1e17)


def sign(x):
    return x if x != x else T(x > T(0)) - T(x < T(0))


def bits_of(x):
    return T(x).view(I)


def exp_minus_1_of_rest(x, n):
    """``exp(x - n * log(2)) - 1`` for a difference within half of log(2)."""
    high = x - n * T(6.93147180369123816490e-01)
    low = n * T(1.90821492927058770002e-10)
    r = high - low
    z = r * r
    p = T(4.13813679705723846039e-08)
    p = p * z + T(-1.65339022054652515390e-06)
    p = p * z + T(6.61375632143793436117e-05)
    p = p * z + T(-2.77777777770155933842e-03)
    p = p * z + T(1.66666666666666019037e-01)
    c = r - z * p
    return high - (low - (r * c) / (T(2) - c))


def log(x):
    # Subnormal numbers are scaled up first.
    is_tiny = x < T(2.2250738585072014e-308)
    scaled = x * T(18014398509481984) if is_tiny else x
    bits = np.int64(bits_of(scaled) - 0x3FE6A09E667F3BCD)  # so that the rest lies around 1
    k = T(np.int64(bits >> 52)) - (T(54) if is_tiny else T(0))
    f = np.int64(np.int64(bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).view(np.float64) - T(1)
    s = f / (T(2) + f)
    z = s * s
    w = z * z
    even = w * (T(3.999999999940941908e-01) + w * (T(2.222219843214978396e-01) + w * T(1.531383769920937332e-01)))
    odd = T(2.857142874366239149e-01) + w * (T(1.818357216161805012e-01) + w * T(1.479819860511658591e-01))
    r = even + z * (T(6.666666666666735130e-01) + w * odd)
    half = T(0.5) * f * f
    result = k * T(6.93147180369123816490e-01) - ((half - (s * (half + r) + k * T(1.90821492927058770002e-10))) - f)
    result = x if x == T(np.inf) or x != x else result
    return result if x > T(0) or x != x else (T(-np.inf) if x == T(0) else T(np.nan))


def tanh(x):
    part = expm1(T(-2) * abs(x))
    size = -part / (part + T(2))
    # With the sign of x.
    signed = np.int64(bits_of(size) | np.int64(bits_of(x) & np.int64(-0x8000000000000000))).view(np.float64)
    return x if x != x else signed
