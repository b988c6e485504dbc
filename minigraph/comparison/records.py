"""Reports as JSON and as CSV: the numbers that a report holds, and no others."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from minigraph.comparison.clip_text import strategy_text
from minigraph.comparison.findings import conclusion
from minigraph.comparison.results import (
    GradientResults,
    Results,
    StrategyResult,
    TrainingResults,
    TrainingRun,
    operator_count,
)
from minigraph.comparison.statistics import QUANTITIES, Estimate, GradientStatistics
from minigraph.comparison.wording import ALL_TOGETHER
from minigraph.version import __version__

GRADIENT_FORMAT: Final = "minigraph-comparison"
TRAINING_FORMAT: Final = "minigraph-training"
GRADIENT_VERSION: Final = 1
TRAINING_VERSION: Final = 2


# JSON


def gradient_json(report: GradientResults) -> dict[str, Any]:
    """A comparison of gradients as JSON's types; a number that is not finite is None.

    ::

        format          "minigraph-comparison"
        version         1; grows when a key changes its meaning or goes, not when one is added
        minigraph       version of the package
        partial         where the comparison was interrupted; null if it was not
        finding         what the figures show, in a sentence
        settings        the caller's notes, and {batches, place}
        program         {forward_operators, operators (forward and backward), parameters: [{name, shape}]}
        batches         [{size (-1: unknown), loss}]
        clips           [clip], in the order asked for
          clip          the strategy's name
          strategy      as in the text of a program, such as "GradientClipByNorm(clip_norm=2.0)"; "unclipped"
          operators_inserted
          parameters    [{name, shape, mean, min, max, median, batches}], in the order of the program's parameters
          total         {mean, min, max, median, batches}: all gradients as one vector: its norms are global norms
            mean        {norm_before, norm_after, factor, cosine, share_changed, share_clipped}; share_changed is that
                        of elements, share_clipped that of batches
            min, max, median    the same without share_clipped
            batches     {norm_before, norm_after, factor, cosine, share_changed, clipped}, each a list
          ranks         [total of the gradients of each rank alone]; empty for one rank
    """
    found = {
        "format": GRADIENT_FORMAT,
        "version": GRADIENT_VERSION,
        **_head(report, batches=len(report.loss)),
        "batches": [{"size": size, "loss": loss} for size, loss in zip(report.batch_sizes, report.loss, strict=True)],
        "clips": [
            {
                **_strategy_head(report, result),
                **_figures(report, result),
                "ranks": [_statistics(each[result.name], result.unit) for each in report.ranks],
            }
            for result in report.strategies.values()
        ],
    }
    return _in_json(found)


def training_json(report: TrainingResults) -> dict[str, Any]:
    """A comparison of training as JSON's types; a number that is not finite is None.

    ::

        format          "minigraph-training"
        version         2
        minigraph, program, partial, finding    as for a comparison of gradients; operators counts the updates too
        settings        the caller's notes, and {epochs, steps, place}
        epoch_of_step   [epoch], counted from 1, of the first run
        is_held_out     whether metrics were measured on other batches than those of the training
        judged_by       what strategies and rates are judged by: a loss
        seeds, rates    as they were given; [null] where they were not
        clips           [clip], in the order asked for
          clip, strategy, operators_inserted    as for a comparison of gradients
          best_rate     the learning rate that is best for the clip; null if no rates were given
          rates         [{rate, judged, metrics: {name: judged}}]: over the seeds, after the last epoch
            judged      {mean, spread (standard deviation; null with one seed), seeds, diverged}
          runs          [run], by seed and in each of them by rate
            seed, rate  null where none were given
            is_complete false if it was interrupted
            diverged_at the first step, counted from 1, whose loss is not finite; null if there is none
            loss        [number], one per step
            metrics     {name: [number]}, one per epoch
            parameters, total     as for a comparison of gradients, "steps" in place of "batches"
    """
    found = {
        "format": TRAINING_FORMAT,
        "version": TRAINING_VERSION,
        **_head(report, epochs=report.epochs, steps=report.steps),
        "epoch_of_step": report.epoch_of_step,
        "is_held_out": report.is_held_out,
        "judged_by": report.judged_by,
        "seeds": report.seeds,
        "rates": report.rates,
        "clips": [
            {
                **_strategy_head(report, result),
                "best_rate": report.best_rate(name),
                "rates": [_at_rate(report, name, rate) for rate in report.rates],
                "runs": [_run(report, run) for run in report.runs if run.name == name],
            }
            for name, result in report.strategies.items()
        ],
    }
    return _in_json(found)


def _at_rate(report: TrainingResults, name: str, rate: float | None) -> dict[str, Any]:
    metrics = {metric: report.estimate(name, rate, metric) for metric in report.metrics}
    return {"rate": rate, "judged": report.estimate(name, rate), "metrics": metrics}


def _run(report: TrainingResults, run: TrainingRun) -> dict[str, Any]:
    names = ("seed", "rate", "is_complete", "diverged_at", "loss", "metrics")
    return {**{name: getattr(run, name) for name in names}, **_figures(report, run)}


def _head(report: Results[Any], **counts: int) -> dict[str, Any]:
    return {
        "minigraph": __version__,
        "partial": report.partial or None,
        "finding": conclusion(report).finding,
        "settings": {**report.settings, **counts, "place": repr(report.place)},
        "program": {
            "forward_operators": operator_count(report.forward),
            "operators": operator_count(report.unclipped),
            "parameters": [
                {"name": param.name, "shape": param.shape or ()} for param in report.unclipped.all_parameters()
            ],
        },
    }


def _strategy_head(report: Results[Any], result: StrategyResult) -> dict[str, Any]:
    return {
        "clip": result.name,
        "strategy": strategy_text(result.strategy),
        "operators_inserted": report.inserted(result),
    }


def _figures(report: Results[Any], result: StrategyResult) -> dict[str, Any]:
    parameters = [
        {"name": name, "shape": report.shape(name), **_statistics(statistics, result.unit)}
        for name, statistics in result.parameters.items()
    ]
    return {"parameters": parameters, "total": _statistics(result.total, result.unit)}


def _statistics(statistics: GradientStatistics, unit: str) -> dict[str, Any]:
    summaries = {quantity: asdict(statistics.summary(quantity)) for quantity in QUANTITIES}
    found: dict[str, Any] = {
        key: {quantity: summary[key] for quantity, summary in summaries.items()}
        for key in ("mean", "min", "max", "median")
    }
    found["mean"]["share_clipped"] = statistics.share_clipped
    found[unit] = {name: getattr(statistics, name) for name in (*QUANTITIES, "clipped")}
    return found


def _in_json(value: Any) -> Any:
    """`value` in JSON's types."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Estimate):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: _in_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# CSV


