"""Tables in HTML. All text is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

from minigraph.comparison.statistics import GradientStatistics
from minigraph.comparison.wording import ALL_TOGETHER, NUMBERS, number_cells


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts; a row begins with its name."""
    return frame(caption, headings, "".join(row(first, map(cell, cells)) for first, *cells in rows))


def frame(caption: str, headings: Sequence[str], body: str) -> str:
    """A table around rows that are HTML already."""
    columns = "".join(f'<th scope="col">{escape(heading).replace(chr(10), "<br>")}</th>' for heading in headings)
    title = f"<caption><span>{escape(caption)}</span></caption>"
    return (
        f'<div class="scroll"><table>\n{title}\n<thead><tr>{columns}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>"
    )


def row(first: str, cells: Iterable[str]) -> str:
    """A row of cells that are HTML already, behind its name; that of all gradients together stands out."""
    mark = ' class="together"' if first == ALL_TOGETHER else ""
    return f'<tr{mark}><th scope="row">{escape(first)}</th>{"".join(cells)}</tr>\n'


def cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def statistics_table(
    statistics: Mapping[str, GradientStatistics], shapes: Mapping[str, tuple[int, ...]], unit: str, is_clipped: bool
) -> str:
    """Means of each gradient; norms alone where nothing is clipped."""
    numbers = [heading.replace("batches", unit) for heading in NUMBERS] if is_clipped else ["norm"]
    sizes = {name: str(list(shape)) for name, shape in shapes.items()}
    sizes[ALL_TOGETHER] = f"{sum(map(math.prod, shapes.values())):,} values"
    rows = [[name, sizes[name], *number_cells(each)[: len(numbers)], _range(each)] for name, each in statistics.items()]
    range_of = "norm before\nmin to max" if is_clipped else "min to max"
    return table(f"Means over {unit}.", ["parameter", "shape", *numbers, range_of], rows)


def _range(statistics: GradientStatistics) -> str:
    summary = statistics.summary("norm_before")
    return f"{summary.min:#.3g} to {summary.max:#.3g}"


def resource(name: str) -> str:
    """The text of a file beside this module."""
    return (resources.files("minigraph.comparison") / name).read_text(encoding="utf-8")


def in_notebook(summary: str, body: str) -> str:
    """HTML for the result of a cell of a notebook: a sentence above `body`, in the text colour of the notebook."""
    return (
        f'<style>{resource("notebook.css")}</style><div class="minigraph-report"><p>{escape(summary)}</p>{body}</div>'
    )
