"""Statistics of clipped gradients: norms, factors, cosines, share of elements changed.

All numbers are computed on the host from fetched gradients, so measuring changes nothing in the program. Sums of
products are taken in float64: float32 could not resolve a cosine that differs from 1 by less than a millionth. NaN,
infinity, 1e30 and 1e-30 are all in range. The cost is one copy of the gradients per strategy while a batch is compared,
and a fraction of the time of the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.kernels.norm import norm

Array = NDArray[Any]
Series = NDArray[np.float64]

_Row: TypeAlias = tuple[float, float, float, float]
"""One batch: norm before, norm after, cosine, share of elements changed."""

QUANTITIES: Final = ("norm_before", "norm_after", "factor", "cosine", "share_changed")
"""Names of the series of `GradientStatistics`."""


def finite(series: Array) -> Array:
    """The numbers that are neither NaN nor infinite."""
    return series[np.isfinite(series)]


def mean_of_finite(series: Array) -> float:
    """The mean of the finite numbers; NaN if there is none."""
    kept = finite(series)
    return float(kept.mean()) if len(kept) else math.nan


@dataclass(frozen=True)
class Summary:
    """A series in four numbers."""

    mean: float
    min: float
    max: float
    median: float


def summarize(series: Series) -> Summary:
    """Mean, minimum, maximum and median; NaN where the series is empty or holds a NaN.

    Examples
    --------
    >>> summarize(np.array([1.0, 2.0, 6.0]))
    Summary(mean=3.0, min=1.0, max=6.0, median=2.0)
    """
    if not len(series):
        return Summary(math.nan, math.nan, math.nan, math.nan)
    with np.errstate(all="ignore"):
        functions = (np.mean, np.min, np.max, np.median)
        return Summary(*[float(function(series)) for function in functions])


@dataclass(frozen=True, eq=False, repr=False)
class GradientStatistics:
    """Statistics of one gradient under a strategy, or of all gradients as one vector; one entry per batch.

    Attributes
    ----------
    norm_before, norm_after : ndarray, float64[batches]
        L2 norms of the gradient as the backward pass made it, and as the strategy left it.
    cosine : ndarray, float64[batches]
        Of the angle between the two; NaN where one of them is zero or not finite.
    share_changed : ndarray, float64[batches]
        The share of elements that changed, from 0 to 1. A NaN that stayed NaN has not changed.
    """

    norm_before: Series
    norm_after: Series
    cosine: Series
    share_changed: Series

    def __post_init__(self) -> None:
        for series in (self.norm_before, self.norm_after, self.cosine, self.share_changed):
            series.flags.writeable = False

    def __repr__(self) -> str:
        before, after, factor = (self.summary(name).mean for name in ("norm_before", "norm_after", "factor"))
        return (
            f"<GradientStatistics of {len(self.cosine)} batches: mean norm {before:.4g} before and {after:.4g} after "
            f"clipping, factor {factor:.4g}, {self.share_clipped:.0%} clipped>"
        )

    @property
    def factor(self) -> Series:
        """``norm_after / norm_before``; 1 for a zero gradient that stayed zero, infinity for one that did not."""
        with np.errstate(all="ignore"):
            ratio = self.norm_after / self.norm_before
        return np.where((self.norm_before == 0) & (self.norm_after == 0), 1.0, ratio)

    @property
    def clipped(self) -> NDArray[np.bool_]:
        """Whether any element changed, for each batch."""
        return self.share_changed > 0

    @property
    def share_clipped(self) -> float:
        """The share of batches in which the gradient changed, from 0 to 1."""
        return float(np.mean(self.clipped)) if len(self.clipped) else math.nan

    def summary(self, quantity: str) -> Summary:
        """Summary over the batches of one of `QUANTITIES`; a cosine counts only where it is defined.

        Examples
        --------
        >>> ones = np.ones(2)
        >>> statistics = GradientStatistics(4 * ones, np.array([1.0, 4.0]), ones, np.array([1.0, 0.0]))
        >>> statistics.summary("factor").mean, statistics.share_clipped
        (0.625, 0.5)
        """
        series = getattr(self, quantity)
        return summarize(series[~np.isnan(series)] if quantity == "cosine" else series)


@dataclass(frozen=True)
class Estimate:
    """A number over several seeds, as ``mean (spread)``.

    Attributes
    ----------
    mean : float
        Of the runs that did not diverge; NaN if all did.
    spread : float
        Their standard deviation, with ``n - 1``; NaN with fewer than two.
    seeds : int
        Number of runs.
    diverged : int
        Number of runs whose number is not finite.
    """

    mean: float
    spread: float
    seeds: int
    diverged: int


def l2_norm(*arrays: Array) -> float:
    """``sqrt(sum(x**2))`` over all elements; neither overflows nor underflows on the way, and shows NaN and infinity.

    Examples
    --------
    >>> norms = l2_norm(np.array([3e200, 4e200])), l2_norm(np.array([3e-200]), np.array([4e-200])), l2_norm(np.zeros(2))
    >>> print(*[f"{norm:.6g}" for norm in norms])
    5e+200 5e-200 0
    """
    scale, ratio = _norm(arrays)
    return float(scale * ratio)


def _norm(arrays: Sequence[Array]) -> tuple[float, float]:
    with np.errstate(all="ignore"):  # NaN and infinity are results like any other
        scale, ratio = norm(np, arrays)
    return float(scale), float(ratio)


def cosine(before: Array, after: Array) -> float:
    """Cosine of the angle between two arrays as vectors; NaN where one is zero or not finite."""
    return _cosine(_Vector(before), _Vector(after))


class _Vector:
    """An array as a vector; norm and direction are computed once for several comparisons."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self._scale, self._ratio = _norm([array])

    @property
    def norm(self) -> float:
        return float(self._scale * self._ratio)

    @property
    def has_direction(self) -> bool:
        return 0 < self._ratio < math.inf

    @cached_property
    def direction(self) -> Series:
        """The vector of length 1, in float64."""
        flat = self.array.ravel().astype(np.float64)
        if self._scale != 1:
            flat /= self._scale
        flat /= self._ratio
        return flat