def gradient_rows(report: GradientResults) -> Iterator[Sequence[Any]]:
    """A heading, then one row per strategy, parameter (last ``all together``) and batch, counted from 1.

    With several ranks a column says which of them a row is of: ``all``, or the number of one, whose gradients alone are
    clipped all together. The loss is that of all ranks, and is left out in rows of one.
    """
    ranks = ["all", *range(len(report.ranks))] if report.ranks else []
    yield ["strategy", "parameter", *["rank"][: len(ranks)], "batch", "loss", *QUANTITIES, "clipped"]
    for result in report.strategies.values():
        for parameter, statistics in result.statistics.items():
            for batch, (loss, values) in enumerate(zip(report.loss, _rows(statistics), strict=True), start=1):
                yield [result.name, parameter, *ranks[:1], batch, float(loss), *values]
        for rank, alone in enumerate(report.ranks):
            for batch, values in enumerate(_rows(alone[result.name]), start=1):
                yield [result.name, ALL_TOGETHER, rank, batch, "", *values]


def training_rows(report: TrainingResults) -> Iterator[Sequence[Any]]:
    """A heading, then one row per run, parameter (last ``all together``) and step.

    The columns of metrics are filled in the last row of each epoch, those of seed and rate where these were given.
    """
    prefix = "held_out_" if report.is_held_out else "mean_"
    metrics = [prefix + name for name in report.metrics]
    yield ["strategy", "seed", "rate", "parameter", "epoch", "step", "loss", *QUANTITIES, "clipped", *metrics]
    for run in report.runs:
        labels = [run.name, *("" if label is None else label for label in (run.seed, run.rate))]
        epochs = run.epoch_of_step.tolist()
        ends = [
            [float(series[epoch - 1]) if epoch != following and epoch <= len(series) else ""
             for series in run.metrics.values()]
            for epoch, following in zip(epochs, [*epochs[1:], None], strict=True)
        ]  # fmt: skip
        for parameter, statistics in run.statistics.items():
            rows = zip(epochs, run.loss.tolist(), _rows(statistics), ends, strict=True)
            for step, (epoch, loss, values, end) in enumerate(rows, start=1):
                yield [*labels, parameter, epoch, step, loss, *values, *end]


def _rows(statistics: GradientStatistics) -> Iterator[tuple[Any, ...]]:
    series = [getattr(statistics, quantity).tolist() for quantity in QUANTITIES]
    yield from zip(*series, map(int, statistics.clipped), strict=True)


def write_csv(rows: Iterable[Sequence[Any]], partial: str, path: Path) -> None:
    """Write rows as RFC 4180 has them, UTF-8; after an interrupt they have a last column that says so."""
    with path.open("w", encoding="utf-8", newline="") as file:
        if partial:
            rows = ([*row, "partial" if number == 0 else partial] for number, row in enumerate(rows))
        csv.writer(file).writerows(rows)
