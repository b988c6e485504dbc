"""Reports as one HTML page that needs no other file, no network and no script.

A page begins with the finding, then shows pictures and numbers, and ends with how they were made. Pictures are inline
SVG in the colours of the page, so that they follow the reader's choice of dark or light. All text of the caller (names,
settings, programs) is escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from io import StringIO
from string import Template
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from minigraph.comparison import plots
from minigraph.comparison.clip_text import strategy_text
from minigraph.comparison.findings import conclusion
from minigraph.comparison.panels import MOST_PARAMETERS, Panel, panels
from minigraph.comparison.plots import Style, Theme
from minigraph.comparison.results import GradientResults, Results, StrategyResult, TrainingResults, TrainingRun
from minigraph.comparison.tables import epoch_tables, gradient_facts, rate_tables, training_facts, training_summary
from minigraph.comparison.wording import ALL_TOGETHER, NUMBERS, counted, evenly, number, number_cells
from minigraph.ir.text.diff import Difference
from minigraph.support.html import frame, in_notebook, resource, row, table
from minigraph.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PACKAGE: Final = "minigraph.comparison"

_HEADINGS: Final = {
    "figures": "Figures",
    "summary": "Summary",
    "ranks": "Over ranks",
    "metrics": "Metrics by epoch",
    "parameters": "By parameter",
    "strategies": "Strategies",
}
"""Headings of a page by the anchors of their sections, in order; a section without contents is left out."""

MOST_COLUMNS: Final = 12
"""Maximum number of epochs that a table shows."""

# Colours that nothing else uses: matplotlib draws with them, then the page's variables replace them.
_VARIABLES: Final = {
    "#010101": "var(--ink)", "#020202": "var(--muted)", "#030303": "var(--faint)",
    **{f"#0{index}0909": f"var(--line-{index})" for index in range(6)},
}  # fmt: skip
_THEME: Final = Theme(
    ink="#010101", muted="#020202", faint="#030303", lines=tuple(f"#0{index}0909" for index in range(6))
)

_SYMBOLS: Final = {
    "o": '<circle cx="22" cy="6" r="3.5"/>',
    "s": '<path d="M19 3h6v6h-6z"/>',
    "^": '<path d="M22 2l4 7h-8z"/>',
    "D": '<path d="M22 1.5l4.5 4.5-4.5 4.5-4.5-4.5z"/>',
    "v": '<path d="M22 10l4-7h-8z"/>',
    "P": '<path d="M20.500 2h3v2.500h2.500v3h-2.500v2.500h-3v-2.500h-2.500v-3h2.500z"/>',
    "X": '<path d="M18 3.500l1.500-1.500 2.500 2.500 2.500-2.500 1.500 1.500-2.500 2.500 2.500 2.500-1.500 1.500'
    '-2.500-2.500-2.500 2.500-1.500-1.500 2.500-2.500z"/>',
}
_STROKES: Final = {"-": "none", "--": "6 3", "-.": "7 2 1.500 2", ":": "1.500 3", "threshold": "1 2"}


# Pages


def gradient_page(report: GradientResults, norms: Any = None) -> str:
    """Effect of the strategies on the gradients: pictures, tables, and each strategy's numbers and diff.

    `norms` are what `minigraph.parallel.compare_norms` has found, if it is to be shown, too.
    """
    drawn = _parameter_figures(report, "Norm after clipping, by batch")
    sections = {
        "summary": [_gradient_summary(report)],
        "ranks": [_over_ranks(report, name) for name in report.strategies] if report.ranks else [],
        "parameters": [*drawn, _factor_table(report)],
    }
    return _page("What clipping did to the gradients", report, gradient_facts(report), sections, norms)


def training_page(report: TrainingResults, norms: Any = None) -> str:
    """Course of the training: pictures, metrics by rate and by epoch, and each strategy's numbers and diff.

    `norms` are as for `gradient_page`.
    """
    at = " at its best rate" if len(report.rates) > 1 else ""
    of_seeds = "; means over the seeds" if len(report.seeds) > 1 else ""
    summary = [table(f"One row per strategy{at}{of_seeds}.", *training_summary(report))]
    if report.strategies:
        summary += [table(f"{title}: mean and spread over the seeds; * is best.", ["strategy", *headings], rows)
                    for title, headings, rows in rate_tables(report)]  # fmt: skip
    sections = {
        "summary": summary,
        "metrics": list(_metric_tables(report)) if report.strategies else [],
        "parameters": _parameter_figures(report, "Norm before clipping, by step"),
    }
    return _page("What clipping did to the training", report, training_facts(report), sections, norms)


def _page(
    title: str, report: Results[Any], facts: Mapping[str, str], sections: Mapping[str, Sequence[str]], norms: Any
) -> str:
    finding, remarks, warnings = conclusion(report)
    strategies = [_section(report, result) for result in report.strategies.values()]
    over_ranks = [*sections.get("ranks", ()), *([] if norms is None else [norms.html_table()])]
    sections = {**sections, "ranks": over_ranks, "figures": _figures(report), "strategies": strategies}
    shown = [(key, heading) for key, heading in _HEADINGS.items() if any(sections.get(key, ()))]
    notes = [f'<p class="note">Note: {escape(remark)}.</p>' for remark in remarks]
    notes += [
        f'<p class="warning" role="alert"><strong>Warning:</strong> {escape(warning)}.</p>' for warning in warnings
    ]
    return Template(resource(_PACKAGE, "page.html")).substitute(
        version=escape(__version__),
        title=escape(title),
        style=resource("minigraph.support", "colors.css") + resource(_PACKAGE, "page.css"),
        finding=escape(finding),
        notes="\n".join(notes),
        links="\n".join(f'<a href="#{key}">{heading}</a>' for key, heading in shown),
        body="\n".join(
            f'<h2 id="{key}">{heading}</h2>\n' + "\n".join(filter(None, sections[key])) for key, heading in shown
        ),
        facts="".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in facts.items()),
    )


# Pictures


def _figures(report: Results[Any]) -> list[str]:
    shown, looks = panels(report)[0], plots.styles(report)
    drawn = [_panel(panel, looks, f"total-{index}") for index, panel in enumerate(shown)]
    names = dict.fromkeys(curve.name for panel in shown for curve in panel.curves)
    return [_legend({name: looks[name] for name in names}), _grid(drawn)] if drawn else []


def _parameter_figures(report: Results[Any], what: str) -> list[str]:
    looks = plots.styles(report)
    drawn = [_panel(panel, looks, f"parameter-{index}") for index, panel in enumerate(panels(report)[1])]
    hidden = len(report.unclipped.all_parameters()) > MOST_PARAMETERS
    which = f", of the {MOST_PARAMETERS} parameters with the largest gradients" if hidden else ""
    return [f"<p>{what}{which}.</p>", _grid(drawn)] if drawn else []


def _grid(figures: Sequence[str]) -> str:
    # In rows of three a fourth picture would be alone.
    kind = " pairs" if len(figures) in (2, 4) else ""
    return f'<div class="figures{kind}">\n{"".join(figures)}</div>'


def _legend(looks: Mapping[str, Style]) -> str:
    """One legend for all pictures of the page."""
    items = "".join(f"<li>{_swatch(look)} {escape(name)}</li>\n" for name, look in looks.items())
    threshold = _swatch(Style(None, "threshold", ""))
    items += f"<li>{threshold} threshold of a clip, in its colour</li>\n"
    return f'<ul class="legend" aria-label="Legend">\n{items}</ul>'


def _swatch(look: Style) -> str:
    color = "var(--muted)" if look.color is None else f"var(--line-{look.color})"
    line = f'<path class="line" d="M0 6h44" stroke="{color}" stroke-dasharray="{_STROKES[look.dash]}"/>'
    return f'<svg width="44" height="12" aria-hidden="true" fill="{color}">{line}{_SYMBOLS.get(look.marker, "")}</svg>'


def _panel(panel: Panel, looks: Mapping[str, Style], key: str) -> str:
    notes = "".join(f"; {note}" for note in panel.coincident())
    return _figure(plots.draw(panel, looks, _THEME), key, f"{panel.title}, by {panel.x}", f"{panel.title}{notes}")


def _figure(figure: Figure, key: str, label: str, caption: str) -> str:
    """A picture as inline SVG; `key` keeps its ids apart from other pictures', screen readers read `label`."""
    return f"<figure>\n<figcaption>{escape(caption)}</figcaption>\n{_svg(figure, key, label)}\n</figure>\n"


