"""Panels of a report: curves over batches, steps, epochs and learning rates, which `plots` draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from minigraph.clip import GradientClipByGlobalNorm, GradientClipByNorm
from minigraph.comparison.results import GradientResults, Results, TrainingResults
from minigraph.comparison.statistics import Series, finite
from minigraph.comparison.wording import ALL_TOGETHER, listed

MOST_PARAMETERS: Final = 12
"""Maximum parameters with a picture each; those with the largest gradients are chosen."""

BEFORE: Final = "before clipping"
"""Name of the raw gradients that all strategies share, where others have a strategy's name."""

NEARLY_EQUAL: Final = 0.005
"""Maximum distance of two lines that coincide, as a share of the picture's height."""

MANY_SIZES: Final = 1e3
"""Minimum ratio of the largest to the smallest number for an axis of powers of ten."""

DWARFED: Final = 10.0
"""Minimum ratio of the highest line's peak to the median of the others' for an axis of powers of ten."""


@dataclass(frozen=True)
class Curve:
    """A line of the strategy `name`: its values, their places along x, and the range over the seeds."""

    name: str
    values: Series
    at: Series | None = None
    low: Series | None = None
    high: Series | None = None


@dataclass(frozen=True)
class Panel:
    """A picture of one quantity.

    Attributes
    ----------
    title, x : str
        What is shown, and over what.
    curves : sequence of Curve
    kind : str
        ``size``: from zero on. ``level``: as the values are. ``cosine``: up to one.
    thresholds : dict of str to float
        By strategy.
    """

    title: str
    x: str
    curves: Sequence[Curve]
    kind: str = "size"
    thresholds: Mapping[str, float] | None = None

    def finite_values(self) -> Series:
        """All values that are drawn."""
        drawn = [curve.values if curve.high is None else curve.high for curve in self.curves]
        return np.concatenate([*map(finite, drawn), np.zeros(0)])

    @property
    def is_in_powers(self) -> bool:
        """Whether the axis is logarithmic: on a linear one small values would look like zero."""
        everything = self.finite_values()
        positive = everything[everything > 0]
        if self.kind == "cosine" or not len(positive) or everything.min() < 0:
            return False
        peaks = sorted(max(kept) for curve in self.curves if len(kept := finite(curve.values)))
        others = float(np.median(peaks[:-1])) if len(peaks) > 1 else 0.0
        return bool(positive.max() >= MANY_SIZES * positive.min() or 0 < DWARFED * others < peaks[-1])

    def coincident(self) -> list[str]:
        """Name the lines that coincide."""
        series = [curve.values for curve in self.curves]
        if self.is_in_powers:
            with np.errstate(all="ignore"):
                series = [np.log(values) for values in series]
        everything = np.concatenate([*map(finite, series), np.zeros(0)])
        lowest = 0.0 if self.kind == "size" and not self.is_in_powers else math.inf
        span = max(everything, default=0.0) - min(lowest, *everything) if len(everything) else 0.0
        groups: list[list[int]] = []
        for index, values in enumerate(series):
            near = next((g for g in groups if _are_near(series[g[0]], values, NEARLY_EQUAL * span)), None)
            if near is None:
                groups.append([index])
            else:
                near.append(index)
        names = [[self.curves[index].name for index in group] for group in groups if len(group) > 1]
        return [f"{listed(group)} coincide" for group in names]


def _are_near(a: Series, b: Series, tolerance: float) -> bool:
    a, b = (np.where(np.isfinite(each), each, np.nan) for each in (a, b))
    return a.shape == b.shape and np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True)


# Gradients


def gradient_panels(report: GradientResults) -> list[Panel]:
    """Norm, factor, cosine and share of elements changed, of all gradients together."""
    if not report.strategies:
        return []
    results = report.strategies.values()
    total = [
        ("factor, norm after / norm before", "factor", "size"),
        ("cosine of the angle to the raw gradients", "cosine", "cosine"),
        ("share of elements changed", "share_changed", "size"),
    ]
    return [
        _norms_panel(report, ALL_TOGETHER, "norm of all gradients after clipping"),
        *(
            Panel(title, "batch", [Curve(r.name, getattr(r.total, quantity)) for r in results], kind)
            for title, quantity, kind in total
        ),
    ]


