"""Reports with given numbers, without a run."""

from dataclasses import replace

import numpy as np

import minigraph as fluid
from minigraph.comparison import GradientReport, GradientStatistics, StrategyResult, TrainingReport, TrainingRun


def _program(parameters):
    program = fluid.Program()
    for name in parameters:
        program.global_block().create_parameter(name=name, shape=[784, 128], dtype="float32")
    return program


def _strategy(name):
    return None if name in ("unclipped", "raw") else fluid.clip.GradientClipByNorm(1.0)


def _statistics(numbers):
    """From numbers of the shape [4, batches]."""
    before, after, cosine, changed = (np.array(row, np.float64) for row in numbers)
    return GradientStatistics(before, after, cosine / np.max(cosine), changed / np.max(changed))


def gradient_report(names, parameters, numbers):
    """`numbers` has the shape [strategies, 4, batches]; all parameters of a strategy have the same statistics."""
    program = _program(parameters)
    found = {name: _statistics(given) for name, given in zip(names, numbers, strict=True)}
    strategies = {
        name: StrategyResult(name, _strategy(name), program, dict.fromkeys(parameters, statistics), statistics)
        for name, statistics in found.items()
    }
    count = numbers.shape[-1]
    return GradientReport(
        forward=program, unclipped=program, strategies=strategies, place=fluid.CPUPlace(), program=program,
        loss=np.linspace(3, 2, count), batch_sizes=np.full(count, 8), is_moving=False,
    )  # fmt: skip


def training_report(losses, seeds=(None,), parameters=("w",), partial="", complete=True):
    """From the held-out losses by strategy and rate, each of the shape [seeds, epochs]; an epoch has two steps."""
    program, runs = _program(parameters), []
    for index, seed in enumerate(seeds):
        for (name, rate), given in losses.items():
            held_out = np.array(given, np.float64)[index]
            steps = 2 * len(held_out)
            statistics = _statistics(np.linspace(1, 4, 4 * steps).reshape(4, steps))
            runs.append(TrainingRun(
                name, _strategy(name), program, {p: statistics for p in parameters}, statistics,
                loss=np.repeat(held_out, 2) + index, metrics={"loss": held_out}, values={}, seed=seed, rate=rate,
                epoch_of_step=np.repeat(np.arange(1, len(held_out) + 1), 2), is_complete=complete,
            ))  # fmt: skip
    every_run = TrainingReport(
        forward=program, unclipped=program, strategies={}, place=fluid.CPUPlace(), partial=partial, runs=tuple(runs),
        epoch_of_step=runs[0].epoch_of_step, is_held_out=True,
    )  # fmt: skip
    return replace(every_run, strategies={name: every_run.at_best(name)[0] for name, _ in losses})
