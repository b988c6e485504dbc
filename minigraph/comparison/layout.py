"""Tables and lists of text that fit the console; no number is cut, no name shortened, no line padded on the right.

rich's own tables cut cells that are too wide. Here numbers move below their name, or into another table.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from minigraph.comparison.wording import evenly

WIDTH: Final = 100
"""Columns to print in if neither a terminal nor the environment variable COLUMNS states a number."""

GAP: Final = 2
"""Blanks between two columns, and in front of numbers below their name."""

MOST_SHOWN: Final = 10
"""Maximum number of columns shown of a table with `may_skip`."""


def columns() -> int:
    """The width to print in: that of the environment variable COLUMNS, or of the terminal, or `WIDTH`."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


@dataclass(frozen=True)
class Row:
    """A name with a detail such as a shape, and its numbers."""

    name: str
    cells: Sequence[str]
    detail: str = ""
    style: str = ""
    begins_section: bool = False


@dataclass(frozen=True)
class NumberTable:
    """Rows of numbers: beside their name, below it if the console is narrow, in several tables if it is narrower.

    Parameters
    ----------
    heading : str
        Heading of the names.
    headings : sequence of str
        One for each number, of one or more lines.
    rows : sequence of Row
    may_skip : bool
        Whether columns between the first and the last may be left out at even distances, as of epochs.
    """

    heading: str
    headings: Sequence[str]
    rows: Sequence[Row]
    may_skip: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rule = "-" if options.ascii_only else "─"
        for line in self._lines(options.max_width, rule):
            yield from wrapped(line, console, options.max_width)

    def _lines(self, width: int, rule: str) -> Iterator[Text]:
        sizes = [self._size(index) + GAP for index in range(len(self.headings))]
        details = [cell_len(row.detail) + GAP for row in self.rows if row.detail]
        names = max(cell_len(name) for name in (*self.heading.split("\n"), *(row.name for row in self.rows)))
        label = names + max(details, default=0)
        if self.may_skip:
            kept = self._evenly(sizes, width - label)
            is_beside = len(kept) >= min(len(sizes), 4)
            groups = [kept if is_beside else self._evenly(sizes, width)]
        else:
            is_beside = label + sum(sizes) <= width
            groups = [list(range(len(sizes)))] if is_beside else _groups(sizes, width)
        for number, group in enumerate(groups):
            if number:
                yield Text()
            yield from self._table(group, [sizes[i] for i in group], names, label if is_beside else 0, rule)

    def _size(self, index: int) -> int:
        cells = [*self.headings[index].split("\n"), *(row.cells[index] for row in self.rows)]
        return max(map(cell_len, cells))

    def _evenly(self, sizes: Sequence[int], width: int) -> list[int]:
        count = min(len(sizes), MOST_SHOWN)
        while count > 1 and sum(sizes[i] for i in evenly(len(sizes), count)) > width:
            count -= 1
        return evenly(len(sizes), count)

    def _table(self, group: Sequence[int], sizes: Sequence[int], names: int, label: int, rule: str) -> Iterator[Text]:
        """The columns of `group`; a `label` of 0 columns says that names stand above their numbers."""
        stacks = [self.headings[i].split("\n") for i in group]
        height = max(map(len, stacks), default=0)
        padded = [[""] * (height - len(stack)) + stack for stack in stacks]
        if not label:
            yield Text(self.heading, "bold")
        for level in range(height):
            cells = [stack[level] for stack in padded]
            head = self.heading if level == height - 1 else ""
            yield Text(_line(head, label, cells, sizes), "bold")
        yield Text(rule * max(label + sum(sizes), 0 if label else names))
        for row in self.rows:
            cells = [row.cells[i] for i in group]
            if row.begins_section:
                yield Text()
            named = f"{_padded(row.name, names if label else 0)}{' ' * GAP}{row.detail}".rstrip()
            if not label:
                yield Text(named, row.style)
            yield Text(_line(named, label, cells, sizes), row.style)


def _line(name: str, label: int, cells: Sequence[str], sizes: Sequence[int]) -> str:
    numbers = "".join(" " * (size - cell_len(cell)) + cell for cell, size in zip(cells, sizes, strict=True))
    return ((_padded(name, label) if label else "") + numbers).rstrip()


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _groups(sizes: Sequence[int], width: int) -> list[list[int]]:
    """The columns in as few groups as fit `width`, filled in order."""
    groups: list[list[int]] = []
    for index, size in enumerate(sizes):
        if not groups or sum(sizes[i] for i in groups[-1]) + size > width:
            groups.append([])
        groups[-1].append(index)
    return groups


def wrapped(text: Text, console: Console, width: int) -> Iterator[Text]:
    """The lines of a text wrapped between words, without trailing blanks."""
    for line in text.wrap(console, max(width, 1)):
        line.rstrip()
        yield line


@dataclass(frozen=True)
class Paragraph:
    """A text, wrapped."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from wrapped(self.text, console, options.max_width)


@dataclass(frozen=True)
class Facts:
    """Values beside their names, wrapped where they are long."""

    facts: Mapping[str, str]
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label = max((cell_len(name) for name in self.facts), default=0) + GAP
        is_beside = options.max_width - label >= 30
        indent = label if is_beside else GAP
        for name, value in self.facts.items():
            if not is_beside:
                yield Text(name, f"bold {self.style}")
            for number, line in enumerate(wrapped(Text(value, self.style), console, options.max_width - indent)):
                head = _padded(name, indent) if is_beside and number == 0 else " " * indent
                yield Text.assemble((head, f"bold {self.style}"), line)
