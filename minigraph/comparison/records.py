"""Reports as JSON and as CSV: the numbers that a report holds, and none beside them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from minigraph.comparison.clip_text import strategy_text
from minigraph.comparison.findings import gradient_finding, training_finding
from minigraph.comparison.results import (
    GradientResults,
    Results,
    StrategyResult,
    TrainingResults,
    TrainingRun,
    operator_count,
)
from minigraph.comparison.statistics import QUANTITIES, Estimate, GradientStatistics
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
    """
    return {
        "format": GRADIENT_FORMAT,
        "version": GRADIENT_VERSION,
        **_head(report, gradient_finding(report), batches=len(report.loss)),
        "batches": [
            {"size": int(size), "loss": _finite(loss)}
            for size, loss in zip(report.batch_sizes, report.loss, strict=True)
        ],
        "clips": [
            {
                **_strategy_head(report, result),
                "parameters": _parameters(report, result),
                "total": _statistics(result.total, "batches"),
            }
            for result in report.strategies.values()
        ],
    }


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
    return {
        "format": TRAINING_FORMAT,
        "version": TRAINING_VERSION,
        **_head(report, training_finding(report), epochs=report.epochs, steps=report.steps),
        "epoch_of_step": report.epoch_of_step.tolist(),
        "is_held_out": report.is_held_out,
        "judged_by": report.judged_by,
        "seeds": report.seeds,
        "rates": report.rates,
        "clips": [
            {
                **_strategy_head(report, result),
                "best_rate": report.best_rate(name),
                "rates": [
                    {
                        "rate": rate,
                        "judged": _estimate(report.estimate(name, rate)),
                        "metrics": {
                            metric: _estimate(report.estimate(name, rate, metric)) for metric in report.metrics
                        },
                    }
                    for rate in report.rates
                ],
                "runs": [_run(report, run) for run in report.runs if run.name == name],
            }
            for name, result in report.strategies.items()
        ],
    }


def _run(report: TrainingResults, run: TrainingRun) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "rate": run.rate,
        "is_complete": run.is_complete,
        "diverged_at": run.diverged_at,
        "loss": _finite_list(run.loss.tolist()),
        "metrics": {name: _finite_list(series.tolist()) for name, series in run.metrics.items()},
        "parameters": _parameters(report, run, "steps"),
        "total": _statistics(run.total, "steps"),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {**asdict(estimate), "mean": _finite(estimate.mean), "spread": _finite(estimate.spread)}


def _head(report: Results[Any], finding: str, **counts: int) -> dict[str, Any]:
    return {
        "minigraph": __version__,
        "partial": report.partial or None,
        "finding": finding,
        "settings": {**report.settings, **counts, "place": repr(report.place)},
        "program": {
            "forward_operators": operator_count(report.forward),
            "operators": operator_count(report.unclipped),
            "parameters": [
                {"name": param.name, "shape": list(param.shape or ())} for param in report.unclipped.all_parameters()
            ],
        },
    }


def _strategy_head(report: Results[Any], result: StrategyResult) -> dict[str, Any]:
    return {
        "clip": result.name,
        "strategy": strategy_text(result.strategy),
        "operators_inserted": report.inserted(result),
    }


def _parameters(report: Results[Any], result: StrategyResult, series_key: str = "batches") -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": list(report.shape(name)), **_statistics(statistics, series_key)}
        for name, statistics in result.parameters.items()
    ]


def _statistics(statistics: GradientStatistics, series_key: str) -> dict[str, Any]:
    summaries = {quantity: asdict(statistics.summary(quantity)) for quantity in QUANTITIES}
    found: dict[str, Any] = {
        key: {quantity: _finite(summary[key]) for quantity, summary in summaries.items()}
        for key in ("mean", "min", "max", "median")
    }
    found["mean"]["share_clipped"] = _finite(statistics.share_clipped)
    found[series_key] = {quantity: _finite_list(getattr(statistics, quantity).tolist()) for quantity in QUANTITIES}
    found[series_key]["clipped"] = statistics.clipped.tolist()
    return found


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _finite_list(numbers: Iterable[float]) -> list[float | None]:
    return [_finite(number) for number in numbers]


# CSV


def gradient_rows(report: GradientResults) -> Iterator[Sequence[Any]]:
    """A heading, then one row per strategy, parameter (last ``all together``) and batch, counted from 1."""
    yield ["strategy", "parameter", "batch", "loss", *QUANTITIES, "clipped"]
    for result in report.strategies.values():
        for parameter, statistics in result.statistics.items():
            for batch, (loss, values) in enumerate(zip(report.loss, _rows(statistics), strict=True), start=1):
                yield [result.name, parameter, batch, float(loss), *values]


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
