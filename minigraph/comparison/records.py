"""Reports as JSON and as CSV. Nothing here computes anything that the report does not hold."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minigraph.comparison.clip_text import strategy_text
from minigraph.comparison.report import Report, StrategyResult
from minigraph.comparison.statistics import QUANTITIES, GradientStatistics
from minigraph.ir import Program
from minigraph.version import __version__

if TYPE_CHECKING:
    from minigraph.comparison.gradients import GradientReport
    from minigraph.comparison.training import TrainingReport

GRADIENT_FORMAT: Final = "minigraph-comparison"
TRAINING_FORMAT: Final = "minigraph-training"
JSON_VERSION: Final = 1
ALL_TOGETHER: Final = "all together"
"""Stands in the place of a parameter's name for all gradients as one vector."""


# JSON


def gradient_json(report: GradientReport) -> dict[str, Any]:
    """A comparison of gradients as JSON's types; a number that is not finite is None.

    ::

        format          "minigraph-comparison"
        version         1; grows when a key changes its meaning or goes, not when one is added
        minigraph       version of the package
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
        **_head(report, GRADIENT_FORMAT, {"batches": len(report.loss)}),
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


def training_json(report: TrainingReport) -> dict[str, Any]:
    """A comparison of training as JSON's types; a number that is not finite is None.

    ::

        format          "minigraph-training"
        version, minigraph, program     as for a comparison of gradients; operators counts the updates too
        settings        the caller's notes, and {epochs, steps, place}
        epoch_of_step   [epoch], counted from 1
        is_held_out     whether metrics were measured on other batches than those of the training
        clips           [clip], in the order asked for
          clip, strategy, operators_inserted    as for a comparison of gradients
          diverged_at   the first step, counted from 1, whose loss is not finite; null if there is none
          loss          [number], one per step
          metrics       {name: [number]}, one per epoch
          parameters, total     as for a comparison of gradients, "steps" in place of "batches"
    """
    return {
        **_head(report, TRAINING_FORMAT, {"epochs": report.epochs, "steps": report.steps}),
        "epoch_of_step": report.epoch_of_step.tolist(),
        "is_held_out": report.is_held_out,
        "clips": [
            {
                **_strategy_head(report, run),
                "diverged_at": run.diverged_at,
                "loss": _finite_list(run.loss.tolist()),
                "metrics": {name: _finite_list(series.tolist()) for name, series in run.metrics.items()},
                "parameters": _parameters(report, run, "steps"),
                "total": _statistics(run.total, "steps"),
            }
            for run in report.strategies.values()
        ],
    }


def _head(report: Report[Any], format: str, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "format": format,
        "version": JSON_VERSION,
        "minigraph": __version__,
        "settings": {**report.settings, **counts, "place": repr(report.place)},
        "program": {
            "forward_operators": operator_count(report.forward),
            "operators": operator_count(report.unclipped),
            "parameters": [
                {"name": param.name, "shape": list(param.shape or ())} for param in report.unclipped.all_parameters()
            ],
        },
    }


def operator_count(program: Program) -> int:
    """The operators of all blocks."""
    return sum(len(block.ops) for block in program.blocks)


def _strategy_head(report: Report[Any], result: StrategyResult) -> dict[str, Any]:
    return {
        "clip": result.name,
        "strategy": strategy_text(result.strategy),
        "operators_inserted": operator_count(result.program) - operator_count(report.unclipped),
    }


def _parameters(report: Report[Any], result: StrategyResult, series_key: str = "batches") -> list[dict[str, Any]]:
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


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write strict JSON, UTF-8."""
    path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")


# CSV


def gradient_rows(report: GradientReport) -> Iterator[Sequence[Any]]:
    """A heading, then one row per strategy, parameter (last ``all together``) and batch, counted from 1."""
    yield ["strategy", "parameter", "batch", "loss", *QUANTITIES, "clipped"]
    for result in report.strategies.values():
        for parameter, statistics in [*result.parameters.items(), (ALL_TOGETHER, result.total)]:
            for batch, (loss, values) in enumerate(zip(report.loss, _rows(statistics), strict=True), start=1):
                yield [result.name, parameter, batch, float(loss), *values]


def training_rows(report: TrainingReport) -> Iterator[Sequence[Any]]:
    """A heading, then one row per strategy and step; the statistics are those of all gradients together.

    The columns of metrics are filled in the last row of each epoch.
    """
    metrics = report.metrics
    prefix = "held_out_" if report.is_held_out else "mean_"
    yield ["strategy", "epoch", "step", "loss", *QUANTITIES, "clipped", *(prefix + name for name in metrics)]
    epochs = report.epoch_of_step.tolist()
    for run in report.strategies.values():
        rows = zip(epochs, [*epochs[1:], None], run.loss.tolist(), _rows(run.total), strict=True)
        for step, (epoch, following, loss, values) in enumerate(rows, start=1):
            is_last = following != epoch
            ends = [float(run.metrics[name][epoch - 1]) if is_last else "" for name in metrics]
            yield [run.name, epoch, step, loss, *values, *ends]


def _rows(statistics: GradientStatistics) -> Iterator[tuple[Any, ...]]:
    series = [getattr(statistics, quantity).tolist() for quantity in QUANTITIES]
    yield from zip(*series, map(int, statistics.clipped), strict=True)


def write_csv(rows: Iterable[Sequence[Any]], path: Path) -> None:
    """Write rows as RFC 4180 has them, UTF-8."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
