"""Figures of a comparison: one record per strategy or training run, and all of them together.

Tables, pictures, pages and files are made from these; `minigraph.comparison.report` adds the methods that make them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from minigraph.comparison.html import statistics_table
from minigraph.comparison.statistics import Estimate, GradientStatistics, Series, finite, mean_of_finite
from minigraph.comparison.wording import ALL_TOGETHER, number
from minigraph.errors import NotFoundError, suggest
from minigraph.ir import Program
from minigraph.ir.text.diff import Difference, diff
from minigraph.runtime.place import Place
from minigraph.support.html import in_notebook


@dataclass(frozen=True, eq=False, repr=False)
class StrategyResult:
    """Figures of one strategy, in either comparison.

    Attributes
    ----------
    name : str
    strategy : GradientClipBase or None
        None: unclipped.
    program : Program
        The unclipped program with this strategy's operators, and no other strategy's.
    parameters : dict of str to GradientStatistics
        By parameter, in the order of their creation.
    total : GradientStatistics
        All gradients as one vector, so that its norms are global norms.
    """

    name: str
    strategy: Any
    program: Program
    parameters: Mapping[str, GradientStatistics]
    total: GradientStatistics

    unit: ClassVar[str] = "batches"
    """Name of the things that a series has one entry for."""

    @property
    def statistics(self) -> dict[str, GradientStatistics]:
        """Statistics of each parameter, then those of `ALL_TOGETHER`."""
        return {**self.parameters, ALL_TOGETHER: self.total}

    def shape(self, parameter: str) -> tuple[int, ...]:
        """The shape of a parameter."""
        return tuple(self.program.global_block().var(parameter).shape or ())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.total!r:.200}>"

    def table_html(self) -> str:
        """An HTML table of the means by parameter; without a clip it shows nothing but norms."""
        shapes = {name: self.shape(name) for name in self.parameters}
        return statistics_table(self.statistics, shapes, self.unit, is_clipped=self.strategy is not None)

    def _repr_html_(self) -> str:
        return in_notebook(self.name, self.table_html())


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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

    loss: Series
    metrics: Mapping[str, Series]
    values: Mapping[str, NDArray[Any]]
    epoch_of_step: NDArray[np.int64]
    seed: int | None = None
    rate: float | None = None
    is_complete: bool = True

    unit: ClassVar[str] = "steps"

    def __repr__(self) -> str:
        losses = f"loss {number(self.loss[0])} to {number(self.loss[-1])}" if len(self.loss) else "no step"
        return f"<TrainingRun {self.label}: {losses}, {self.total!r:.200}>"

    @property
    def label(self) -> str:
        """The strategy's name and, where they were given, rate and seed."""
        at = "" if self.rate is None else f" at rate {self.rate:g}"
        return f"{self.name}{at}" + ("" if self.seed is None else f" with seed {self.seed}")

    @property
    def diverged_at(self) -> int | None:
        """The first step, counted from 1, whose loss is NaN or infinite; None if all are finite."""
        broken = np.flatnonzero(~np.isfinite(self.loss))
        return int(broken[0]) + 1 if len(broken) else None


R = TypeVar("R", bound=StrategyResult)


@dataclass(frozen=True, eq=False, repr=False)
class Results(Generic[R]):
    """Results by strategy; ``results["name"]`` is one of them, and iteration gives the names.

    Attributes
    ----------
    forward : Program
        The program without backward pass.
    unclipped : Program
        The same with everything but clipping.
    strategies : dict of str to StrategyResult
        In the order asked for.
    place : Place
    settings : dict
        The caller's notes on the experiment, shown with the results.
    partial : str
        Where the comparison was interrupted; empty if it was not.
    """

    forward: Program
    unclipped: Program
    strategies: Mapping[str, R]
    place: Place
    settings: Mapping[str, Any] = field(default_factory=dict)
    partial: str = ""

    def __getitem__(self, name: str) -> R:
        if name not in self.strategies:
            known = f"There are {', '.join(self.strategies)}." if self.strategies else "There is none."
            raise NotFoundError(f"the report has no strategy {name!r}", hint=suggest(name, self.strategies) or known)
        return self.strategies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.strategies)

    def __len__(self) -> int:
        return len(self.strategies)

    def shape(self, parameter: str) -> tuple[int, ...]:
        """The shape of a parameter."""
        return tuple(self.unclipped.global_block().var(parameter).shape or ())

    def diff(self, name: str) -> Difference:
        """Text of the changes that a strategy makes to the unclipped program; see `minigraph.diff`."""
        return diff(self.unclipped, self[name].program)

    def inserted(self, result: StrategyResult) -> int:
        """Number of operators that a strategy inserts."""
        return operator_count(result.program) - operator_count(self.unclipped)


