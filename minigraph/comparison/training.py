"""What clipping strategies do to training: one clone of a program per strategy, all trained side by side.

Every clone starts from the same parameter values, sees the same batches in the same order and draws the same random
numbers. A loss that is not finite is a result like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from minigraph.backward import ParamsGrads
from minigraph.comparison.programs import (
    Feed,
    Feeds,
    Strategy,
    Values,
    batch_size,
    building,
    check_clips,
    clip,
    each_feed,
    feed_count,
    forward_clone,
    made_by,
    name_in,
    scope_with,
    start_values,
)
from minigraph.comparison.progress import ProgressBar
from minigraph.comparison.report import Report, StrategyResult
from minigraph.comparison.statistics import Measured, Recorder, Series
from minigraph.errors import ProgramError, WrongTypeError, caller_site
from minigraph.executor import Executor
from minigraph.ir import Program, Variable
from minigraph.optimizer import Optimizer
from minigraph.place import Place
from minigraph.scope import Scope

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

RANDOM_SEED: Final = 1
"""Of the random numbers that each clone draws, the same for all."""


@dataclass(frozen=True, eq=False)
class TrainingRun(StrategyResult):
    """One strategy's training.

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
    """

    loss: Series = field(kw_only=True)
    metrics: Mapping[str, Series] = field(kw_only=True)
    values: Mapping[str, NDArray[Any]] = field(kw_only=True)

    @property
    def diverged_at(self) -> int | None:
        """The first step, counted from 1, whose loss is NaN or infinite; None if all are finite."""
        broken = np.flatnonzero(~np.isfinite(self.loss))
        return int(broken[0]) + 1 if len(broken) else None


@dataclass(frozen=True, eq=False)
class TrainingReport(Report[TrainingRun]):
    """How training went under several strategies.

    Attributes
    ----------
    forward, unclipped : Program
        The program as given, and the same with backward pass and updates but no clip.
    strategies : dict of str to TrainingRun
    epoch_of_step : ndarray, int64[steps]
        Counted from 1.
    is_held_out : bool
        Whether metrics were measured on the batches for evaluation after the epoch, by a clone for testing; otherwise
        they are means over the epoch's own batches, each before its step.
    place : Place
    settings : dict
    """

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

    def renderables(self, show_diff: bool) -> Iterator[RenderableType]:
        from minigraph.comparison.tables import training_tables

        return training_tables(self, show_diff)

    def to_json(self) -> dict[str, Any]:
        """As documented at `minigraph.comparison.records.training_json`."""
        from minigraph.comparison.records import training_json

        return training_json(self)

    def rows(self) -> Iterator[Sequence[Any]]:
        """One row per strategy and step; see `minigraph.comparison.records.training_rows`."""
        from minigraph.comparison.records import training_rows

        return training_rows(self)

    def figure(self) -> Figure:
        """Loss, metrics, norm and factor over time, a line per strategy."""
        from minigraph.comparison.plots import training_overview

        return training_overview(self)

    def html(self) -> str:
        from minigraph.comparison.page import training_page

        return training_page(self)


def compare_training(
    program: Program,
    loss: Variable | str,
    clips: Mapping[str, Strategy],
    feeds: Feeds,
    *,
    optimizer: Callable[[], Optimizer],
    epochs: int = 1,
    metrics: Mapping[str, Variable | str] | None = None,
    evaluate: Feeds | None = None,
    startup: Program | None = None,
    scope: Scope | None = None,
    place: Place | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> TrainingReport:
    """Train a clone of `program` under each clipping strategy, from the same start and on the same batches.

    Each batch is given to all clones before the next one is drawn, so that a reader that shuffles serves all alike. The
    program, the scope and the default programs stay as they are.

    Parameters
    ----------
    program : Program
        Backward pass and updates that it has already are left out of the clones, and so are clips noted on parameters.
    loss : Variable or str, float[1]
        What to minimize.
    clips : dict of str to GradientClipBase
        Strategies by name, as in `minigraph.compare_gradients`; None trains unclipped.
    feeds : iterable of dict, or callable that returns one
        The batches of an epoch: variable name to array. A callable is called for each epoch anew.
    optimizer : callable
        Returns a new optimizer without clip, such as ``lambda: SGDOptimizer(0.1)``; called for each clone, which is
        then the default program. Its weight decay is added to the clipped gradients.
    epochs : int
        At least 1.
    metrics : dict of str to Variable or str, float[1], optional
        What to measure beside the loss, such as an accuracy. An epoch's value is the mean over batches, weighted by
        their rows where all arrays fed have the same number of them.
    evaluate : iterable of dict, or callable that returns one, optional
        Batches to measure on after each epoch: the loss and `metrics`, by a clone for testing. Default: `metrics` are
        means over the epoch's own batches.
    startup : Program, optional
        Run once for the parameters' values.
    scope : Scope, optional
        Where the values are, in place of `startup`. Default: the global scope. They are copied.
    place, settings, progress
        As in `minigraph.compare_gradients`.

    Returns
    -------
    TrainingReport

    Raises
    ------
    ValueError
        If `epochs` is not positive.
    ClipError
        If the optimizer has a clip of its own.
    WrongTypeError, NotFoundError, ProgramError, DataError
        As in `minigraph.compare_gradients`.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
    ...     x = fluid.data("x", [None, 2])
    ...     zeros = fluid.initializer.Constant(0.0)
    ...     y = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr(initializer=zeros), bias_attr=False)
    ...     loss = fluid.layers.mean(y)
    >>> batch = {"x": np.array([[3, 4]], "float32")}  # which is the gradient, too
    >>> clips = {"unclipped": None, "norm 1": fluid.clip.GradientClipByNorm(1.0)}
    >>> report = compare_training(main, loss, clips, [batch], epochs=3, startup=startup,
    ...                           optimizer=lambda: fluid.optimizer.SGD(1.0))
    >>> report["unclipped"].loss.round(5), report["norm 1"].loss.round(5)
    (array([  0., -25., -50.]), array([  0.,  -5., -10.]))
    """
    clips = check_clips(clips)
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs!r}")
    loss_name = name_in(program, loss, "loss")
    measured = {name: name_in(program, var, f"metric {name!r}") for name, var in (metrics or {}).items()}
    if evaluate is not None:
        measured = {"loss": loss_name, **measured}
    forward = forward_clone(program)
    values, place = start_values(forward, startup, scope, place)
    built = {name: _build(forward, loss_name, name, strategy, optimizer) for name, strategy in clips.items()}
    trainees = {name: _Trainee(built[name], place, values, loss_name, measured, evaluate is not None) for name in clips}
    count = feed_count(feeds)
    with ProgressBar(None if count is None else count * epochs, progress) as bar:
        epoch_of_step = _train(list(trainees.values()), feeds, evaluate, epochs, bar)
    return TrainingReport(
        forward=forward,
        unclipped=_build(forward, loss_name, "unclipped", None, optimizer).program,
        strategies={name: trainees[name].result(name, strategy) for name, strategy in clips.items()},
        place=place,
        settings=dict(settings or {}),
        epoch_of_step=np.array(epoch_of_step, np.int64),
        is_held_out=evaluate is not None,
    )


def _train(
    trainees: Sequence[_Trainee], feeds: Feeds, evaluate: Feeds | None, epochs: int, bar: ProgressBar
) -> list[int]:
    """Train all clones; returns the epoch of each step."""
    epoch_of_step = []
    for epoch in range(1, epochs + 1):
        for feed in each_feed(feeds, f"feeds of epoch {epoch}"):
            for trainee in trainees:
                trainee.step(feed)
            epoch_of_step.append(epoch)
            bar.advance()
        for feed in each_feed(evaluate, f"evaluation after epoch {epoch}") if evaluate is not None else ():
            for trainee in trainees:
                trainee.evaluate(feed)
        for trainee in trainees:
            trainee.end_epoch()
    return epoch_of_step


# A clone


@dataclass(frozen=True)
class _Built:
    """A clone with backward pass, clip and updates, the startup program of its state, and the pairs to compare."""

    program: Program
    test: Program
    state: Program
    raw: ParamsGrads
    clipped: ParamsGrads


def _build(forward: Program, loss: str, name: str, strategy: Strategy, optimizer: Callable[[], Optimizer]) -> _Built:
    program = forward.clone()
    with building(program) as state:
        chosen = made_by(optimizer)
        loss_var = program.global_block().var(loss)
        raw = chosen.backward(loss_var, state)
        if not raw:
            raise ProgramError(f"{loss} depends on no trainable parameter", site=caller_site())
        # Clipped in the order of the updates, as the optimizer would do it: sums over several gradients depend on it.
        clipped = clip(name, strategy, sorted(raw, key=lambda pair: pair[0].name))
        chosen.apply_optimize(loss_var, state, clipped)
    grads = {param.name: grad for param, grad in clipped}
    return _Built(program, forward.clone(for_test=True), state, raw, [(param, grads[param.name]) for param, _ in raw])


class _Mean:
    """A mean weighted by rows. NaN stays NaN, and no batch gives NaN."""

    def __init__(self) -> None:
        self._total = self._weight = 0.0

    def add(self, value: float, weight: float) -> None:
        self._total += value * weight
        self._weight += weight

    def take(self) -> float:
        """The mean so far; then it starts anew."""
        mean = self._total / self._weight if self._weight else math.nan
        self._total = self._weight = 0.0
        return mean


class _Trainee:
    """A clone at work in a scope of its own, and what was found so far.

    `measured` is fetched in each step or, if `is_held_out`, in evaluation only.
    """

    def __init__(
        self, built: _Built, place: Place, values: Values, loss: str, measured: Mapping[str, str], is_held_out: bool
    ) -> None:
        self._built, self._loss, self._measured, self._is_held_out = built, loss, measured, is_held_out
        self._executor = Executor(place)
        # Masks of dropout and the like are to be the same under every strategy.
        self._executor._rng = place.rng(RANDOM_SEED)
        self._scope = scope_with(values, built.state, place)
        self._recorder = Recorder([param.name for param, _ in built.raw])
        self._losses: list[float] = []
        self._means = {name: _Mean() for name in measured}
        self._metrics: dict[str, list[float]] = {name: [] for name in measured}

    def step(self, feed: Feed) -> None:
        """One step of training, recorded."""
        raw, clipped = ([grad.name for _, grad in pairs] for pairs in (self._built.raw, self._built.clipped))
        measured = {} if self._is_held_out else self._measured
        found = self._run(self._built.program, feed, [self._loss, *raw, *clipped, *measured.values()])
        self._losses.append(_number(found[self._loss]))
        self._recorder.add(Measured([found[name] for name in raw]), [found[name] for name in clipped])
        self._measure(measured, found, feed)

    def evaluate(self, feed: Feed) -> None:
        """Measure on a batch, without learning from it."""
        found = self._run(self._built.test, feed, list(self._measured.values()))
        self._measure(self._measured, found, feed)

    def end_epoch(self) -> None:
        for name, mean in self._means.items():
            self._metrics[name].append(mean.take())

    def _run(self, program: Program, feed: Feed, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        unique = list(dict.fromkeys(names))
        fetched = self._executor.run(program, feed=feed, fetch_list=unique, scope=self._scope)
        # Selected rows are measured as the whole gradient.
        return dict(zip(unique, map(np.asarray, fetched), strict=True))

    def _measure(self, measured: Mapping[str, str], found: Mapping[str, NDArray[Any]], feed: Feed) -> None:
        rows = batch_size(feed)
        for name, variable in measured.items():
            self._means[name].add(_number(found[variable]), 1 if rows < 0 else rows)

    def result(self, name: str, strategy: Strategy) -> TrainingRun:
        holders = {param.name: self._scope.var(param.name) for param, _ in self._built.raw}
        return TrainingRun(
            name=name,
            strategy=strategy,
            program=self._built.program,
            parameters=self._recorder.parameters(),
            total=self._recorder.total(),
            loss=np.array(self._losses, np.float64),
            metrics={name: np.array(series, np.float64) for name, series in self._metrics.items()},
            values={name: np.array(holder.get_tensor()) for name, holder in holders.items()},
        )


def _number(array: NDArray[Any]) -> float:
    if array.size != 1:
        raise WrongTypeError(f"a metric must have one element, got shape {list(array.shape)}", site=caller_site())
    return float(array.reshape(()))
