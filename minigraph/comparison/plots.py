"""Reports as pictures, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from minigraph.comparison.records import ALL_TOGETHER
from minigraph.comparison.report import Report, StrategyResult
from minigraph.comparison.statistics import GradientStatistics, Series
from minigraph.comparison.tables import metric_title
from minigraph.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minigraph.comparison.gradients import GradientReport
    from minigraph.comparison.training import TrainingReport

PLOT_SUFFIXES: Final = (".png", ".svg", ".pdf")
MOST_PARAMETERS: Final = 12
"""So many parameters get a picture of their own: those with the largest gradients."""

MANY_SIZES: Final = 1e3
"""From this ratio of the largest to the smallest number on, an axis shows powers of ten."""


@dataclass(frozen=True)
class Theme:
    """Colours: of text and axes, of lines in the background, and of strategies in turn."""

    ink: str = "#1f2328"
    muted: str = "#9aa0a6"
    faint: str = "#dfe2e6"
    lines: tuple[str, ...] = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")
    """Told apart by colour-blind readers too (Okabe and Ito); from the seventh strategy on lines are dashed."""

    def line(self, index: int) -> dict[str, Any]:
        """How the line of a strategy looks."""
        rounds, color = divmod(index, len(self.lines))
        return {"color": self.lines[color], "linestyle": ("-", "--", ":", "-.")[rounds % 4]}


LIGHT: Final = Theme()


def check_plotting() -> None:
    """Raise `MissingExtraError` if pictures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "a plot needs matplotlib, which is not installed", hint="Install it with: pip install 'minigraph[plot]'"
        ) from None


def write_figure(report: Report[Any], path: Path, suffix: str) -> None:
    """Draw a report's figure to `path`, in the format that the suffix names.

    Raises
    ------
    DataError
        If the suffix is none of `PLOT_SUFFIXES`.
    MissingExtraError
        If matplotlib is not installed.
    """
    if suffix.lower() not in PLOT_SUFFIXES:
        raise DataError(f"the name of a plot must end in {', '.join(PLOT_SUFFIXES)}, got {suffix!r}")
    with themed(LIGHT):
        report.figure().savefig(path, format=suffix[1:].lower(), dpi=120)


# Gradients


def norms_grid(report: GradientReport, theme: Theme = LIGHT) -> Figure:
    """Norms before and after clipping, batch by batch: a row per strategy, a column per parameter and one for all.

    Of more than `MOST_PARAMETERS` parameters those with the largest gradients are drawn.
    """
    columns = [*_largest(report), ALL_TOGETHER]
    rows = max(len(report), 1)
    with _figure(1.9 * len(columns) + 0.6, 1.9 * rows + 0.7, theme) as figure:
        axes = figure.subplots(rows, len(columns), squeeze=False, sharex=True, sharey="col")
        for index, (result, axes_of_row) in enumerate(zip(report.strategies.values(), axes, strict=False)):
            for ax, name in zip(axes_of_row, columns, strict=True):
                _draw_norms(ax, _of(result, name), theme.line(index), theme)
            axes_of_row[0].set_ylabel(result.name, fontweight="bold")
        for axes_of_column, name in zip(axes.T, columns, strict=True):
            axes_of_column[0].set_title(name, fontsize=9)
            axes_of_column[-1].set_xlabel("batch", fontsize=8)
            _scale(axes_of_column[0], len(report.loss), _norms(report.strategies.values(), name))
        _legend(figure, axes[0][0])
    return figure


def norms_panels(report: GradientReport, strategy: str, theme: Theme = LIGHT) -> Figure:
    """The row of `norms_grid` that belongs to one strategy, four panels side by side."""
    result, style = report[strategy], theme.line(list(report).index(strategy))
    names = [*_largest(report), ALL_TOGETHER]
    rows = math.ceil(len(names) / 4)
    with _figure(10.8, 2.1 * rows + 0.4, theme) as figure:
        axes = list(figure.subplots(rows, 4, squeeze=False).flat)
        for ax, name in zip(axes, names, strict=False):
            _draw_norms(ax, _of(result, name), style, theme)
            ax.set_title(name, fontsize=9)
            _scale(ax, len(report.loss), _norms([result], name))
        for ax in axes[len(names) :]:
            ax.remove()
        _legend(figure, axes[0])
    return figure