def gradient_parameter_panels(report: GradientResults) -> list[Panel]:
    """The norm after clipping of each parameter's gradient."""
    return [_norms_panel(report, name, name) for name in largest(report)]


def _norms_panel(report: GradientResults, column: str, title: str) -> Panel:
    results = list(report.strategies.values())
    clipped = [Curve(r.name, r.statistics[column].norm_after) for r in results if r.strategy is not None]
    curves = [Curve(BEFORE, results[0].statistics[column].norm_before), *clipped]
    return Panel(title, "batch", curves, thresholds=_thresholds(report, column))


# Training


def training_panels(report: TrainingResults) -> list[Panel]:
    """Judged measure at each rate; loss, metrics, norm and factor over time at the best rate."""
    if not report.strategies:
        return []
    shown = [
        *([_rate_panel(report)] if len(report.rates) > 1 else []),
        _panel(report, "loss of each batch", "step", lambda run: run.loss),
        *(_metric_panel(report, metric) for metric in report.metrics),
        _training_norms(report, ALL_TOGETHER, "norm of all gradients before clipping"),
        _panel(report, "factor, norm after / norm before", "step", lambda run: run.total.factor),
    ]  # fmt: skip
    # A training that was interrupted may have no epoch.
    return [panel for panel in shown if any(np.isfinite(curve.values).any() for curve in panel.curves)]


def _metric_panel(report: TrainingResults, metric: str) -> Panel:
    return _panel(report, report.metric_title(metric), "epoch", lambda run: run.metrics[metric], kind="level")


def training_parameter_panels(report: TrainingResults) -> list[Panel]:
    """The norm before clipping of each parameter's gradient."""
    return [_training_norms(report, name, name) for name in largest(report)]


def _training_norms(report: TrainingResults, column: str, title: str) -> Panel:
    thresholds = _thresholds(report, column)
    return _panel(report, title, "step", lambda run: run.statistics[column].norm_before, thresholds=thresholds)


def _rate_panel(report: TrainingResults) -> Panel:
    curves = []
    rates = sorted(rate for rate in report.rates if rate is not None)
    for name in report:
        found = [report.estimate(name, rate) for rate in rates]
        means = np.array([estimate.mean for estimate in found])
        spreads = np.nan_to_num([estimate.spread for estimate in found])
        curves.append(Curve(name, means, np.array(rates), means - spreads, means + spreads))
    return Panel(f"{report.judged_by} at each learning rate", "learning rate", curves, "level")


def _panel(report: TrainingResults, title: str, x: str, series: Any, **options: Any) -> Panel:
    return Panel(title, x, [_over_seeds(report, name, series) for name in report], **options)


def _over_seeds(report: TrainingResults, name: str, series: Any) -> Curve:
    """The mean over the seeds at the strategy's best rate, between the least and the largest."""
    found = [series(run) for run in report.at_best(name)]
    count = min(map(len, found))
    stacked = np.array([values[:count] for values in found])
    with np.errstate(all="ignore"):
        mean = stacked.mean(axis=0)
    return Curve(name, mean, None, *((stacked.min(axis=0), stacked.max(axis=0)) if len(found) > 1 else ()))


# Both


def panels(report: Results[Any]) -> tuple[list[Panel], list[Panel]]:
    """The pictures of all gradients together, and those of one parameter each."""
    if isinstance(report, TrainingResults):
        return training_panels(report), training_parameter_panels(report)
    gradients: Any = report
    return gradient_panels(gradients), gradient_parameter_panels(gradients)


def largest(report: Results[Any]) -> list[str]:
    """The parameters that are drawn, in the report's order."""
    results = list(report.strategies.values())
    if not results:
        return []
    sizes = {name: s.summary("norm_before").mean for name, s in results[0].parameters.items()}
    by_size = sorted(sizes, key=lambda name: -math.inf if math.isnan(sizes[name]) else -sizes[name])
    chosen = set(by_size[:MOST_PARAMETERS])
    return [name for name in sizes if name in chosen]


def _thresholds(report: Results[Any], column: str) -> dict[str, float]:
    """Norms at which strategies begin to clip this column."""
    kind = GradientClipByGlobalNorm if column == ALL_TOGETHER else GradientClipByNorm
    clips = {name: result.strategy for name, result in report.strategies.items()}
    return {name: float(clip.clip_norm) for name, clip in clips.items() if type(clip) is kind}
