"""The pages of the lessons: their cells, what these print, and how to write that into the pages anew.

``python tests/lesson_pages.py`` runs every cell and writes its output below it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from minigraph import unique_name
from minigraph.lessons.catalogue import LESSONS, Lesson
from minigraph.lessons.pages import CELL


class Cell(NamedTuple):
    """A cell of a page, what the page says that it prints, and what it prints."""

    match: re.Match[str]
    printed: str

    @property
    def output(self) -> str:
        return self.match["output"] or ""

    def text(self) -> str:
        """The cell with what it prints."""
        output = f"\n```text\n{self.printed}```\n" if self.printed else ""
        return f"```python\n{self.match['code']}```\n{output}"


def run(lesson: Lesson) -> Iterator[Cell]:
    """Run the cells of a page in order, in its folder, so that source lines are those of ``page.md``."""
    path = lesson.file("page.md")
    text, names = path.read_text(encoding="utf-8"), {"__name__": "page"}
    with _folder(path.parent), unique_name.guard():
        for match in CELL.finditer(text):
            before = text.count("\n", 0, match.start("code"))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * before + match["code"], str(path), "exec", dont_inherit=True), names)
            yield Cell(match, printed.getvalue())


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[None]:
    old = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(old)


def write(lesson: Lesson) -> None:
    """Write what the cells print into the page."""
    path = lesson.file("page.md")
    text = path.read_text(encoding="utf-8")
    for cell in reversed(list(run(lesson))):
        text = text[: cell.match.start()] + cell.text() + text[cell.match.end() :]
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for each in LESSONS:
        if sys.argv[1:] in ([], [each.name]):
            write(each)
