"""Reports as pictures, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from minigraph.comparison.panels import BEFORE, Panel, largest, panels
from minigraph.comparison.results import Results, TrainingResults
from minigraph.comparison.statistics import Series, mean_of_finite
from minigraph.comparison.wording import ALL_TOGETHER, shortened
from minigraph.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT_SUFFIXES: Final = (".png", ".svg", ".pdf")

WIDTH: Final = 3.4
HEIGHT: Final = 2.3
"""Inches of a picture: its text of 8 points has 11 pixels on a telephone that is 390 pixels wide."""

MOST_CELLS: Final = 40
"""Maximum number of columns of a heat map; with more steps each column shows the mean of several."""

DASHES: Final = ("-", "--", "-.", ":")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Theme:
    """Colours of text and axes, of gradients that are not clipped, of lines in the background, and of strategies."""

    ink: str = "#1f2328"
    muted: str = "#7d848c"
    faint: str = "#dfe2e6"
    lines: tuple[str, ...] = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")
    """Colours that colour-blind readers tell apart too (Okabe and Ito)."""


LIGHT: Final = Theme()


@dataclass(frozen=True)
class Style:
    """Look of a strategy's line; `color` is an index of `Theme.lines`, None for gradients that are not clipped."""

    color: int | None
    dash: str
    marker: str