def _svg(figure: Figure, key: str, label: str) -> str:
    import matplotlib

    text = StringIO()
    metadata = {name: None for name in ("Creator", "Date", "Format", "Type")}
    # Text stays text, so that it can be searched; the salt gives equal reports equal pages.
    with plots.themed(_THEME), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    svg = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->", "", text.getvalue()[text.getvalue().index("<svg") :], flags=re.S
    )
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)  # an HTML parser knows them
    svg = re.sub(r'( id="|="#|url\(#)', rf"\g<1>{key}-", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    heading, rest = svg.split(">", 1)
    return f'{heading} role="img" aria-label="{escape(label, quote=True)}">{rest.strip()}'


# Strategies


def _section(report: Results[Any], result: StrategyResult) -> str:
    law = "Gradients are left as they are."
    if result.strategy is not None:
        inserted = counted(report.inserted(result), "operator")
        law = f"<code>{escape(strategy_text(result.strategy))}</code> inserts {inserted}."
    return (
        f"<section>\n<h3>{escape(result.name)}</h3>\n<p>{law}</p>\n{_heat_map(report, result)}"
        f"{result.table_html()}\n{_difference(report.diff(result.name), result.name)}</section>"
    )


def _heat_map(report: Any, result: StrategyResult) -> str:
    if not isinstance(result, TrainingRun):
        return ""
    figure, what = plots.heat_map(report, result.name, _THEME)
    at = "" if result.rate is None else f", learning rate {result.rate:g}"
    seed = "" if result.seed is None else f", seed {result.seed}"
    caption = f"{what} by parameter and step{at}{seed}"
    return _grid([_figure(figure, f"heat-{list(report).index(result.name)}", f"{caption}, {result.name}", caption)])


def _difference(text: Difference, name: str) -> str:
    if not text:
        return ""
    changed = sum(line.startswith(("+", "-")) for line in text.split("\n"))
    summary = f"What {name} changes in the program: {counted(changed, 'line')}"
    label = escape(f"Program difference of {name}", quote=True)
    return (
        f"<details>\n<summary>{escape(summary)}</summary>\n"
        f'<pre tabindex="0" role="region" aria-label="{label}">{text.html_lines()}</pre>\n</details>\n'
    )


# Tables


def _gradient_summary(report: GradientResults) -> str:
    rows = [[result.name, *number_cells(result.total)] for result in report.strategies.values()]
    return table("All gradients as one vector; means over batches.", ["strategy", *NUMBERS], rows)


def _over_ranks(report: GradientResults, name: str) -> str:
    caption = (
        f"{name}: if each rank clipped the gradients of its part of a batch, and of the whole; means over batches."
    )
    rows = [[each, *number_cells(statistics)] for each, statistics in report.over_ranks(name).items()]
    return table(caption, ["", *NUMBERS], rows, strong="all ranks")


def _factor_table(report: GradientResults) -> str:
    names = [name for name, result in report.strategies.items() if result.strategy is not None]
    if not names:
        return ""
    found = [report[name].statistics for name in names]
    body = "".join(
        row(column, [_shaded(each[column].summary("factor").mean) for each in found], column == ALL_TOGETHER)
        for column in found[0]
    )
    scale = "".join(f"<span {_shade(factor)}>{factor:g}</span>" for factor in (1, 0.75, 0.5, 0.25, 0))
    legend = f'<p class="scale">Mean factor, norm after / norm before: {scale}</p>'
    return legend + frame("Mean factor by parameter.", ["parameter", *names], body)


def _shaded(factor: float) -> str:
    return f"<td {_shade(factor)}>{number(factor)}</td>"


def _shade(factor: float) -> str:
    """A background that is stronger the more of the norm was removed."""
    taken = 1 - factor if math.isfinite(factor) else 0.0
    return f'class="shade" style="--share: {100 * min(max(taken, 0.0), 1.0) * 0.75:.0f}%"'


def _metric_tables(report: TrainingResults) -> Iterator[str]:
    for title, headings, rows in epoch_tables(report):
        shown = evenly(len(headings), MOST_COLUMNS)
        cells = [[row[0], *(row[1 + index] for index in shown)] for row in rows]
        yield table(title, ["strategy", *(headings[index] for index in shown)], cells)


# In a notebook


def in_a_cell(report: Results[Any]) -> str:
    """HTML of a report as the result of a cell: the finding, one row per strategy, and the first picture."""
    summary = ""
    if isinstance(report, GradientResults):
        summary = _gradient_summary(report)
    elif isinstance(report, TrainingResults) and report.strategies:
        summary = table("One row per strategy.", *training_summary(report))
    finding = conclusion(report).finding
    shown = panels(report)[0][:1] if find_spec("matplotlib") else []
    looks = plots.styles(report)
    key = f"cell-{crc32(finding.encode()):x}"  # other than those of other reports in the notebook
    drawn = [_legend({curve.name: looks[curve.name] for curve in panel.curves}) + _panel(panel, looks, key)
             for panel in shown]  # fmt: skip
    return in_notebook(finding, summary + "".join(drawn))
