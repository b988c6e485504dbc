"""Reports as one HTML page that needs no other file, no network and no script.

Pictures are inline SVG whose colours are the page's own, so that they follow the reader's choice of dark or light.
Whatever comes from the caller (names, settings, programs) is escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from minigraph.comparison import plots
from minigraph.comparison.clip_text import strategy_text
from minigraph.comparison.plots import Theme
from minigraph.comparison.records import ALL_TOGETHER, operator_count
from minigraph.comparison.report import Report, StrategyResult
from minigraph.comparison.statistics import GradientStatistics
from minigraph.comparison.tables import (
    NUMBERS,
    counted,
    gradient_facts,
    gradient_warning,
    metric_title,
    number,
    number_cells,
    spread,
    training_facts,
    training_summary,
    training_warning,
)
from minigraph.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minigraph.comparison.gradients import GradientReport
    from minigraph.comparison.training import TrainingReport

STYLE: Final = """\
:root { color-scheme: light dark; --page: #ffffff; --card: #f6f7f9; --ink: #1f2328; --muted: #8a9199; --faint: #dfe2e6;
  --accent: #0072b2; --added: #116329; --added-back: #e6f6ea; --removed: #a40e26; --removed-back: #ffebe9;
  --line-0: #0072b2; --line-1: #d55e00; --line-2: #009e73; --line-3: #b0558a; --line-4: #b8860b; --line-5: #2f9bd8; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1d2125; --ink: #e4e7ea; --muted: #8b939b;
  --faint: #363c42; --accent: #6cb8ee; --added: #7ee2a0; --added-back: #16301f; --removed: #ff9a94;
  --removed-back: #3a1a1c; --line-0: #5aa9e6; --line-1: #ff8a4c; --line-2: #3ecf9f; --line-3: #e39bc8;
  --line-4: #e2b93b; --line-5: #8fd3ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.75rem; border-bottom: 1px solid var(--faint); padding-bottom: 0.3rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 0.5rem; }
a { color: var(--accent); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1.25rem; margin: 0; font-size: 0.92rem; }
dt { color: var(--muted); } dd { margin: 0; }
.warning { border-left: 4px solid var(--removed); background: var(--removed-back); padding: 0.6rem 1rem; }
.scroll { overflow-x: auto; } .scroll + .scroll { margin-top: 1rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding: 0.25rem 0; }
th, td { padding: 0.3rem 0.8rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th:first-child, td.text { text-align: left; } thead th { vertical-align: bottom; font-weight: 600; }
tbody th { font-weight: 500; } tr.together th, tr.together td { font-weight: 700; }
td.shade { background: color-mix(in srgb, var(--accent) var(--share), transparent); }
.figures { margin-top: 1.5rem; display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; background: var(--card); border-radius: 8px; padding: 0.75rem; overflow-x: auto; }
section figure { margin: 1rem 0; } section figure svg { min-width: 40rem; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: 0.85rem; color: var(--muted); padding-top: 0.4rem; }
details { margin: 0.75rem 0; } summary { cursor: pointer; color: var(--accent); }
pre { background: var(--card); border-radius: 8px; padding: 0.75rem; overflow-x: auto; font: 12.5px/1.45 ui-monospace,
  "DejaVu Sans Mono", monospace; }
pre ins { color: var(--added); background: var(--added-back); text-decoration: none; }
pre del { color: var(--removed); background: var(--removed-back); text-decoration: none; }
footer { margin-top: 3rem; color: var(--muted); font-size: 0.85rem; }
"""

# Colours that nothing else uses, put in the place of the page's variables while matplotlib draws.
_VARIABLES: Final = {
    "#010101": "var(--ink)", "#020202": "var(--muted)", "#030303": "var(--faint)",
    **{f"#0{index}0909": f"var(--line-{index})" for index in range(6)},
}  # fmt: skip
_THEME: Final = Theme(
    ink="#010101", muted="#020202", faint="#030303", lines=tuple(f"#0{index}0909" for index in range(6))
)


# Pages


def gradient_page(report: GradientReport) -> str:
    """What the strategies did to the gradients: summary, pictures, and for each strategy its numbers and its diff."""
    title = "What clipping did to the gradients"
    sections = [
        _facts(gradient_facts(report), gradient_warning(report)),
        '<h2 id="summary">Summary</h2>',
        _gradient_summary(report),
        *_gradient_figures(report),
        '<h2 id="factors">Mean factor by parameter</h2>',
        "<p>Norm after / norm before. The stronger the shade, the more was taken away.</p>",
        _factor_table(report),
        '<h2 id="strategies">Strategies</h2>',
        *(_gradient_section(report, result) for result in report.strategies.values()),
    ]
    return _page(title, sections)


def training_page(report: TrainingReport) -> str:
    """How training went: summary, pictures, metrics by epoch, and for each strategy its numbers and its diff."""
    title = "What clipping did to the training"
    headings, rows = training_summary(report)
    sections = [
        _facts(training_facts(report), training_warning(report)),
        '<h2 id="summary">Summary</h2>',
        _table("One row per strategy; metrics after the last epoch.", headings, rows),
        *_training_figures(report),
        *_metric_tables(report),
        '<h2 id="strategies">Strategies</h2>',
        *(_section(report, run, [_statistics_table(report, run, "steps")]) for run in report.strategies.values()),
    ]
    return _page(title, sections)


def _page(title: str, sections: Iterable[str]) -> str:
    body = "\n".join(section for section in sections if section)
    # The policy lets the page load nothing, whatever stands in it.
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="generator" content="minigraph {escape(__version__)}">
<title>{escape(title)}</title>
<style>
{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
</header>
<main>
{body}
</main>
<footer>Written by minigraph {escape(__version__)}.</footer>
</body>
</html>
"""


def _facts(facts: Mapping[str, str], warning: str) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in facts.items())
    note = f'<p class="warning" role="alert"><strong>Warning:</strong> {escape(warning)}</p>\n' if warning else ""
    return f"{note}<dl>\n{rows}</dl>"


# Gradients


def _gradient_summary(report: GradientReport) -> str:
    rows = [[result.name, *number_cells(result.total)] for result in report.strategies.values()]
    return _table("All gradients as one vector; means over batches.", ["strategy", *NUMBERS], rows)


def _gradient_figures(report: GradientReport) -> Iterator[str]:
    if not report.strategies:
        return
    drawn = {
        "norm_after": ("norm of all gradients after clipping", "norm_before"),
        "factor": ("factor, norm after / norm before", ""),
        "cosine": ("cosine of the angle to the raw gradients", ""),
        "share_changed": ("share of elements changed", ""),
    }
    figures = []
    for quantity, (title, raw) in drawn.items():
        figure = plots.strategy_lines(report, quantity, title, raw, _THEME)
        figures.append(_figure(figure, f"total-{quantity}", f"{title}, by batch"))
    yield f'<div class="figures">\n{"".join(figures)}</div>'


def _factor_table(report: GradientReport) -> str:
    names = list(report.strategies)
    if not names:
        return ""
    parameters = list(report[names[0]].parameters)
    columns = [[*(report[name].parameters[p] for p in parameters), report[name].total] for name in names]
    rows = zip([*parameters, ALL_TOGETHER], zip(*columns, strict=True), strict=True)
    body = "".join(_row(parameter, [_shaded(s.summary("factor").mean) for s in cells]) for parameter, cells in rows)
    return _frame("Means over batches.", ["parameter", *names], body)


def _shaded(factor: float) -> str:
    taken = 1 - factor if math.isfinite(factor) else 0.0
    return f'<td class="shade" style="--share: {100 * min(max(taken, 0.0), 1.0) * 0.75:.0f}%">{number(factor)}</td>'


def _gradient_section(report: GradientReport, result: StrategyResult) -> str:
    figure = plots.norms_panels(report, result.name, _THEME)
    caption = f"Norms before and after {result.name}, by batch"
    if len(result.parameters) > plots.MOST_PARAMETERS:
        caption += f"; of the {plots.MOST_PARAMETERS} parameters with the largest gradients, and of all together"
    key = f"norms-{list(report).index(result.name)}"
    return _section(
        report, result, [_figure(figure, key, caption, has_caption=True), _statistics_table(report, result, "batches")]
    )


# Training


def _training_figures(report: TrainingReport) -> Iterator[str]:
    runs = report.strategies
    if not runs:
        return
    figures = [(plots.loss_lines(report, {name: run.loss for name, run in runs.items()}, "step", _THEME), "loss")]
    figures += [(plots.metric_lines(report, name, _THEME), metric_title(report, name)) for name in report.metrics]
    titles = {"norm_before": "norm of all gradients before clipping", "factor": "factor, norm after / norm before"}
    for quantity, title in titles.items():
        figures.append((plots.strategy_lines(report, quantity, title, theme=_THEME, x="step"), title))
    drawn = "".join(
        _figure(figure, f"training-{i}", f"{title}, by strategy") for i, (figure, title) in enumerate(figures)
    )
    yield f'<div class="figures">\n{drawn}</div>'


def _metric_tables(report: TrainingReport) -> Iterator[str]:
    if not report.metrics:
        return
    yield '<h2 id="metrics">Metrics by epoch</h2>'
    epochs = spread(report.epochs, 12)
    for name in report.metrics:
        headings = ["strategy", *(str(epoch + 1) for epoch in epochs)]
        rows = [
            [run.name, *(number(run.metrics[name][epoch]) for epoch in epochs)] for run in report.strategies.values()
        ]
        yield _table(f"{metric_title(report, name)} after epoch", headings, rows)


# Both


def _section(report: Report[Any], result: StrategyResult, parts: Sequence[str]) -> str:
    inserted = operator_count(result.program) - operator_count(report.unclipped)
    law = "Gradients are left as they are."
    if result.strategy is not None:
        law = f"<code>{escape(strategy_text(result.strategy))}</code> inserts {counted(inserted, 'operator')}."
    content = "\n".join(parts)
    return (
        f"<section>\n<h3>{escape(result.name)}</h3>\n<p>{law}</p>\n{content}\n"
        f"{_difference(report.diff(result.name), result.name)}</section>"
    )


def _difference(text: str, name: str) -> str:
    if not text:
        return "<p>The program is the unclipped one.</p>\n"
    marks = {"+": "ins", "-": "del"}
    lines = []
    for line in text.split("\n"):
        mark = marks.get(line[:1])
        lines.append(f"<{mark}>{escape(line)}</{mark}>" if mark else escape(line))
    changed = sum(line.startswith(("+", "-")) for line in text.split("\n"))
    summary = f"What {name} changes in the program: {counted(changed, 'line')}"
    label = escape(f"Program difference of {name}", quote=True)
    listing = "\n".join(lines)
    return (
        f"<details>\n<summary>{escape(summary)}</summary>\n"
        f'<pre tabindex="0" role="region" aria-label="{label}">{listing}</pre>\n</details>\n'
    )


def _statistics_table(report: Report[Any], result: StrategyResult, unit: str) -> str:
    headings = [
        "parameter",
        "shape",
        *(heading.replace("batches", unit) for heading in NUMBERS),
        "norm before\nmin to max",
    ]
    body = "".join(
        _row(
            name,
            [
                _cell(shape, "text"), *map(_cell, number_cells(statistics)), _cell(_range(statistics))
            ],
            "together" if name == ALL_TOGETHER else "",
        )
        for name, shape, statistics in _lines(report, result)
    )  # fmt: skip
    return _frame(f"Means over {unit}.", headings, body)


def _lines(report: Report[Any], result: StrategyResult) -> Iterator[tuple[str, str, GradientStatistics]]:
    for name, statistics in result.parameters.items():
        yield name, str(list(report.shape(name))), statistics
    yield ALL_TOGETHER, "", result.total


def _range(statistics: GradientStatistics) -> str:
    summary = statistics.summary("norm_before")
    return f"{summary.min:#.3g} to {summary.max:#.3g}"


def _table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _frame(caption, headings, "".join(_row(first, map(_cell, cells)) for first, *cells in rows))


def _frame(caption: str, headings: Sequence[str], body: str) -> str:
    columns = "".join(f'<th scope="col">{escape(heading).replace(chr(10), "<br>")}</th>' for heading in headings)
    return (
        f'<div class="scroll"><table>\n<caption>{escape(caption)}</caption>\n<thead><tr>{columns}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>"
    )


def _row(first: str, cells: Iterable[str], kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<tr{mark}><th scope="row">{escape(first)}</th>{"".join(cells)}</tr>\n'


def _cell(text: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<td{mark}>{escape(text)}</td>"


# Pictures


def _figure(figure: Figure, key: str, caption: str, has_caption: bool = False) -> str:
    """A picture as inline SVG; `key` makes its ids unlike those of the page's other pictures.

    The caption is read out where pictures are not seen; it is printed too where the picture has no title of its own.
    """
    printed = f"<figcaption>{escape(caption)}</figcaption>\n" if has_caption else ""
    return f"<figure>\n{_svg(figure, key, caption)}\n{printed}</figure>\n"


def _svg(figure: Figure, key: str, label: str) -> str:
    import matplotlib

    text = StringIO()
    metadata = {name: None for name in ("Creator", "Date", "Format", "Type")}
    # Text stays text, for readers and their search; the salt gives equal reports equal pages.
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