def styles(report: Results[Any]) -> dict[str, Style]:
    """One look per strategy, the same in every picture, and in every report with the same names.

    Names in alphabetical order take colours, markers and dashes in turn: no two of the first 168 look alike.
    """
    clips = sorted(name for name, result in report.strategies.items() if result.strategy is not None)
    raw = [name for name, result in report.strategies.items() if result.strategy is None]
    found = {name: Style(None, DASHES[index % len(DASHES)], "") for index, name in enumerate(raw)}
    for index, name in enumerate(clips):
        dash = DASHES[index // len(LIGHT.lines) % len(DASHES)]
        found[name] = Style(index % len(LIGHT.lines), dash, MARKERS[index % len(MARKERS)])
    return {BEFORE: Style(None, "-", ""), **{name: found[name] for name in report.strategies}}


def check_plotting() -> None:
    """Raise `MissingExtraError` if pictures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "a plot needs matplotlib, which is not installed", hint="Install it with: pip install 'minigraph[plot]'"
        ) from None


def write_figure(report: Results[Any], path: Path, suffix: str) -> None:
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
        overview(report).savefig(path, format=suffix[1:].lower(), dpi=120)


# Figures


def overview(report: Results[Any], theme: Theme = LIGHT) -> Figure:
    """All pictures of a report in one, with one legend."""
    everything = [panel for group in panels(report) for panel in group]
    columns = min(4, max(len(everything), 1))
    rows = max(math.ceil(len(everything) / columns), 1)
    looks = styles(report)
    with _figure(WIDTH * columns, (HEIGHT + 0.25) * rows + 0.6, theme) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for ax, panel in zip(axes, everything, strict=False):
            _draw(ax, panel, looks, theme)
            ax.set_title(shortened([panel.title], 44)[0], loc="left")
        for ax in axes[len(everything) :]:
            ax.remove()
        handles = {label.strip(): handle for ax in axes[: len(everything)]
                   for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}  # fmt: skip
        if handles:
            # The space keeps a name that starts with an underscore in the legend.
            labels, columns = [f" {label}" for label in handles], min(len(handles), 4)
            figure.legend(list(handles.values()), labels, loc="outside lower center", ncols=columns, frameon=False)
        if report.partial:
            figure.suptitle(f"Partial: {report.partial}")
    return figure


def draw(panel: Panel, looks: Mapping[str, Style], theme: Theme = LIGHT) -> Figure:
    """One picture, without title and legend."""
    with _figure(WIDTH, HEIGHT, theme) as figure:
        _draw(figure.subplots(), panel, looks, theme)
    return figure


def heat_map(report: TrainingResults, name: str, theme: Theme = LIGHT) -> tuple[Figure, str]:
    """The gradients of each parameter over the steps of a strategy's run, and the name of the quantity drawn.

    The quantity is the factor of a clip, and without a clip the norm.
    """
    run = report[name]
    quantity, what = ("factor", "factor") if run.strategy is not None else ("norm_before", "norm of the gradient")
    columns = [*largest(report), ALL_TOGETHER]
    parts = np.array_split(np.arange(len(run.loss)), min(MOST_CELLS, len(run.loss)))
    series = [getattr(run.statistics[column], quantity) for column in columns]
    cells = np.array([[mean_of_finite(values[part]) for part in parts] for values in series])
    edges = [1, *(int(part[-1]) + 2 for part in parts)]
    with _figure(WIDTH, 0.2 * len(columns) + 1.0, theme) as figure:
        import matplotlib
        from matplotlib.colors import LogNorm, Normalize

        positive = cells[np.isfinite(cells) & (cells > 0)]
        is_log = quantity == "norm_before" and len(positive) > 0 and positive.max() > positive.min()
        scale = LogNorm(positive.min(), positive.max()) if is_log else Normalize(0, max(1.0, *positive, 0))
        ax = figure.subplots()
        colors = matplotlib.colormaps["cividis"].resampled(12)
        mesh = ax.pcolormesh(edges, np.arange(len(columns) + 1), np.ma.masked_invalid(cells), norm=scale, cmap=colors,
                             edgecolors="face", linewidth=0.2)  # fmt: skip
        ax.invert_yaxis()
        ax.set_yticks(np.arange(len(columns)) + 0.5, shortened(columns, 16))
        ax.set_xlabel("step")
        ax.tick_params(left=False)
        bar = figure.colorbar(mesh, ax=ax, location="top", aspect=40, pad=0.02)
        bar.ax.xaxis.set_major_formatter(_plain)
        bar.ax.minorticks_off()
        bar.outline.set_visible(False)
    return figure, what


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
    sizes = {"axes.titlesize": 9, "axes.labelsize": 8, "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 9}
    spines = {"axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context({**colors, **sizes, **spines, "text.parse_math": False}):
        yield


@contextmanager
def _figure(width: float, height: float, theme: Theme) -> Iterator[Figure]:
    with themed(theme):
        from matplotlib.figure import Figure

        yield Figure(figsize=(width, height), layout="constrained")


def _draw(ax: Any, panel: Panel, looks: Mapping[str, Style], theme: Theme) -> None:
    for index, curve in enumerate(panel.curves):
        look = looks[curve.name]
        color = _color(look, theme)
        at = np.arange(1.0, len(curve.values) + 1) if curve.at is None else curve.at
        # Lines that coincide stay visible: each is broader than those drawn over it, with its markers between theirs.
        width = 1.2 + 0.5 * min(len(panel.curves) - 1 - index, 4)
        every = max(len(at) // 5, 1)
        start = index * every // max(len(panel.curves), 1)
        if curve.low is not None and curve.high is not None:
            low, high = map(np.ma.masked_invalid, (curve.low, curve.high))
            ax.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
        # The space keeps a name that starts with an underscore in the legend.
        marker = look.marker or ("." if len(at) == 1 else "")
        values = np.ma.masked_invalid(curve.values)
        ax.plot(at, values, label=f" {curve.name}", color=color, linestyle=look.dash, linewidth=width,
                marker=marker, markersize=4.5, markevery=(start, every))  # fmt: skip
        _mark_divergence(ax, at, curve.values, color)
    ax.set_xlabel(panel.x)
    ax.grid(axis="y", linewidth=0.6)
    ax.set_axisbelow(True)
    _scale(ax, panel)
    low, high = ax.get_ylim()
    for name, threshold in (panel.thresholds or {}).items():
        if low <= threshold <= high:
            ax.axhline(threshold, color=_color(looks[name], theme), linestyle=(0, (1, 2)), linewidth=1)


def _color(look: Style, theme: Theme) -> str:
    return theme.muted if look.color is None else theme.lines[look.color]


def _mark_divergence(ax: Any, at: Series, values: Series, color: str) -> None:
    """A cross at the last finite number before numbers that are not finite."""
    broken = np.flatnonzero(~np.isfinite(values))
    if len(broken) and broken[0]:
        ax.plot(at[broken[0] - 1], values[broken[0] - 1], "x", color=color, markersize=8)


def _scale(ax: Any, panel: Panel) -> None:
    """Set the axes: whole numbers or rates along x; along y powers of ten where sizes differ much, else by kind."""
    from matplotlib.ticker import MaxNLocator

    if panel.x == "learning rate":
        rates = panel.curves[0].at
        assert rates is not None
        ax.set_xscale("log")
        ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
        ax.minorticks_off()
    else:
        count = max((len(curve.values) for curve in panel.curves), default=1)
        ax.set_xlim(0.5, count + 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    everything = panel.finite_values()
    least, most = (float(everything.min()), float(everything.max())) if len(everything) else (0.0, 0.0)
    near = [t for t in (panel.thresholds or {}).values() if most / 3 <= t <= 3 * most]
    if panel.kind == "cosine":
        depth = max(1 - least, 0.01)
        ax.set_ylim(1 - 1.08 * depth, 1 + 0.08 * depth)
    elif panel.is_in_powers:
        positive = everything[everything > 0]
        ax.set_yscale(*(("log",) if least > 0 else ("symlog",)), **({} if least > 0 else {"linthresh": positive.min()}))
        ax.yaxis.set_major_formatter(_plain)
        ax.yaxis.set_minor_formatter(lambda value, _: "")
    elif panel.kind == "size" and least >= 0:
        ax.set_ylim(0, 1.08 * max([most, *near]) or 1.0)


def _plain(value: float, _: Any) -> str:
    return f"{value:g}"
