"""Effect of clipping strategies on training: one clone of a program per strategy and rate, trained together.

With one seed every clone starts from the same parameter values, sees the same batches in the same order and draws the
same random numbers. A loss that is not finite is a result like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from minigraph.autodiff.backward import ParamsGrads
from minigraph.comparison import programs
from minigraph.comparison.programs import Feed, Feeds, Strategy, Values
from minigraph.comparison.progress import ProgressBar
from minigraph.comparison.report import Interrupted, TrainingReport
from minigraph.comparison.results import TrainingRun
from minigraph.comparison.statistics import Measured, Recorder
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.executor import Executor
from minigraph.ir import Program, Variable
from minigraph.optimizer import Optimizer
from minigraph.runtime.place import CPUPlace, Place
from minigraph.runtime.scope import Scope
from minigraph.support.public import public

T = TypeVar("T")

RANDOM_SEED: Final = 1
"""Seed of the random numbers that each clone draws where no seeds are given."""


@public
def compare_training(
    program: Program,
    loss: Variable | str,
    clips: Mapping[str, Strategy],
    feeds: Feeds,
    *,
    optimizer: Callable[..., Optimizer],
    epochs: int = 1,
    seeds: Sequence[int] | None = None,
    rates: Sequence[float] | None = None,
    metrics: Mapping[str, Variable | str] | None = None,
    evaluate: Feeds | None = None,
    startup: Program | None = None,
    scope: Scope | None = None,
    place: Place | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> TrainingReport:
    """Train a clone of `program` under each clipping strategy, from the same start and on the same batches.

    One seed does not tell a clip's effect from chance, and the best learning rate of one clip may be bad for another:
    give several of both, and each strategy is judged at its best rate, by mean and spread over the seeds. The program,
    the scope and the default programs stay as they are.

    Parameters
    ----------
    program : Program
        Backward pass and updates that it has already are left out of the clones, and so are clips noted on parameters.
    loss : Variable or str, float[1]
        Variable to minimize.
    clips : dict of str to GradientClipBase
        Strategies by name, as in `minigraph.compare_gradients`; None trains unclipped.
    feeds : iterable of dict, or callable that returns one
        The batches of an epoch: variable name to array. A callable is called for each epoch. If it needs an argument,
        it gets a `numpy.random.Generator` with the seed, to shuffle with.
    optimizer : callable
        Returns a new optimizer without clip, such as ``lambda: SGDOptimizer(0.1)``; called for each clone, which is
        then the default program. Its weight decay is added to the clipped gradients. With `rates` it takes the
        learning rate, as ``SGDOptimizer`` itself does.
    epochs : int
        At least 1.
    seeds : sequence of int, optional
        Train once with each: as if `startup` had been built with this ``random_seed``. Default: once, with the start
        values of `startup` or `scope`.
    rates : sequence of float, optional
        Learning rates: train once with each, and judge every strategy at its best rate. Default: once.
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
    Interrupted
        After Ctrl-C: a `KeyboardInterrupt` whose ``report`` holds the steps so far.
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
    clips = programs.check_clips(clips)
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs!r}")
    loss_name = programs.name_in(program, loss, "loss")
    measured = {name: programs.name_in(program, var, f"metric {name!r}") for name, var in (metrics or {}).items()}
    if evaluate is not None:
        measured = {"loss": loss_name, **measured}
    chosen_seeds, chosen_rates = _checked_seeds(seeds, startup), _checked_rates(rates)
    forward = programs.forward_clone(program)
    place = place or CPUPlace()
    build = partial(_build, forward, loss_name, optimizer, place)
    builds = [build(*clip, rate) for rate in chosen_rates for clip in clips.items()]
    unclipped = build("unclipped", None, chosen_rates[0]).program
    experiment = _Experiment(loss_name, measured, feeds, evaluate, epochs, len(chosen_seeds), place)
    trials: dict[int | None, _Trial] = {}

    def report(partial: str = "") -> TrainingReport:
        runs = tuple(run for trial in trials.values() for run in trial.runs())
        every_run = TrainingReport(
            forward=forward,
            unclipped=unclipped,
            strategies={},
            place=place,
            settings=dict(settings or {}),
            partial=partial,
            runs=runs,
            epoch_of_step=np.array(next(iter(trials.values())).epoch_of_step, np.int64),
            is_held_out=evaluate is not None,
        )
        return replace(every_run, strategies={name: every_run.at_best(name)[0] for name in clips})

    count = programs.feed_count(feeds)
    total = None if count is None else count * epochs * len(chosen_seeds)
    try:
        with ProgressBar(total, progress) as bar:
            for seed in chosen_seeds:
                start = startup if startup is None or seed is None else programs.seeded(startup, seed)
                values, _ = programs.start_values(forward, start, scope, place)
                trainees = [_Trainee(experiment, built, values, seed) for built in builds]
                trials[seed] = _Trial(experiment, seed, trainees)
                trials[seed].train(bar)
    except KeyboardInterrupt:
        trials = {seed: trial for seed, trial in trials.items() if trial.epoch_of_step}
        if not trials:
            raise
        raise Interrupted(report(list(trials.values())[-1].position(chosen_seeds))) from None
    return report()