def operator_count(program: Program) -> int:
    """Number of operators in all blocks."""
    return sum(len(block.ops) for block in program.blocks)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GradientResults(Results[StrategyResult]):
    """Gradients of one program under several strategies.

    Attributes
    ----------
    forward : Program
        The program without backward pass.
    unclipped : Program
        The same with its backward pass; each strategy's own program is compared with it.
    program : Program
        The one that ran: backward pass and all strategies.
    strategies : dict of str to StrategyResult
    loss : ndarray, float64[batches]
    batch_sizes : ndarray, int64[batches]
        The leading dimension of the arrays fed; -1 where they share none.
    place : Place
    settings : dict
    partial : str
        Where the comparison was interrupted; empty if it was not.
    is_moving : bool
        Whether an optimizer moves the parameters between batches.
    ranks : tuple of dict of str to GradientStatistics
        For each rank, by strategy, all gradients of its part of the batches as one vector; empty for one rank.
    """

    program: Program
    loss: Series
    batch_sizes: NDArray[np.int64]
    is_moving: bool
    ranks: tuple[Mapping[str, GradientStatistics], ...] = ()

    def over_ranks(self, strategy: str) -> dict[str, GradientStatistics]:
        """Statistics of all gradients under a strategy: of each rank alone, and of all ranks."""
        found = {f"rank {rank} alone": each[strategy] for rank, each in enumerate(self.ranks)}
        return {**found, "all ranks": self.strategies[strategy].total}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TrainingResults(Results[TrainingRun]):
    """Trainings under several strategies: every run, and each strategy over its seeds and rates.

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
        Where the comparison was interrupted; empty if it was not. Only complete runs are judged, if there are any.
    """

    runs: tuple[TrainingRun, ...]
    epoch_of_step: NDArray[np.int64]
    is_held_out: bool

    @property
    def epochs(self) -> int:
        return int(self.epoch_of_step[-1])

    @property
    def steps(self) -> int:
        return len(self.epoch_of_step)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics measured at the end of each epoch."""
        return tuple(next(iter(self.strategies.values())).metrics) if self.strategies else ()

    def metric_title(self, name: str) -> str:
        """The name of a metric that says on what it was measured."""
        return f"held-out {name}" if self.is_held_out else f"mean {name}"

    # Over seeds and rates

    @cached_property
    def _judged(self) -> tuple[TrainingRun, ...]:
        """The runs that count: the complete ones, or all if none is complete."""
        return tuple(run for run in self.runs if run.is_complete) or self.runs

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """Seeds of the runs that are judged."""
        return tuple(dict.fromkeys(run.seed for run in self._judged))

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The learning rates, as they were given."""
        return tuple(dict.fromkeys(run.rate for run in self._judged))

    def at(self, name: str, rate: float | None) -> tuple[TrainingRun, ...]:
        """The runs of a strategy at one learning rate, by seed."""
        return tuple(run for run in self._judged if run.name == name and run.rate == rate)

    def best_rate(self, name: str) -> float | None:
        """The rate with the fewest diverged runs, and among these with the lowest mean of `judged_by`."""

        def order(rate: float | None) -> tuple[float, float]:
            found = self.estimate(name, rate)
            return found.diverged, math.inf if math.isnan(found.mean) else found.mean

        return min(dict.fromkeys(run.rate for run in self._judged if run.name == name), key=order)

    def at_best(self, name: str) -> tuple[TrainingRun, ...]:
        """The runs of a strategy at its best rate, by seed."""
        return self.at(name, self.best_rate(name))

    @property
    def judged_by(self) -> str:
        """The measure that strategies and rates are judged by."""
        return "held-out loss" if self.is_held_out else "mean loss of the last epoch"

    def estimate(self, name: str, rate: float | None, metric: str | None = None) -> Estimate:
        """Mean and spread over the seeds of a metric after the last epoch; default: of `judged_by`."""
        last = np.array([number for run in self.at(name, rate) for number in self._last(run, metric)])
        kept = finite(last)
        return Estimate(
            mean=mean_of_finite(last),
            spread=float(kept.std(ddof=1)) if len(kept) > 1 else math.nan,
            seeds=len(last),
            diverged=len(last) - len(kept),
        )

    def _last(self, run: TrainingRun, metric: str | None) -> Series:
        """The metric after the last epoch; empty if the run was interrupted in its first epoch."""
        if metric is None and not self.is_held_out:
            return np.array([run.loss[run.epoch_of_step == run.epoch_of_step[-1]].mean()])
        return run.metrics[metric or "loss"][-1:]
