"""Error functions of one float32, without branches, so that loops over them are vectorized.

`erf` is within 3 units of the last place. The relative error of `erfc` is some units times the square of x where x is
large, as that of the square is.
"""

from minigraph.kernels.jit.loops.exponentials import exp
from minigraph.kernels.jit.loops.functions32 import T

CONTRACTED = ("erf", "erfc", "erfc_of_positive")


def erfc_of_positive(x):
    # The share of a normal distribution beyond s, by the quotient in `minigraph.kernels.error_function`.
    size = x if x < T(10.6) else T(10.6)
    s = size * T(1.41421356237309504880)
    p = T(0.00415320299) * s + T(0.0408809518)
    p = p * s + T(0.183968623)
    p = p * s + T(0.439282745)
    p = p * s + T(0.5)
    q = T(0.0104104244) * s + T(0.102479466)
    q = q * s + T(0.471407335)
    q = q * s + T(1.20554616)
    q = q * s + T(1.6764505)
    q = q * s + T(1)
    return exp(-(size * size)) * (T(2) * p / q)


def erf(x):
    # erf(x) / x - 1 by the polynomial that meets it at the zeros of the Chebyshev polynomial of degree 7 in x ** 2,
    # within 1.4e-10 up to 0.84375.
    z = x * x
    near = T(8.889625314623117e-05) * z + T(-0.0008255121065303683)
    near = near * z + T(0.005210120230913162)
    near = near * z + T(-0.026862768456339836)
    near = near * z + T(0.11283751577138901)
    near = near * z + T(-0.37612637877464294)
    near = near * z + T(0.12837922573089598)
    far = T(1) - erfc_of_positive(abs(x))
    far = far if x > T(0) else -far
    result = x + x * near if abs(x) < T(0.84375) else far
    return x if x != x else result


def erfc(x):
    result = erfc_of_positive(abs(x))
    result = result if x > T(0) else T(2) - result
    return x if x != x else result