def _checked_seeds(seeds: Sequence[int] | None, startup: Program | None) -> Sequence[int | None]:
    if seeds is None:
        return [None]
    if startup is None:
        raise ProgramError(
            "seeds need the startup program, which makes the start values from them",
            hint="Give startup=, or leave seeds out.",
        )
    return _distinct("seeds", seeds, lambda seed: isinstance(seed, Integral) and 0 < seed < 2**31, "integers from 1 on")


def _checked_rates(rates: Sequence[float] | None) -> Sequence[float | None]:
    if rates is None:
        return [None]
    return _distinct("rates", rates, lambda rate: isinstance(rate, Real) and 0 < rate < math.inf, "positive numbers")


def _distinct(what: str, given: Sequence[T], is_right: Callable[[T], bool], kind: str) -> list[T]:
    chosen = list(given) if isinstance(given, Iterable) else []
    if not chosen or not all(map(is_right, chosen)) or len(set(chosen)) < len(chosen):
        raise WrongTypeError(f"{what} must be one or more different {kind}, got {given!r:.80}")
    return chosen


@dataclass(frozen=True)
class _Experiment:
    """Settings that all runs share; `measured` has a variable for each metric."""

    loss: str
    measured: Mapping[str, str]
    feeds: Feeds
    held_out: Feeds | None
    epochs: int
    trials: int
    place: Place


