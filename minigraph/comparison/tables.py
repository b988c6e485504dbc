"""Reports as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from minigraph.comparison.clip_text import strategy_text
from minigraph.comparison.findings import conclusion
from minigraph.comparison.layout import Facts, NumberTable, Paragraph, Row
from minigraph.comparison.results import GradientResults, Results, StrategyResult, TrainingResults, operator_count
from minigraph.comparison.wording import ALL_TOGETHER, NUMBERS, counted, estimate_text, number, number_cells
from minigraph.ir import Parameter, Program, Role
from minigraph.ir.text.diff import diff
from minigraph.types import product

MEANINGS: Final = {
    "norms": "L2, in float64, of the gradients before and after clipping",
    "factor": "norm after / norm before",
    "cosine": "of the angle between the gradients before and after",
    "elements changed": "share of elements with another value after clipping; a factor changes all but zeros",
}


# Gradients


def gradient_tables(report: GradientResults, show_diff: bool) -> Iterator[RenderableType]:
    """Settings, for each strategy its operators and their effect, and all strategies together."""
    yield Facts(gradient_facts(report))
    for result in report.strategies.values():
        yield ""
        yield _strategy_heading(report, result)
        if show_diff and result.strategy is not None:
            yield _InsertedOperators(report.unclipped, result.program)
            yield ""
        yield _statistics_table(report, result)
    if len(report) > 1:
        yield ""
        rows = [Row(result.name, number_cells(result.total)) for result in report.strategies.values()]
        yield NumberTable(ALL_TOGETHER, NUMBERS, rows)
    for name in report.strategies if report.ranks else ():
        yield ""
        rows = [Row(each, number_cells(statistics)) for each, statistics in report.over_ranks(name).items()]
        yield NumberTable(f"{name}, over ranks", NUMBERS, rows)
    yield from _conclusion(report)


def gradient_facts(report: GradientResults) -> dict[str, str]:
    """Facts about the experiment, by heading."""
    batches = counted(len(report.loss), "batch", "batches")
    return {
        **_program_facts(report, "with the backward pass"),
        **_noted(report.settings),
        "batches": f"{batches}{_rows(report)}",
        "place": repr(report.place),
        "loss": _loss(report),
        **MEANINGS,
        "numbers": f"means over {batches}",
    }


def _loss(report: GradientResults) -> str:
    if report.is_moving:
        return f"{number(report.loss[0])} in the first batch, {number(report.loss[-1])} in the last"
    low, high = (number(float(end)) for end in (np.min(report.loss), np.max(report.loss)))
    return f"{low} to {high}; parameters do not move: differences between batches are those of the data"


def _rows(report: GradientResults) -> str:
    sizes = report.batch_sizes
    if (sizes < 0).any():
        return ""
    same = f" of {sizes[0]} rows" if (sizes == sizes[0]).all() else ""
    return same or f" of up to {max(sizes)} rows, {int(sizes.sum()):,} in all"


def _statistics_table(report: Results[Any], result: StrategyResult) -> NumberTable:
    rows = [
        Row(name, number_cells(statistics), str(list(report.shape(name))), "" if statistics.share_clipped else "dim")
        for name, statistics in result.parameters.items()
    ]
    rows.append(Row(ALL_TOGETHER, number_cells(result.total), style="bold", begins_section=True))
    return NumberTable("parameter", NUMBERS, rows)


# Training


def training_tables(report: TrainingResults, show_diff: bool) -> Iterator[RenderableType]:
    """Settings, one line per strategy at its best rate, metrics by rate and by epoch."""
    yield Facts(training_facts(report))
    if not report.strategies:
        return
    yield ""
    yield _table(*training_summary(report))
    for title, headings, rows in (*rate_tables(report), *epoch_tables(report)):
        yield ""
        yield _table([title, *headings], rows, may_skip=headings[0].isdigit())
    for run in report.strategies.values() if show_diff else ():
        if run.strategy is not None:
            yield ""
            yield _strategy_heading(report, run)
            yield _InsertedOperators(report.unclipped, run.program)
    yield from _conclusion(report)


def training_facts(report: TrainingResults) -> dict[str, str]:
    """Facts about the experiment, by heading."""
    where = "held-out batches" if report.is_held_out else "the epoch's own batches, each before its step"
    length = f"{counted(report.epochs, 'epoch')}, {counted(report.steps, 'step')}"
    return {
        **_program_facts(report, "with backward pass and updates"),
        **_noted(report.settings),
        "training": f"{counted(len(report.runs), 'run')} of {length}; the same batches for every strategy and rate",
        **_trial_facts(report),
        "place": repr(report.place),
        **({"metrics": f"means over {where}"} if report.metrics else {}),
        "norms": "L2, in float64, of all gradients as one vector; means over steps",
        "factor": MEANINGS["factor"],
    }


def _trial_facts(report: TrainingResults) -> dict[str, str]:
    facts = {}
    if report.rates != (None,):
        facts["learning rates"] = ", ".join(f"{rate:g}" for rate in report.rates)
    if report.seeds != (None,):
        facts["seeds"] = ", ".join(map(str, report.seeds))
    if len(report.seeds) > 1:
        facts["spread"] = "in brackets: the standard deviation over the seeds"
    if len(report.rates) > 1:
        facts["best rate"] = f"that with the lowest {report.judged_by}, marked *; all other tables are at this rate"
    return facts


def training_summary(report: TrainingResults) -> tuple[list[str], list[list[str]]]:
    """Headings and one row per strategy at its best rate; means over the seeds."""
    is_single = _is_single(report)
    has_diverged = any(run.diverged_at for name in report for run in report.at_best(name))
    measured = [report.metric_title(name).replace(" ", "\n", 1) for name in report.metrics] if is_single else []
    headings = [
        "strategy", *(["best\nrate"] if len(report.rates) > 1 else []), "first\nloss", "last\nloss", *measured,
        "norm\nbefore", "norm\nafter", "factor", "steps\nclipped", *(["diverged\nat step"] if has_diverged else []),
    ]  # fmt: skip
    rows = []
    for name in report:
        runs, rate = report.at_best(name), report.best_rate(name)
        rows.append([
            name,
            *([f"{rate:g}"] if len(report.rates) > 1 else []),
            *(number(_mean(run.loss[end] for run in runs)) for end in (0, -1)),
            *(estimate_text(report.estimate(name, rate, metric)) for metric in report.metrics if is_single),
            *(f"{_mean(run.total.summary(q).mean for run in runs):#.4g}" for q in ("norm_before", "norm_after")),
            f"{_mean(run.total.summary('factor').mean for run in runs):.4f}",
            f"{_mean(run.total.share_clipped for run in runs):.0%}",
            *([", ".join(str(run.diverged_at) for run in runs if run.diverged_at) or "-"] if has_diverged else []),
        ])  # fmt: skip
    return headings, rows


def _is_single(report: TrainingResults) -> bool:
    return len(report.rates) == len(report.seeds) == 1


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([*values]))


NamedTable = tuple[str, list[str], list[list[str]]]
"""Title, headings of the numbers, and rows that begin with a name."""


def rate_tables(report: TrainingResults) -> Iterator[NamedTable]:
    """Judged measure and each metric, at each rate: mean and spread over the seeds."""
    if _is_single(report):
        return
    chosen: list[str | None] = [*report.metrics] if report.is_held_out else [None, *report.metrics]
    headings = [f"rate {rate:g}" if rate is not None else "all seeds" for rate in report.rates]
    for metric in chosen:
        rows = []
        for name in report:
            texts = [estimate_text(report.estimate(name, rate, metric)) for rate in report.rates]
            marks = ["* " if rate == report.best_rate(name) else "" for rate in report.rates]
            if len(report.rates) == 1:
                marks = [""]
            rows.append([name, *(mark + text for text, mark in zip(texts, marks, strict=True))])
        yield report.judged_by if metric is None else report.metric_title(metric), headings, rows


def epoch_tables(report: TrainingResults) -> Iterator[NamedTable]:
    """Each metric after each epoch, at each strategy's best rate; means over the seeds."""
    for metric in report.metrics:
        series = {name: np.mean([run.metrics[metric] for run in report.at_best(name)], axis=0) for name in report}
        count = min(map(len, series.values()))
        if count:
            rows = [[name, *map(number, values[:count])] for name, values in series.items()]
            yield f"{report.metric_title(metric)} after epoch", [str(epoch + 1) for epoch in range(count)], rows


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], may_skip: bool = False) -> NumberTable:
    return NumberTable(headings[0], headings[1:], [Row(name, cells) for name, *cells in rows], may_skip)