def _cosine(before: _Vector, after: _Vector) -> float:
    if not (before.has_direction and after.has_direction):
        return math.nan
    if before is after:
        return 1.0
    return min(1.0, max(-1.0, float(before.direction @ after.direction)))  # rounding may lead out of the interval


def _elements_changed(before: Array, after: Array) -> int:
    if before is after:
        return 0
    differs = before != after
    differs &= (before == before) | (after == after)  # NaN differs from itself, but has not changed
    return int(np.count_nonzero(differs))


class Measured:
    """The raw gradients of a batch, measured once however many strategies they are compared with."""

    def __init__(self, gradients: Sequence[Array]) -> None:
        self.vectors = [_Vector(gradient) for gradient in gradients]


class Recorder:
    """Compare gradients batch by batch and keep the numbers.

    Parameters
    ----------
    names : sequence of str
        The parameters, in the order in which gradients come.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._rows: dict[str, list[_Row]] = {name: [] for name in names}
        self._total: list[_Row] = []

    def add(self, before: Measured, after: Sequence[Array]) -> None:
        """Record one batch: the raw gradients, and the same after clipping."""
        found = []
        for rows, vector, array in zip(self._rows.values(), before.vectors, after, strict=True):
            changed = _elements_changed(vector.array, array)
            clipped = _Vector(array) if changed else vector
            row = vector.norm, clipped.norm, _cosine(vector, clipped), changed / max(array.size, 1)
            rows.append(row)
            found.append((*row[:3], changed, array.size))
        self._total.append(_together(*zip(*found, strict=True)))

    def __len__(self) -> int:
        """Number of batches recorded, for every gradient and for all together."""
        return len(self._total)

    def parameters(self, count: int | None = None) -> dict[str, GradientStatistics]:
        """Statistics by parameter, of the first `count` batches (default: of all)."""
        return {name: _statistics(rows[:count]) for name, rows in self._rows.items()}

    def total(self, count: int | None = None) -> GradientStatistics:
        """Statistics of all gradients as one vector."""
        return _statistics(self._total[:count])


def _statistics(rows: Sequence[_Row]) -> GradientStatistics:
    return GradientStatistics(*np.array(rows, np.float64).reshape(-1, 4).T.copy())


def _together(
    before: Sequence[float], after: Sequence[float], cosines: Sequence[float], changed: Sequence[int],
    sizes: Sequence[int],
) -> _Row:  # fmt: skip
    """The row of all gradients as one vector, from the row of each.

    The cosine is the sum of the gradients' own cosines, each weighted by its share of both norms: no product of two
    magnitudes is formed, which might leave the range of float64.
    """
    norms = l2_norm(np.array(before, np.float64)), l2_norm(np.array(after, np.float64))
    total_cosine = math.nan
    if all(0 < whole < math.inf for whole in norms):
        parts = zip(before, after, cosines, strict=True)
        total_cosine = math.fsum(c * (a / norms[0]) * (b / norms[1]) for a, b, c in parts if a and b)
        total_cosine = min(1.0, max(-1.0, total_cosine))
    return *norms, total_cosine, sum(changed) / max(sum(sizes), 1)