class _Trial:
    """The runs with one seed, trained together."""

    def __init__(self, experiment: _Experiment, seed: int | None, trainees: Sequence[_Trainee]) -> None:
        self._experiment, self._seed, self._trainees = experiment, seed, trainees
        self.epoch_of_step: list[int] = []
        self._epochs_done = 0

    def train(self, bar: ProgressBar) -> None:
        # Each batch goes to all runs before the next one is drawn: a reader that shuffles gives all of them the same.
        rng = np.random.default_rng(self._seed or RANDOM_SEED)
        held_out = self._experiment.held_out
        for epoch in range(1, self._experiment.epochs + 1):
            for feed in programs.each_feed(self._experiment.feeds, f"feeds of epoch {epoch}", rng):
                for trainee in self._trainees:
                    trainee.step(feed)
                self.epoch_of_step.append(epoch)
                bar.advance()
            for feed in programs.each_feed(held_out, f"evaluation after epoch {epoch}") if held_out is not None else ():
                for trainee in self._trainees:
                    trainee.evaluate(feed)
            for trainee in self._trainees:
                trainee.end_epoch()
            self._epochs_done = epoch
            bar.expect(len(self.epoch_of_step) // epoch * self._experiment.epochs * self._experiment.trials)

    def runs(self) -> Iterator[TrainingRun]:
        """The runs, up to the last step that all of them have made: after an interrupt some may be a step ahead."""
        is_complete = self._epochs_done == self._experiment.epochs
        for trainee in self._trainees:
            yield trainee.result(self._seed, np.array(self.epoch_of_step, np.int64), self._epochs_done, is_complete)

    def position(self, seeds: Sequence[int | None]) -> str:
        """Say where the last trial was interrupted."""
        where = f"step {len(self.epoch_of_step)}, in epoch {self.epoch_of_step[-1]} of {self._experiment.epochs}"
        if len(seeds) > 1:
            where += f", with seed {self._seed}, number {list(seeds).index(self._seed) + 1} of {len(seeds)}"
        return f"interrupted after {where}"


# A clone


@dataclass(frozen=True)
class _Built:
    """A clone with backward pass, clip and updates, the startup program of its state, and the pairs to compare."""

    name: str
    strategy: Strategy
    rate: float | None
    program: Program
    test: Program
    state: Program
    raw: ParamsGrads
    clipped: ParamsGrads
    executor: Executor


def _build(
    forward: Program,
    loss: str,
    optimizer: Callable[..., Optimizer],
    place: Place,
    name: str,
    strategy: Strategy,
    rate: float | None,
) -> _Built:
    program = forward.clone()
    with programs.building(program) as state:
        chosen = programs.made_by(optimizer, *([] if rate is None else [rate]))
        loss_var = program.global_block().var(loss)
        raw = chosen.backward(loss_var, state)
        if not raw:
            raise ProgramError(f"{loss} depends on no trainable parameter")
        # The order is that of the optimizer's updates, because sums over several gradients are rounded in order.
        clipped = programs.clip(name, strategy, sorted(raw, key=lambda pair: pair[0].name))
        chosen.apply_optimize(loss_var, state, clipped)
    grads = {param.name: grad for param, grad in clipped}
    clipped = [(param, grads[param.name]) for param, _ in raw]
    return _Built(name, strategy, rate, program, forward.clone(for_test=True), state, raw, clipped, Executor(place))


class _Trainee:
    """A clone that is trained in a separate scope, and the figures recorded so far."""

    def __init__(self, experiment: _Experiment, built: _Built, values: Values, seed: int | None) -> None:
        self._experiment, self._built = experiment, built
        # Under every strategy dropout draws the same masks.
        built.executor._rng = experiment.place.rng(seed or RANDOM_SEED)
        self._scope = programs.scope_with(values, built.state, experiment.place)
        self._recorder = Recorder([param.name for param, _ in built.raw])
        self._losses: list[float] = []
        self._metrics: dict[str, list[float]] = {name: [] for name in experiment.measured}
        self._sums: dict[str, tuple[float, int]] = {}
        """Sums over the batches of this epoch, by metric: values times rows, and rows."""

    def step(self, feed: Feed) -> None:
        """One step of training, recorded."""
        raw, clipped = ([grad.name for _, grad in pairs] for pairs in (self._built.raw, self._built.clipped))
        measured = self._experiment.measured if self._experiment.held_out is None else {}
        loss = self._experiment.loss
        names = [loss, *raw, *clipped, *measured.values()]
        found = programs.fetch(self._built.executor, self._built.program, feed, names, self._scope)
        self._losses.append(_number(found[loss]))
        self._recorder.add(Measured([found[name] for name in raw]), [found[name] for name in clipped])
        self._measure(measured, found, feed)

    def evaluate(self, feed: Feed) -> None:
        """Measure on a batch without training on it."""
        measured = self._experiment.measured
        found = programs.fetch(self._built.executor, self._built.test, feed, measured.values(), self._scope)
        self._measure(measured, found, feed)

    def end_epoch(self) -> None:
        for name, series in self._metrics.items():
            total, rows = self._sums.pop(name, (0.0, 0))
            series.append(total / rows if rows else math.nan)

    def _measure(self, measured: Mapping[str, str], found: Mapping[str, NDArray[Any]], feed: Feed) -> None:
        rows = programs.batch_size(feed)
        weight = 1 if rows < 0 else rows
        for name, variable in measured.items():
            total, rows_before = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + _number(found[variable]) * weight, rows_before + weight

    def result(self, seed: int | None, epoch_of_step: NDArray[np.int64], epochs: int, is_complete: bool) -> TrainingRun:
        built, steps = self._built, len(epoch_of_step)
        holders = {param.name: self._scope.var(param.name) for param, _ in built.raw}
        return TrainingRun(
            name=built.name,
            strategy=built.strategy,
            program=built.program,
            parameters=self._recorder.parameters(steps),
            total=self._recorder.total(steps),
            loss=np.array(self._losses[:steps], np.float64),
            metrics={name: np.array(series[:epochs], np.float64) for name, series in self._metrics.items()},
            values={name: np.array(holder.get_tensor()) for name, holder in holders.items()},
            epoch_of_step=epoch_of_step,
            seed=seed,
            rate=built.rate,
            is_complete=is_complete,
        )


def _number(array: NDArray[Any]) -> float:
    if array.size != 1:
        raise WrongTypeError(f"a metric must have one element, got shape {list(array.shape)}")
    return float(array.reshape(()))
