"""Compare clipping strategies on the gradients of one program, batch by batch.

One program computes the backward pass once and every strategy's clipped gradients from it. All strategies get the same
raw gradients, bit for bit, whatever random numbers the program draws, and a batch costs one backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.autodiff.backward import ParamsGrads
from minigraph.comparison import programs
from minigraph.comparison.programs import Feed, Feeds, Strategy
from minigraph.comparison.progress import ProgressBar
from minigraph.comparison.report import GradientReport, Interrupted
from minigraph.comparison.results import StrategyResult
from minigraph.comparison.statistics import Measured, Recorder
from minigraph.executor import Executor
from minigraph.ir import Parameter, Program, Variable
from minigraph.optimizer import Optimizer
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope
from minigraph.support.public import public


@public
def compare_gradients(
    program: Program,
    loss: Variable | str,
    clips: Mapping[str, Strategy],
    feeds: Feeds,
    *,
    startup: Program | None = None,
    scope: Scope | None = None,
    parameters: Sequence[Parameter | str] | None = None,
    optimizer: Callable[[], Optimizer] | None = None,
    place: Place | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    ranks: int = 1,
) -> GradientReport:
    """Compare clipping strategies on the gradients of `loss`, batch by batch.

    A clone of `program` gets one backward pass and after it the operators of every strategy. The program, the scope
    and the default programs stay as they are.

    Parameters
    ----------
    program : Program
        Backward pass and updates that it has already are left out of the clone, and so are clips noted on parameters.
    loss : Variable or str, float[1]
        What to differentiate.
    clips : dict of str to GradientClipBase
        Strategies by name. None leaves the gradients as they are. Any function from (parameter, gradient) pairs to such
        pairs is a strategy. Its state is initialised once and lasts as long as the comparison.
    feeds : iterable of dict, or callable that returns one
        What to run on: variable name to array.
    startup : Program, optional
        Run once for the parameters' values.
    scope : Scope, optional
        Where the values are, in place of `startup`. Default: the global scope. They are copied.
    parameters : sequence of Parameter or str, optional
        Whose gradients to compare. Default: all trainable parameters.
    optimizer : callable, optional
        Returns a new optimizer, which moves the parameters along the unclipped gradients after each batch, such as
        ``lambda: SGDOptimizer(0.1)``. Default: they stay.
    place : Place, optional
        Default: `CPUPlace`.
    settings : dict, optional
        Notes on the experiment that the report shows.
    progress : bool, optional
        Whether to show a progress bar on standard error. Default: when the run takes long, on a terminal.
    ranks : int
        Number of ranks among which each batch is divided. With several, the report also shows what every strategy does
        to the gradients of each rank alone, as if ranks clipped before their gradients are summed.

    Returns
    -------
    GradientReport

    Raises
    ------
    WrongTypeError
        If `clips` does not map names to strategies, or an argument has the wrong type.
    NotFoundError
        If the program has no such loss.
    ProgramError
        If a parameter has no value, or the loss depends on none.
    DataError
        If there is no batch, or ranks cannot share one evenly.
    Interrupted
        After Ctrl-C: a `KeyboardInterrupt` whose ``report`` holds the batches so far.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
    ...     x = fluid.data("x", [None, 2])
    ...     loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False))
    >>> batch = {"x": np.array([[3, 4]], "float32")}  # which is the gradient, too
    >>> clips = {"norm 1": fluid.clip.GradientClipByNorm(1.0), "raw": None}
    >>> report = compare_gradients(main, loss, clips, [batch], startup=startup)
    >>> total = report["norm 1"].total
    >>> total.norm_before.round(6), total.norm_after.round(6), total.factor.round(6), total.share_clipped
    (array([5.]), array([1.]), array([0.2]), 1.0)
    >>> report["raw"].total.share_clipped
    0.0
    """
    clips = programs.check_clips(clips)
    loss_name = programs.name_in(program, loss, "loss")
    wanted = None if parameters is None else [programs.name_in(program, param, "parameters") for param in parameters]
    forward = programs.forward_clone(program)
    values, place = programs.start_values(forward, startup, scope, place)
    together = _build(forward, loss_name, wanted, clips, optimizer)
    run = _Run(together, place, programs.scope_with(values, together.state, place), loss_name)
    still = _build(forward, loss_name, wanted, clips)
    alone_on_ranks = [
        _Run(still, place, programs.scope_with(values, still.state, place), loss_name)
        for _ in range(ranks if programs.check_ranks(ranks) > 1 else 0)
    ]
    alone = {name: _build(forward, loss_name, wanted, {name: clips[name]}).program for name in clips}
    unclipped = _build(forward, loss_name, wanted, {}).program

    def report(partial: str = "") -> GradientReport:
        count = run.count
        return GradientReport(
            forward=forward,
            unclipped=unclipped,
            strategies={
                name: StrategyResult(name, clips[name], alone[name], recorder.parameters(count), recorder.total(count))
                for name, recorder in run.recorders.items()
            },
            place=place,
            settings=dict(settings or {}),
            partial=partial,
            program=together.program,
            loss=np.array(run.losses[:count], np.float64),
            batch_sizes=np.array(run.batch_sizes[:count], np.int64),
            is_moving=optimizer is not None,
            ranks=tuple(
                {name: recorder.total(count) for name, recorder in each.recorders.items()} for each in alone_on_ranks
            ),
        )

    try:
        with ProgressBar(programs.feed_count(feeds), progress) as bar:
            for feed in programs.each_feed(feeds, "feeds"):
                parts = programs.divided(feed, ranks) if alone_on_ranks else []
                for part, each in zip(parts, alone_on_ranks, strict=True):
                    if optimizer is not None:
                        each.follow(run, values)
                    each.add(part)
                run.add(feed)
                bar.advance()
    except KeyboardInterrupt:
        if not run.count:
            raise
        raise Interrupted(report(f"interrupted after batch {run.count}")) from None
    return report()


@dataclass(frozen=True)
class _Built:
    """A program with its backward pass and strategies, the startup program of its state, and the pairs to compare."""

    program: Program
    state: Program
    raw: ParamsGrads
    clipped: dict[str, ParamsGrads]


def _build(
    forward: Program,
    loss: str,
    parameters: Sequence[str] | None,
    clips: Mapping[str, Strategy],
    optimizer: Callable[[], Optimizer] | None = None,
) -> _Built:
    program = forward.clone()
    with programs.building(program) as state:
        raw = programs.differentiate(program, loss, parameters)
        block = program.global_block()
        count = len(block.ops)
        if optimizer is not None:
            programs.made_by(optimizer).apply_gradients(raw)
        # The updates run after the strategies, so that all strategies see the same parameters. They are appended
        # first, because a strategy may ask for the updates appended after it to be skipped.
        with block.inserting_before(block.ops[count] if len(block.ops) > count else None):
            clipped = {name: programs.clip(name, strategy, raw) for name, strategy in clips.items()}
    return _Built(program, state, raw, clipped)


class _Run:
    """The program as it runs, and the figures recorded so far."""

    def __init__(self, built: _Built, place: Place, scope: Scope, loss: str) -> None:
        self._program, self._scope = built.program, scope
        self._executor = Executor(place)
        self._raw = [grad.name for _, grad in built.raw]
        self._clipped = {name: [grad.name for _, grad in pairs] for name, pairs in built.clipped.items()}
        self._loss = loss
        names = [param.name for param, _ in built.raw]
        self.recorders = {name: Recorder(names) for name in built.clipped}
        self.losses: list[float] = []
        self.batch_sizes: list[int] = []
        self.count = 0
        """Number of batches recorded completely."""

    def follow(self, other: _Run, names: Iterable[str]) -> None:
        """Take the parameters of another run."""
        for name in names:
            holder = other._scope.find_var(name)
            assert holder is not None
            self._scope.var(name).get_tensor().set(np.array(holder.get_tensor()), self._executor.place)

    def add(self, feed: Feed) -> None:
        """Compare the gradients on one batch."""
        # A gradient that a strategy leaves alone is the raw one, and fetched once.
        names = [self._loss, *self._raw, *(name for group in self._clipped.values() for name in group)]
        found = programs.fetch(self._executor, self._program, feed, names, self._scope)
        before = Measured([found[name] for name in self._raw])
        for name, group in self._clipped.items():
            self.recorders[name].add(before, [found[grad] for grad in group])
        self.losses.append(float(found[self._loss].reshape(())))
        self.batch_sizes.append(programs.batch_size(feed))
        self.count += 1
