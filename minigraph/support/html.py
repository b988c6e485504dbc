"""Tables and results of a notebook's cells in HTML. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], strong: str = "") -> str:
    """A table of texts; a row begins with its name, and the row `strong` stands out."""
    return frame(caption, headings, "".join(row(first, map(cell, cells), first == strong) for first, *cells in rows))


def frame(caption: str, headings: Sequence[str], body: str) -> str:
    """A table around rows that are HTML already."""
    columns = "".join(f'<th scope="col">{escape(heading).replace(chr(10), "<br>")}</th>' for heading in headings)
    title = f"<caption><span>{escape(caption)}</span></caption>\n" if caption else ""
    return (
        f'<div class="scroll"><table>\n{title}<thead><tr>{columns}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>"
    )


def row(first: str, cells: Iterable[str], stands_out: bool = False) -> str:
    """A row of cells that are HTML already, after its name."""
    mark = ' class="together"' if stands_out else ""
    return f'<tr{mark}><th scope="row">{escape(first)}</th>{"".join(cells)}</tr>\n'


def cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def resource(package: str, name: str) -> str:
    """The text of a file of a package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


def words_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of words rather than numbers, aligned at the left."""
    return f'<div class="words">{table("", headings, rows)}</div>'


def code(text: str, label: str) -> str:
    """Lines that are HTML already, as code; screen readers read `label`."""
    return f'<div class="code" tabindex="0" role="region" aria-label="{escape(label, quote=True)}">{text}</div>'


def details(summary: str, body: str, is_open: bool = False) -> str:
    """Element that unfolds below a summary; both are HTML already."""
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>{body}</details>"


def in_notebook(summary: str, body: str) -> str:
    """HTML for the result of a cell of a notebook: a sentence above `body`, in the text colour of the notebook."""
    return styled(f"<p>{escape(summary)}</p>{body}")


def styled(body: str) -> str:
    """HTML for the result of a cell of a notebook, in light and dark."""
    style = resource("minigraph.support", "notebook.css")
    return f'<style>{style}</style><div class="minigraph">{body}</div>'