# Both


def _conclusion(report: Results[Any]) -> Iterator[RenderableType]:
    finding, remarks, warnings = conclusion(report)
    yield ""
    yield Paragraph(Text(finding, "bold"))
    for remark in remarks:
        yield Facts({"note": remark})
    for warning in warnings:
        yield Facts({"warning": warning}, style="red")


def _program_facts(report: Results[Any], with_what: str) -> dict[str, str]:
    params = report.unclipped.all_parameters()
    values = sum(product(param.shape or ()) for param in params)
    forward, whole = operator_count(report.forward), operator_count(report.unclipped)
    return {
        "program": f"{counted(forward, 'operator')}, {whole} {with_what}",
        "parameters": f"{len(params)}, {values:,} values",
    }


def _noted(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name.replace("_", " "): str(value) for name, value in settings.items() if value is not None}


def _strategy_heading(report: Results[Any], result: StrategyResult) -> Paragraph:
    law = f"{strategy_text(result.strategy)} inserts {counted(report.inserted(result), 'operator')}"
    return Paragraph(Text.assemble((result.name, "bold cyan"), "  ", "unclipped" if result.strategy is None else law))


class _InsertedOperators:
    """The lines of a diff that came and went, folded to the width of the console."""

    def __init__(self, before: Program, after: Program) -> None:
        self._lines = [line for line in diff(_plain(before), _plain(after), context=0).split("\n") if line[:1] in "+-"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        styles = {"+": "green", "-": "red"}
        for line in filter(None, self._lines):
            yield Text(_folded(line, options.max_width), styles[line[0]])


def _plain(program: Program) -> Program:
    """A copy without the marks that say what an operator is for: they make lines long and compute nothing."""
    copied = program.clone()
    for block in copied.blocks:
        for op in block.ops:
            op.role, op.role_vars, op.namescope = Role.FORWARD, (), "/"
        for var in block.vars.values():
            if isinstance(var, Parameter):
                var.gradient_clip = None
    return copied


def _folded(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