def _legend(figure: Figure, ax: Any, where: str = "upper") -> None:
    """The legend of `ax` beside the panels, where it hides no line."""
    handles, labels = ax.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc=f"outside {where} center", ncols=min(len(labels), 4), frameon=False)


def _norms(results: Iterable[StrategyResult], column: str) -> list[Series]:
    return [norms for s in (_of(result, column) for result in results) for norms in (s.norm_before, s.norm_after)]


def _of(result: StrategyResult, column: str) -> GradientStatistics:
    return result.total if column == ALL_TOGETHER else result.parameters[column]


def _largest(report: GradientReport) -> list[str]:
    """The parameters to be drawn, in the report's order."""
    results = list(report.strategies.values())
    if not results:
        return []
    sizes = {name: s.summary("norm_before").mean for name, s in results[0].parameters.items()}
    by_size = sorted(sizes, key=lambda name: -math.inf if math.isnan(sizes[name]) else -sizes[name])
    chosen = set(by_size[:MOST_PARAMETERS])
    return [name for name in sizes if name in chosen]


def _draw_norms(ax: Any, statistics: GradientStatistics, style: Mapping[str, Any], theme: Theme) -> None:
    before, after = (_drawable(series) for series in (statistics.norm_before, statistics.norm_after))
    numbers = np.arange(1, len(before) + 1)
    marker = "." if len(before) <= 20 else ""
    # Before is broader, so that it stays visible under an equal after.
    ax.fill_between(numbers, before, after, color=theme.faint, linewidth=0)
    ax.plot(numbers, before, color=theme.muted, linewidth=2.2, marker=marker, markersize=9,
            label="L2 norm before clipping")  # fmt: skip
    ax.plot(numbers, after, **style, linewidth=1.2, marker=marker, markersize=5, label="after clipping")


def strategy_lines(
    report: Report[Any], quantity: str, title: str, raw: str = "", theme: Theme = LIGHT, x: str = "batch"
) -> Figure:
    """One quantity of all gradients together over batches or steps, a line per strategy.

    Parameters
    ----------
    quantity : str
        One of `minigraph.comparison.statistics.QUANTITIES`.
    raw : str
        A quantity of the first strategy that is drawn behind the others, with the label "before clipping".
    """
    with _figure(5.4, 3.1, theme) as figure:
        ax = figure.subplots()
        drawn = {name: getattr(result.total, quantity) for name, result in report.strategies.items()}
        if raw and drawn:
            first = next(iter(report.strategies.values()))
            _line(ax, getattr(first.total, raw), "before clipping", {"color": theme.muted, "linewidth": 3})
        _lines(ax, drawn, theme)
        _finish(ax, title, x, list(drawn.values()))
        _legend(figure, ax, "lower")
    return figure


def loss_lines(report: Report[Any], losses: Mapping[str, Series], x: str, theme: Theme = LIGHT) -> Figure:
    """Loss over batches or steps; a cross marks the step before which a run diverged."""
    with _figure(5.4, 3.1, theme) as figure:
        ax = figure.subplots()
        _draw_losses(ax, losses, x, theme)
        _legend(figure, ax, "lower")
    return figure


def _draw_losses(ax: Any, losses: Mapping[str, Series], x: str, theme: Theme) -> None:
    _lines(ax, losses, theme)
    _finish(ax, "loss of each batch", x, list(losses.values()))
    for index, series in enumerate(losses.values()):
        broken = np.flatnonzero(~np.isfinite(series))
        if len(broken) and broken[0]:
            ax.plot(broken[0], _drawable(series)[broken[0] - 1], "x", color=theme.line(index)["color"], markersize=9)


# Training


