"""The error function and functions of it, by rational approximations as W. J. Cody's, one for each interval.

The coefficients are those of FreeBSD's ``s_erf.c`` (Sun Microsystems, 1993, free to use), which are exact enough for
float64; NumPy has no error function.

References
----------
W. J. Cody, Rational Chebyshev approximations for the error function, Mathematics of Computation 23, 1969.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigraph.kernels.activation import at_least, logistic
from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.tracing import ErrorFunctions
from minigraph.kernels.upcast import widened

_PIECE = 8192
"""Elements computed at a time: they fit in the cache."""

_FAR = 28.0
"""Minimum x for which erfc(x) is 0 in float64."""

_BOUND = 40.0
"""Maximum magnitude for which the density of the normal distribution is not 0 in float64."""

_SMALL = 0.84375
"""Upper end of the first interval, in which erf is approximated around 0."""

_AT_1 = 8.45062911510467529297e-01
"""Approximation of erf(1) with trailing zero bits."""

# Numerators and denominators in x ** 2 below 0.84375, in x - 1 up to 1.25, in x ** -2 up to 1 / 0.35 and beyond.
_P = (1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
      -5.77027029648944159157e-03, -2.37630166566501626084e-05)  # fmt: skip
_Q = (1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
      1.32494738004321644526e-04, -3.96022827877536812320e-06)  # fmt: skip
_P_NEAR_1 = (-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
             3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
             -2.16637559486879084300e-03)  # fmt: skip
_Q_NEAR_1 = (1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
             1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02)  # fmt: skip
_P_TO_3 = (-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e01,
           -6.23753324503260060396e01, -1.62396669462573470355e02, -1.84605092906711035994e02,
           -8.12874355063065934246e01, -9.81432934416914548592e00)  # fmt: skip
_Q_TO_3 = (1.0, 1.96512716674392571292e01, 1.37657754143519042600e02, 4.34565877475229228821e02,
           6.45387271733267880336e02, 4.29008140027567833386e02, 1.08635005541779435134e02,
           6.57024977031928170135e00, -6.04244152148580987438e-02)  # fmt: skip
_P_FROM_3 = (-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e01,
             -1.60636384855821916062e02, -6.37566443368389627722e02, -1.02509513161107724954e03,
             -4.83519191608651397019e02)  # fmt: skip
_Q_FROM_3 = (1.0, 3.03380607434824582924e01, 3.25792512996573918826e02, 1.53672958608443695994e03,
             3.19985821950859553908e03, 2.55305040643316442583e03, 4.74528541206955367215e02,
             -2.24409524465858183362e01)  # fmt: skip


# For single precision: log(erfc(z)) + z ** 2 - log(t) by powers of t = 2 / (2 + z), within 3.1e-9 for z up to 10.6. The
# polynomial that meets it at the zeros of the Chebyshev polynomial of degree 12 on that interval of t.
_SHAPE = (-1.265539972943273, 1.000802745521375, 0.36499363504386156, 0.15416766844328145, -0.3995125872381082,
          0.7518093672103168, -1.710494036796454, 1.689457136559326, -0.4024162257824962, -0.470679857821934,
          0.3668525945678268, -0.07944046920259538)  # fmt: skip
_FAR_IN_SINGLE = 10.6
"""Minimum x for which erfc(x) is 0 in float32."""

# The share of a normal distribution beyond x, divided by exp(-x ** 2 / 2): a quotient of polynomials in x, within 7e-9
# of it up to 15. No coefficient is negative, so that float32 loses no digits; fitted by weighted least squares.
_P_BEYOND = (0.5, 0.439282745, 0.183968623, 0.0408809518, 0.00415320299)
_Q_BEYOND = (1.0, 1.6764505, 1.20554616, 0.471407335, 0.102479466, 0.0104104244)


def erf(xp, x) -> Any:
    """The error function of float32 or float64, with a relative error of about an ulp."""
    if xp is not np and isinstance(xp, ErrorFunctions):
        return xp.erf(x)
    return _in_pieces(xp, _erf_of_single if xp is np and x.dtype == np.float32 else _erf, x)


def erfc(xp, x) -> Any:
    """``1 - erf(x)``, with a relative error of a few ulps also where it is small."""
    if xp is not np and isinstance(xp, ErrorFunctions):
        return xp.erfc(x)
    return _in_pieces(xp, _erfc_of_single if xp is np and x.dtype == np.float32 else _erfc, x)


def _erf_of_single(xp, x) -> Any:
    near = np.clip(x, -1, 1, dtype=np.float64)
    near += near * _ratio(np, near * near, _P, _Q)
    size = np.abs(x, dtype=np.float64)
    return np.where(size < _SMALL, near, np.copysign(1 - _falling(size), x)).astype(np.float32)


def _erfc_of_single(xp, x) -> Any:
    result = _falling(np.abs(x, dtype=np.float64))
    np.subtract(2, result, out=result, where=x < 0)
    return result.astype(np.float32)


def _falling(size) -> Any:
    """The function `erfc` of positive numbers, good to float32: one formula, so that no element has to be picked."""
    size = np.minimum(size, _FAR_IN_SINGLE)
    t = np.true_divide(2, size + 2)
    size *= size
    result = _polynomial(np, t, _SHAPE)
    np.exp(np.subtract(result, size, out=result), out=result)
    result *= t
    return result


def _in_pieces(xp, function: Callable[[Any, Any], Any], x) -> Any:
    if xp is not np or x.size <= _PIECE:
        return function(xp, x)
    flat = x.reshape(-1)
    pieces = [function(xp, flat[start : start + _PIECE]) for start in range(0, flat.size, _PIECE)]
    return np.concatenate(pieces).reshape(x.shape)


def _erf(xp, x) -> Any:
    size = xp.absolute(x)
    return _by_interval(
        xp, x, size,
        lambda x: x + x * _ratio(xp, x * x, _P, _Q),
        lambda x: xp.copysign(_AT_1 + _ratio(xp, xp.absolute(x) - 1, _P_NEAR_1, _Q_NEAR_1), x),
        lambda x: xp.copysign(1 - _tail(xp, xp.absolute(x), _P_TO_3, _Q_TO_3), x),
        lambda x: xp.copysign(1 - _tail(xp, xp.absolute(x), _P_FROM_3, _Q_FROM_3), x),
    )  # fmt: skip


def _erfc(xp, x) -> Any:
    size = xp.absolute(x)
    return _by_interval(
        xp, x, size,
        lambda x: _one_minus(xp, x, x * _ratio(xp, x * x, _P, _Q)),
        lambda x: 1 - xp.copysign(_AT_1 + _ratio(xp, xp.absolute(x) - 1, _P_NEAR_1, _Q_NEAR_1), x),
        lambda x: _reflected(xp, x, _tail(xp, xp.absolute(x), _P_TO_3, _Q_TO_3)),
        lambda x: _reflected(xp, x, _tail(xp, xp.absolute(x), _P_FROM_3, _Q_FROM_3)),
    )  # fmt: skip


def _one_minus(xp, x, rest) -> Any:
    """``1 - (x + rest)`` without cancellation near 1/2."""
    return xp.where(x < 0.25, 1 - (x + rest), 0.5 - ((x - 0.5) + rest))


def _reflected(xp, x, tail) -> Any:
    """``erfc(-x) = 2 - erfc(x)``."""
    return xp.where(x < 0, 2 - tail, tail)


def _by_interval(xp, x, size, *functions: Callable[[Any], Any]) -> Any:
    """Each function on its interval of `size`; NaN, which is in none, stays."""
    near_1, to_3, from_3 = size >= _SMALL, size >= 1.25, size >= 1 / 0.35
    masks = size < _SMALL, near_1 & ~to_3, to_3 & ~from_3, from_3
    result = x.copy()
    for mask, function in zip(masks, functions, strict=True):
        if xp is not np:
            result = xp.where(mask, function(x), result)
        elif mask.any():
            result[mask] = function(x[mask])
    return result


def _ratio(xp, t, p: Sequence[float], q: Sequence[float]) -> Any:
    return _polynomial(xp, t, p) / _polynomial(xp, t, q)


def _polynomial(xp, t, coefficients: Sequence[float]) -> Any:
    result = t * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        result += coefficient
        result *= t
    result += coefficients[0]
    return result


def _tail(xp, size, p: Sequence[float], q: Sequence[float]) -> Any:
    """The function `erfc` of positive numbers, ``exp(-size ** 2) / size`` times something near a constant.

    Few digits of a number have an exact square; what they leave out is made up for.
    """
    size = xp.minimum(size, _FAR)
    short = np.float32 if size.dtype == np.float64 else np.float16
    few = size.astype(short).astype(size.dtype)
    rest = (few - size) * (few + size) + _ratio(xp, 1 / (size * size), p, q)
    return xp.exp(-few * few - 0.5625) * xp.exp(rest) / size


@kernel("erf")
@widened
def erf_kernel(xp, x, *, out=None):
    return deliver(xp, erf(xp, x), out)


@kernel("erf_grad")
@widened
def erf_grad(xp, x, d_out, *, out=None):
    slope = xp.exp(-xp.square(x))
    slope *= 2 / math.sqrt(math.pi)
    return xp.multiply(slope, d_out, out=out)


@kernel("gelu")
@widened
def gelu(xp, x, *, approximate, out=None):
    return xp.multiply(at_least(xp, x, -_BOUND), _share(xp, _bounded(x), approximate), out=out)


@kernel("gelu_grad")
@widened
def gelu_grad(xp, x, d_out, *, approximate, out=None):
    x = _bounded(x)
    if not approximate and xp is np and x.dtype == np.float32:
        return np.multiply(_in_pieces(np, _slope_of_single, x), d_out, out=out)
    share = _share(xp, x, approximate)
    if approximate:
        inner = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        slope = share + x * share * (1 - share) * inner
    else:
        slope = share + x * xp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return xp.multiply(slope, d_out, out=out)


def _bounded(x) -> Any:
    """`x` brought to where the normal distribution ends: its infinities would multiply zeros."""
    return x.clip(-_BOUND, _BOUND)


def _share(xp, x, approximate) -> Any:
    """The probability that a normal variable is at most `x`."""
    if approximate:
        return logistic(xp, 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    if xp is np and x.dtype == np.float32:
        return _in_pieces(np, lambda xp, x: _share_of_single(x, _bell(x)), x)
    return 0.5 * erfc(xp, x * -math.sqrt(0.5))


def _bell(x) -> Any:
    """``exp(-x ** 2 / 2)``."""
    exponent = np.square(x)
    exponent *= -0.5
    return np.exp(exponent, out=exponent)


def _share_of_single(x, bell) -> Any:
    """The probability in float32, whose relative error is some units of the last place, times x ** 2 if x is small.

    The square of x has as large an error, relative to that of x. An error function would need float64 for as much.
    """
    size = np.abs(x)
    beyond = _ratio(np, size, _P_BEYOND, _Q_BEYOND)
    beyond *= bell
    return np.where(x < 0, beyond, 1 - beyond)


def _slope_of_single(xp, x) -> Any:
    bell = _bell(x)
    share = _share_of_single(x, bell)
    bell *= x
    bell *= 1 / math.sqrt(2 * math.pi)
    return np.add(share, bell, out=bell)
