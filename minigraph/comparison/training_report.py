"""Result of trainings under several strategies: every run, and each strategy over its seeds and rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigraph.comparison.report import Report, StrategyResult
from minigraph.comparison.statistics import Series
from minigraph.comparison.wording import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(StrategyResult):
    """One training: of one strategy, at one learning rate, with one seed.

    Attributes
    ----------
    name, strategy, program
        As in `StrategyResult`; the program has the updates too.
    parameters, total : GradientStatistics
        One entry per step.
    loss : ndarray, float64[steps]
        Of each batch, before the step.
    metrics : dict of str to ndarray, float64[epochs]
        At the end of each epoch; see `TrainingReport.is_held_out`.
    values : dict of str to ndarray
        The parameters at the end.
    epoch_of_step : ndarray, int64[steps]
        Counted from 1.
    seed : int or None
        One of ``seeds=``; None if they were not given.
    rate : float or None
        One of ``rates=``; None if they were not given.
    is_complete : bool
        False if the training was interrupted.
    """

    loss: Series = field(kw_only=True)
    metrics: Mapping[str, Series] = field(kw_only=True)
    values: Mapping[str, NDArray[Any]] = field(kw_only=True)
    epoch_of_step: NDArray[np.int64] = field(kw_only=True)
    seed: int | None = field(kw_only=True, default=None)
    rate: float | None = field(kw_only=True, default=None)
    is_complete: bool = field(kw_only=True, default=True)

    def __repr__(self) -> str:
        from minigraph.comparison.findings import run_label

        losses = f"loss {number(self.loss[0])} to {number(self.loss[-1])}" if len(self.loss) else "no step"
        return f"<TrainingRun {run_label(self)}: {losses}, {self.total!r:.200}>"

    @property
    def diverged_at(self) -> int | None:
        """The first step, counted from 1, whose loss is NaN or infinite; None if all are finite."""
        broken = np.flatnonzero(~np.isfinite(self.loss))
        return int(broken[0]) + 1 if len(broken) else None


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
        How many runs there are.
    diverged : int
        In how many of them the number is not finite.
    """

    mean: float
    spread: float
    seeds: int
    diverged: int


@dataclass(frozen=True, eq=False, repr=False)
class TrainingReport(Report[TrainingRun]):
    """How training went under several strategies.

    Attributes
    ----------
    forward, unclipped : Program
        The program as given, and the same with backward pass and updates but no clip.
    strategies : dict of str to TrainingRun
        For each strategy the run with the first seed at the learning rate that is best for the strategy.
    runs : tuple of TrainingRun
        Every run: by seed, in each of them by rate, in each of them by strategy.
    epoch_of_step : ndarray, int64[steps]
        Counted from 1; that of the first run.
    is_held_out : bool
        Whether metrics were measured on the batches for evaluation after the epoch, by a clone for testing; otherwise
        they are means over the epoch's own batches, each before its step.
    place : Place
    settings : dict
    partial : str
        Where the comparison was interrupted; empty if it was not. Runs that are complete are judged alone, if any.
    """

    runs: tuple[TrainingRun, ...] = field(kw_only=True)
    epoch_of_step: NDArray[np.int64] = field(kw_only=True)
    is_held_out: bool = field(kw_only=True)

    @property
    def epochs(self) -> int:
        return int(self.epoch_of_step[-1])

    @property
    def steps(self) -> int:
        return len(self.epoch_of_step)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what was measured at the end of each epoch."""
        return tuple(next(iter(self.strategies.values())).metrics) if self.strategies else ()

    # Over seeds and rates

    @cached_property
    def _judged(self) -> Judged:
        return Judged(self.runs, self.is_held_out)

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """Of the runs that are judged."""
        return tuple(dict.fromkeys(run.seed for run in self._judged.runs))

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The learning rates, as they were given."""
        return tuple(dict.fromkeys(run.rate for run in self._judged.runs))

    def at(self, name: str, rate: float | None) -> tuple[TrainingRun, ...]:
        """The runs of a strategy at one learning rate, by seed."""
        return self._judged.at(name, rate)

    def best_rate(self, name: str) -> float | None:
        """The rate with the fewest diverged runs, and among these with the lowest mean of `judged_by`."""
        return self._judged.best_rate(name)

    def at_best(self, name: str) -> tuple[TrainingRun, ...]:
        """The runs of a strategy at its best rate, by seed."""
        return self.at(name, self.best_rate(name))

    @property
    def judged_by(self) -> str:
        """The measure that strategies and rates are judged by."""
        return "held-out loss" if self.is_held_out else "mean loss of the last epoch"

    def estimate(self, name: str, rate: float | None, metric: str | None = None) -> Estimate:
        """Mean and spread over the seeds of a metric after the last epoch; default: of `judged_by`."""
        return self._judged.estimate(name, rate, metric)

    # Ways out

    def finding(self) -> str:
        """As `minigraph.comparison.findings.training_finding` says it."""
        from minigraph.comparison.findings import training_finding

        return training_finding(self)

    def renderables(self, show_diff: bool) -> Iterator[RenderableType]:
        from minigraph.comparison.tables import training_tables

        return training_tables(self, show_diff)

    def to_json(self) -> dict[str, Any]:
        """As documented at `minigraph.comparison.records.training_json`."""
        from minigraph.comparison.records import training_json

        return training_json(self)

    def rows(self) -> Iterator[Sequence[Any]]:
        """One row per run, parameter and step; see `minigraph.comparison.records.training_rows`."""
        from minigraph.comparison.records import training_rows

        return training_rows(self)

    def figure(self) -> Figure:
        """Loss, metrics, norm and factor over time, a line per strategy."""
        from minigraph.comparison.plots import overview

        return overview(self)

    def html(self) -> str:
        from minigraph.comparison.page import training_page

        return training_page(self)


class Judged:
    """The runs that count: the complete ones, or all if none is complete.

    Parameters
    ----------
    runs : sequence of TrainingRun
    is_held_out : bool
        Whether ``metrics["loss"]`` is what a run is judged by; otherwise its own batches' loss in the last epoch.
    """

    def __init__(self, runs: Sequence[TrainingRun], is_held_out: bool) -> None:
        self.runs = tuple(run for run in runs if run.is_complete) or tuple(runs)
        self._is_held_out = is_held_out

    def at(self, name: str, rate: float | None) -> tuple[TrainingRun, ...]:
        return tuple(run for run in self.runs if run.name == name and run.rate == rate)

    def best_rate(self, name: str) -> float | None:
        def order(rate: float | None) -> tuple[float, float]:
            found = self.estimate(name, rate)
            return found.diverged, math.inf if math.isnan(found.mean) else found.mean

        return min(dict.fromkeys(run.rate for run in self.runs if run.name == name), key=order)

    def estimate(self, name: str, rate: float | None, metric: str | None = None) -> Estimate:
        last = np.array([number for run in self.at(name, rate) for number in self._last(run, metric)])
        kept = last[np.isfinite(last)]
        return Estimate(
            mean=float(kept.mean()) if len(kept) else math.nan,
            spread=float(kept.std(ddof=1)) if len(kept) > 1 else math.nan,
            seeds=len(last),
            diverged=len(last) - len(kept),
        )

    def _last(self, run: TrainingRun, metric: str | None) -> Series:
        """One number, or none if the run was interrupted in its first epoch."""
        if metric is None and not self._is_held_out:
            return np.array([run.loss[run.epoch_of_step == run.epoch_of_step[-1]].mean()])
        return run.metrics[metric or "loss"][-1:]
