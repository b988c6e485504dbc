"""Reports as tables for a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from minigraph.comparison.clip_text import strategy_text
from minigraph.comparison.records import ALL_TOGETHER, operator_count
from minigraph.comparison.report import Report, StrategyResult
from minigraph.comparison.statistics import GradientStatistics
from minigraph.ir import Parameter, Program, Role
from minigraph.text import diff
from minigraph.types import product

if TYPE_CHECKING:
    from minigraph.comparison.gradients import GradientReport
    from minigraph.comparison.training import TrainingReport, TrainingRun

NUMBERS: Final = (
    "norm before\nclipping", "norm after\nclipping", "factor", "cosine", "batches\nclipped", "elements\nchanged",
)  # fmt: skip
"""Headings of the columns with numbers; `number_cells` fills them."""

MEANINGS: Final = {
    "norms": "L2, in float64, of the gradients that one program computes with and without clipping",
    "factor": "norm after / norm before",
    "cosine": "of the angle between the gradients before and after",
}


# Gradients


def gradient_tables(report: GradientReport, show_diff: bool) -> Iterator[RenderableType]:
    """What was compared, and for each strategy the operators it inserts and what they did."""
    yield _grid(gradient_facts(report), gradient_warning(report))
    for result in report.strategies.values():
        yield ""
        yield _strategy_heading(report, result)
        if show_diff and result.strategy is not None:
            yield _InsertedOperators(report.unclipped, result.program)
            yield ""
        yield _statistics_table(report, result)


def gradient_facts(report: GradientReport) -> dict[str, str]:
    """What was compared, by heading."""
    batches = counted(len(report.loss), "batch", "batches")
    return {
        **_program_facts(report, "with the backward pass"),
        **_noted(report.settings),
        "batches": f"{batches}{_rows(report)}",
        "place": repr(report.place),
        "loss": f"{number(report.loss[0])} in the first batch, {number(report.loss[-1])} in the last",
        **MEANINGS,
        "numbers": f"means over {batches}",
    }


def gradient_warning(report: GradientReport) -> str:
    """Which raw gradients are the first with NaN or infinity; empty if there are none."""
    for result in list(report.strategies.values())[:1]:  # before clipping all have the same
        for index in range(len(report.loss)):
            names = [name for name, s in result.parameters.items() if not math.isfinite(s.norm_before[index])]
            if names:
                return f"NaN or infinity from batch {index + 1} on, in the gradients of {', '.join(names)}"
    return ""


def _rows(report: GradientReport) -> str:
    sizes = report.batch_sizes
    if (sizes < 0).any():
        return ""
    same = f" of {sizes[0]} rows" if (sizes == sizes[0]).all() else ""
    return same or f" of up to {max(sizes)} rows, {int(sizes.sum()):,} in all"


def _statistics_table(report: Report[Any], result: StrategyResult) -> Table:
    table = _table("parameter", "shape", right=NUMBERS)
    for name, statistics in result.parameters.items():
        style = "" if statistics.share_clipped else "dim"
        table.add_row(Text(name), Text(str(list(report.shape(name)))), *number_cells(statistics), style=style)
    table.add_section()
    table.add_row(ALL_TOGETHER, "", *number_cells(result.total), style="bold")
    return table


def number_cells(statistics: GradientStatistics) -> tuple[str, ...]:
    """The means as they stand under `NUMBERS`."""
    means = {name: statistics.summary(name).mean for name in ("norm_before", "norm_after", "factor", "cosine")}
    return (
        f"{means['norm_before']:#.4g}",
        f"{means['norm_after']:#.4g}",
        f"{means['factor']:.4f}",
        f"{means['cosine']:.4f}",
        f"{statistics.share_clipped:.0%}",
        share(statistics.summary("share_changed").mean),
    )


# Training


def training_tables(report: TrainingReport, show_diff: bool) -> Iterator[RenderableType]:
    """What was compared, one line per strategy, and each metric by epoch."""
    yield _grid(training_facts(report), training_warning(report))
    yield ""
    headings, rows = training_summary(report)
    table = _table("strategy", right=headings[1:])
    for row in rows:
        table.add_row(*map(Text, row))
    yield table
    for name in report.metrics:
        yield ""
        yield _metric_table(report, name)
    for run in report.strategies.values() if show_diff else ():
        if run.strategy is not None:
            yield ""
            yield _strategy_heading(report, run)
            yield _InsertedOperators(report.unclipped, run.program)


def training_facts(report: TrainingReport) -> dict[str, str]:
    """What was compared, by heading."""
    where = "held-out batches" if report.is_held_out else "the epoch's own batches, each before its step"
    return {
        **_program_facts(report, "with backward pass and updates"),
        **_noted(report.settings),
        "training": f"{counted(report.epochs, 'epoch')}, {counted(report.steps, 'step')}, the same for every strategy",
        "place": repr(report.place),
        **({"metrics": f"means over {where}; in the first table after the last epoch"} if report.metrics else {}),
        "norms": "L2, in float64, of all gradients as one vector; means over steps",
        "factor": MEANINGS["factor"],
    }


def training_warning(report: TrainingReport) -> str:
    """Which runs diverged, and where; empty if none did."""
    broken = [f"{run.name} at step {run.diverged_at}" for run in report.strategies.values() if run.diverged_at]
    return f"the loss is no longer finite: {', '.join(broken)}" if broken else ""


def training_summary(report: TrainingReport) -> tuple[list[str], list[list[str]]]:
    """Headings and one row per strategy."""
    runs = list(report.strategies.values())
    has_diverged = any(run.diverged_at for run in runs)
    measured = [metric_title(report, name).replace(" ", "\n", 1) for name in report.metrics]
    headings = ["strategy", "first\nloss", "last\nloss", *measured, "norm\nbefore", "norm\nafter", "factor",
                "steps\nclipped", *(["diverged\nat step"] if has_diverged else [])]  # fmt: skip
    return headings, [_training_row(run)[: len(headings)] for run in runs]


def _training_row(run: TrainingRun) -> list[str]:
    """One cell per heading; the last one stands only where a run diverged."""
    total = run.total
    return [
        run.name,
        number(run.loss[0]),
        number(run.loss[-1]),
        *[number(series[-1]) for series in run.metrics.values()],
        *[f"{total.summary(name).mean:#.4g}" for name in ("norm_before", "norm_after")],
        f"{total.summary('factor').mean:.4f}",
        f"{total.share_clipped:.0%}",
        str(run.diverged_at or ""),
    ]


def metric_title(report: TrainingReport, name: str) -> str:
    """The name of a metric that says on what it was measured."""
    return f"held-out {name}" if report.is_held_out else f"mean {name}"


def _metric_table(report: TrainingReport, name: str) -> Table:
    shown = spread(report.epochs, 10)
    table = _table(f"{metric_title(report, name)} after epoch", right=[str(epoch + 1) for epoch in shown])
    for run in report.strategies.values():
        table.add_row(Text(run.name), *[number(run.metrics[name][epoch]) for epoch in shown])
    return table


def spread(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers from 0 to ``count - 1``, evenly spread, the first and the last among them.

    Examples
    --------
    >>> spread(3, 10), spread(101, 6)
    ([0, 1, 2], [0, 20, 40, 60, 80, 100])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


# Both


def _program_facts(report: Report[Any], with_what: str) -> dict[str, str]:
    params = report.unclipped.all_parameters()
    values = sum(product(param.shape or ()) for param in params)
    forward, whole = operator_count(report.forward), operator_count(report.unclipped)
    return {
        "program": f"{counted(forward, 'operator')}, {whole} {with_what}",
        "parameters": f"{len(params)}, {values:,} values",
    }


def _noted(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name.replace("_", " "): str(value) for name, value in settings.items() if value is not None}


def counted(count: int, one: str, many: str | None = None) -> str:
    """Such as ``1 batch`` or ``2 batches``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def number(value: float) -> str:
    """With four places behind the point, or four digits where the number is large or small."""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.4g}"


def share(value: float) -> str:
    """A share in percent, which is 0% and 100% only where that is exact."""
    if 0 < value < 0.001:
        return "<0.1%"
    if 0.999 < value < 1:
        return ">99.9%"
    return f"{value:.1%}".replace(".0%", "%")


def _grid(facts: Mapping[str, str], warning: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(name, "bold"), Text(value))
    if warning:
        grid.add_row(Text("warning", "bold red"), Text(warning, "red"))
    return grid


def _table(*left: str, right: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in left:
        table.add_column(Text(heading), no_wrap=True)
    for heading in right:
        table.add_column(Text(heading, justify="right"), justify="right", no_wrap=True)
    return table


def _strategy_heading(report: Report[Any], result: StrategyResult) -> Text:
    inserted = operator_count(result.program) - operator_count(report.unclipped)
    law = f"{strategy_text(result.strategy)} inserts {counted(inserted, 'operator')}"
    return Text.assemble((result.name, "bold cyan"), "  ", "unclipped" if result.strategy is None else law)


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
