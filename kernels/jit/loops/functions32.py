"""Functions of one float32, without branches, so that loops over them are vectorized.

Within 2 units of the last place, `tanh` within 4.

References
----------
S. L. Moshier, Cephes mathematical library (expf); Sun Microsystems, fdlibm (logf); the library Eigen (tanh).
"""

import numpy as np

CONTRACTED = ("exp_minus_1_of_rest", "log", "tanh")

T, I = np.float32, np.int32
BIAS, DIGITS = 127, 23
LOWEST_EXPONENT = T(-87)
LOWEST, LOWEST_MINUS_1, HIGHEST, EXACT = T(-104), T(-80), T(89), T(1e8)


def sign(x):
    return x if x != x else T(x > T(0)) - T(x < T(0))


def bits_of(x):
    return T(x).view(I)


def exp_minus_1_of_rest(x, n):
    """``exp(x - n * log(2)) - 1`` for a difference within half of log(2)."""
    r = x - n * T(0.693359375)
    r = r - n * T(-2.12194440e-4)
    p = T(1.9875691500e-4)
    p = p * r + T(1.3981999507e-3)
    p = p * r + T(8.3334519073e-3)
    p = p * r + T(4.1665795894e-2)
    p = p * r + T(1.6666665459e-1)
    p = p * r + T(5.0000001201e-1)
    return p * (r * r) + r


def log(x):
    # Subnormal numbers are scaled up first.
    is_tiny = x < T(1.17549435e-38)
    scaled = x * T(33554432) if is_tiny else x
    bits = np.int32(bits_of(scaled) - 0x3F3504F3)  # so that the rest lies around 1
    k = T(np.int32(bits >> 23)) - (T(25) if is_tiny else T(0))
    f = np.int32(np.int32(bits & 0x007FFFFF) + 0x3F3504F3).view(np.float32) - T(1)
    s = f / (T(2) + f)
    z = s * s
    w = z * z
    r = z * (T(0.66666662693) + w * T(0.28498786688)) + w * (T(0.40000972152) + w * T(0.24279078841))
    half = T(0.5) * f * f
    result = k * T(6.9313812256e-01) - ((half - (s * (half + r) + k * T(9.0580006145e-06))) - f)
    result = x if x == T(np.inf) or x != x else result
    return result if x > T(0) or x != x else (T(-np.inf) if x == T(0) else T(np.nan))


def tanh(x):
    # A rational function that is 1 in float32 at both ends.
    end = T(7.90531110763549805)
    inside = x if x < end else end
    inside = inside if inside > -end else -end
    z = inside * inside
    p = T(-2.76076847742355e-16) * z + T(2.00018790482477e-13)
    p = p * z + T(-8.60467152213735e-11)
    p = p * z + T(5.12229709037114e-08)
    p = p * z + T(1.48572235717979e-05)
    p = p * z + T(6.37261928875436e-04)
    p = p * z + T(4.89352455891786e-03)
    q = T(1.19825839466702e-06) * z + T(1.18534705686654e-04)
    q = q * z + T(2.26843463243900e-03)
    q = q * z + T(4.89352518554385e-03)
    result = inside * p / q
    return x if abs(x) < T(4e-4) or x != x else result
