"""Programs in HTML: lines coloured by purpose, and sub-blocks that unfold below the operators that run them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final, Protocol

from minigraph.errors import Site
from minigraph.ir.role import Role, purpose
from minigraph.opdef import SUB_BLOCK
from minigraph.support.html import code, details, styled

FOLDED_FROM: Final = 40
"""Minimum number of lines of a block that is folded."""

LONG_RUN: Final = 6
"""Minimum number of lines of one purpose that are folded together."""

MOST_LINES: Final = 1000
"""Maximum number of lines that a cell of a notebook holds."""

_PARTS: Final = re.compile(r"(?P<results>.* = |)(?P<type>[\w.]+)(?P<slots>\(.*?\))(?P<fields> \{.*\}|)")


class _Operator(Protocol):
    """An operator, as far as its drawing reads it."""

    role: Role
    site: Site | None

    @property
    def attrs(self) -> Mapping[str, Any]: ...


Line = tuple[str, _Operator | None]
"""A line of text, and the operator that it shows; None for a declaration."""


class _Block(Protocol):
    """A block, as far as its drawing reads it."""

    @property
    def idx(self) -> int: ...
    def heading(self) -> str: ...
    def lines(self) -> Iterable[Line]: ...


def program_html(title: str, blocks: Sequence[_Block], only: int | None = None) -> str:
    """HTML for a cell of a notebook: all blocks of a program, or one block and its sub-blocks."""
    return styled(program_details(title, blocks, only))


def program_details(title: str, blocks: Sequence[_Block], only: int | None = None, is_open: bool = True) -> str:
    """HTML of a program, or of one block and its sub-blocks, below a heading that counts operators by purpose."""
    lines = {block.idx: (block.heading(), list(block.lines())) for block in blocks}
    drawing = _Drawing(lines)
    roots = list(lines) if only is None else [only]
    body = "".join(drawing.block(index) for index in roots if index in drawing.undrawn)
    if drawing.room < 0:
        body += f'<div class="heading">... and {-drawing.room:,} lines more; print() shows all</div>'
    return details(f"{title}: {drawing.legend()}", code(body, title), is_open)


class _Drawing:
    """HTML of blocks, each drawn once."""

    def __init__(self, undrawn: dict[int, tuple[str, list[Line]]]) -> None:
        self.undrawn = undrawn
        self.room = MOST_LINES
        """Number of lines that may yet be drawn; below 0, how many were left out."""
        self.purposes: Counter[str] = Counter()

    def legend(self) -> str:
        """The number of operators by purpose, in the colours of the lines."""
        counts = [f'<b class="{kind}">{count:,} {kind}</b>' for kind, count in self.purposes.items()]
        plural = "" if self.purposes.total() == 1 else "s"
        return f"{self.purposes.total():,} operator{plural}" + (f": {', '.join(counts)}" if counts else "")

    def block(self, index: int) -> str:
        heading, lines = self.undrawn.pop(index)
        self.purposes.update(_kind(line) for line in lines if line[1] is not None)
        runs = [(kind, list(run)) for kind, run in groupby(lines, key=_kind)]
        is_folded = len(lines) >= FOLDED_FROM
        body = "".join(
            self._folded(kind, run) if is_folded and len(run) >= LONG_RUN else self._open(run) for kind, run in runs
        )
        return f'<div class="heading">{heading}</div><div class="indented">{body}</div>'

    def _folded(self, kind: str, run: Sequence[Line]) -> str:
        what = "declarations" if kind == "declaration" else f"{kind} operators"
        heading, body = f'<span class="{kind}"><b>{len(run):,} {what}</b></span>', self._open(run)
        return details(heading, body) if body else f"<div>{heading}</div>"

    def _open(self, run: Sequence[Line]) -> str:
        return "".join(map(self._line, run))

    def _line(self, line: Line) -> str:
        self.room -= 1
        text, op = line
        if self.room < 0:
            return ""
        if op is None:
            return f'<div class="declaration">{escape(text)}</div>'
        site = "" if op.site is None else f' title="{escape(str(op.site), quote=True)}"'
        drawn = f'<span class="{purpose(op.role)}"{site}>{_colored(text)}</span>'
        index = op.attrs.get(SUB_BLOCK)
        return details(drawn, self.block(index), is_open=True) if index in self.undrawn else f"<div>{drawn}</div>"


def _kind(line: Line) -> str:
    return "declaration" if line[1] is None else purpose(line[1].role)


def _colored(text: str) -> str:
    """The line of an operator with its type in the colour of its purpose, and its attributes in a weaker one."""
    found = _PARTS.fullmatch(text)
    if found is None:
        return escape(text)
    results, type, slots, fields = map(escape, found.groups())
    return f'{results}<b>{type}</b>{slots}<span class="fields">{fields}</span>'
