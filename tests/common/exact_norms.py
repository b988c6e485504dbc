"""Norms in exact rational arithmetic, and how far from them a floating-point number is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np


def power_sum(array, p=2):
    """The sum of magnitudes to the power of the integer p, exactly."""
    mantissas, exponents = np.frexp(array.astype(np.float64).reshape(-1))
    total = Fraction(0)
    for exponent in np.unique(exponents):
        whole = np.abs(mantissas[exponents == exponent] * 2.0**53).astype("int64").astype(object)
        total += int(np.sum(whole**p)) * Fraction(2) ** (p * (int(exponent) - 53))
    return total


def root(x: Fraction, p: int = 2) -> Fraction:
    """The root of order p, to 120 binary digits at least."""
    if not x or p == 1:
        return x
    shift = max(0, 120 * p - x.numerator.bit_length() + x.denominator.bit_length()) // p + 1
    whole = (x.numerator << p * shift) // x.denominator
    if p == 2:
        return Fraction(math.isqrt(whole), 1 << shift)
    found = 1 << -(-whole.bit_length() // p)  # Newton's method goes down to the integer root
    while (less := ((p - 1) * found + whole // found ** (p - 1)) // p) < found:
        found = less
    return Fraction(found, 1 << shift)


def exact_norm(arrays: Iterable[np.ndarray], p: float = 2) -> Fraction:
    """The joint norm of order p, an integer or infinite."""
    if p == math.inf:
        return max((Fraction(float(np.max(np.abs(array)))) for array in arrays if array.size), default=Fraction(0))
    return root(sum((power_sum(array, int(p)) for array in arrays), Fraction(0)), int(p))


def units_away(found, exact: Fraction) -> float:
    """Distance of a floating-point number from the exact one, in units of its last place; 0 if both overflow."""
    limits = np.finfo(found.dtype)
    if exact > Fraction(float(limits.max)) * (1 + Fraction(float(limits.eps)) / 4):
        return 0.0 if np.isinf(found) else math.inf
    if not np.isfinite(found):
        return math.inf
    largest = np.nextafter(limits.max, found.dtype.type(0))  # after the largest number is no other
    unit = np.spacing(min(found.dtype.type(float(min(exact, Fraction(float(largest))))), largest))
    return float(abs(Fraction(float(found)) - exact) / Fraction(float(unit)))
