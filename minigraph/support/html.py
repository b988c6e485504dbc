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
    title = f"<caption><span>{escape(caption)}</span></caption>"
    return (
        f'<div class="scroll"><table>\n{title}\n<thead><tr>{columns}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>"
    )


def row(first: str, cells: Iterable[str], stands_out: bool = False) -> str:
    """A row of cells that are HTML already, behind its name."""
    mark = ' class="together"' if stands_out else ""
    return f'<tr{mark}><th scope="row">{escape(first)}</th>{"".join(cells)}</tr>\n'


def cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def resource(package: str, name: str) -> str:
    """The text of a file of a package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


def in_notebook(summary: str, body: str) -> str:
    """HTML for the result of a cell of a notebook: a sentence above `body`, in the text colour of the notebook."""
    style = resource("minigraph.support", "notebook.css")
    return f'<style>{style}</style><div class="minigraph-report"><p>{escape(summary)}</p>{body}</div>'