def training_overview(report: TrainingReport, theme: Theme = LIGHT) -> Figure:
    """Loss, norm before clipping and factor over steps, and each metric over epochs."""
    panels = 3 + len(report.metrics)
    with _figure(10.8, 3.1 * math.ceil(panels / 2), theme) as figure:
        axes = list(figure.subplots(math.ceil(panels / 2), 2, squeeze=False).flat)
        _draw_losses(axes[0], {name: run.loss for name, run in report.strategies.items()}, "step", theme)
        for ax, name in zip(axes[1:], report.metrics, strict=False):
            _draw_metric(ax, report, name, theme)
        titles = {"norm_before": "norm of all gradients before clipping", "factor": "factor, norm after / norm before"}
        for ax, (quantity, title) in zip(axes[1 + len(report.metrics) :], titles.items(), strict=False):
            drawn = {name: getattr(run.total, quantity) for name, run in report.strategies.items()}
            _lines(ax, drawn, theme)
            _finish(ax, title, "step", list(drawn.values()))
        for ax in axes[panels:]:
            ax.remove()
        _legend(figure, axes[0])
    return figure


def metric_lines(report: TrainingReport, name: str, theme: Theme = LIGHT) -> Figure:
    """One metric over epochs, a line per strategy."""
    with _figure(5.4, 3.1, theme) as figure:
        ax = figure.subplots()
        _draw_metric(ax, report, name, theme)
        _legend(figure, ax, "lower")
    return figure


def _draw_metric(ax: Any, report: TrainingReport, name: str, theme: Theme) -> None:
    drawn = {strategy: run.metrics[name] for strategy, run in report.strategies.items()}
    _lines(ax, drawn, theme)
    _finish(ax, metric_title(report, name), "epoch", list(drawn.values()), from_zero=False)


# Drawing


@contextmanager
def themed(theme: Theme) -> Iterator[None]:
    """Inside, pictures are drawn and saved in the colours of `theme`, and names are never taken for formulas.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    check_plotting()
    import matplotlib

    colors = {"text.color": theme.ink, "axes.labelcolor": theme.ink, "xtick.color": theme.ink,
              "ytick.color": theme.ink, "axes.edgecolor": theme.muted, "grid.color": theme.faint}  # fmt: skip
    sizes = {"axes.titlesize": 10, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
             "legend.fontsize": 8}  # fmt: skip
    spines = {"axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context({**colors, **sizes, **spines, "text.parse_math": False}):
        yield


@contextmanager
def _figure(width: float, height: float, theme: Theme) -> Iterator[Figure]:
    with themed(theme):
        from matplotlib.figure import Figure

        yield Figure(figsize=(width, height), layout="constrained")


def _drawable(series: Series) -> Series:
    """With gaps where the number is not finite."""
    return np.where(np.isfinite(series), series, np.nan)


def _line(ax: Any, series: Series, label: str, style: Mapping[str, Any]) -> None:
    marker = "." if len(series) <= 20 else ""
    ax.plot(np.arange(1, len(series) + 1), _drawable(series), label=label, marker=marker, **style)


def _lines(ax: Any, drawn: Mapping[str, Series], theme: Theme) -> None:
    for index, (name, series) in enumerate(drawn.items()):
        # The space keeps a name that starts with an underscore in the legend.
        _line(ax, series, f" {name}", {"linewidth": 1.5, **theme.line(index)})


def _finish(ax: Any, title: str, x: str, drawn: Sequence[Series], from_zero: bool = True) -> None:
    ax.set_title(title, loc="left")
    ax.set_xlabel(x)
    ax.grid(axis="y", linewidth=0.6)
    ax.set_axisbelow(True)
    _scale(ax, max(map(len, drawn), default=1), drawn, from_zero)


def _scale(ax: Any, count: int, drawn: Sequence[Series], from_zero: bool = True) -> None:
    """Whole numbers along x; along y from zero to a little above the largest, in powers of ten where sizes differ much.

    What has values of all sizes would otherwise be one peak above a line along zero.
    """
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(0.5, count + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    everything = np.concatenate([*drawn, np.zeros(0)])
    finite = everything[np.isfinite(everything)]
    least, largest = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    if 0 < least < largest / MANY_SIZES:
        ax.set_yscale("log")
    elif from_zero and least >= 0:
        ax.set_ylim(0, 1.08 * largest or 1.0)
