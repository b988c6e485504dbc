"""A trace as one HTML page that needs no other file and no network.

The page holds the trace as data, and a script draws it. A line of a program is stored once, whatever the number of
steps that show it, and a step as what it changes in the list of lines.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from html import escape
from itertools import chain, count, groupby, repeat
from operator import attrgetter
from string import Template
from typing import Any

from minigraph.errors import Site
from minigraph.ir.role import purpose
from minigraph.ir.text.diff import matching_lines
from minigraph.opdef import SUB_BLOCK
from minigraph.passes.base import Rewrite
from minigraph.rewrite.tracing.snapshots import Line, Snapshot
from minigraph.rewrite.tracing.steps import Record, Step
from minigraph.support.html import resource
from minigraph.version import __version__

_PACKAGE = "minigraph.rewrite.tracing"
_DECLARED = "declared"

_WRONG = 1e-4
"""Minimum difference, as a share of the largest element, that the page calls wrong in a pass; rounding stays below."""

Rows = list[tuple[int, int]]
"""For each row the numbers of its line and of its identity."""


def page(record: Record) -> str:
    """The page that `Trace.save` writes."""
    style = resource("minigraph.support", "colors.css") + resource(_PACKAGE, "page.css")
    script = resource(_PACKAGE, "page.js")
    return Template(resource(_PACKAGE, "page.html")).substitute(
        version=escape(__version__), style=style, script=script,
        hash=b64encode(sha256(script.encode()).digest()).decode(),
        data=_safe(json.dumps(data(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False)),
    )  # fmt: skip


def in_a_cell(record: Record) -> str:
    """The page in a frame, as the result of a cell of a notebook."""
    return (
        f'<iframe title="Steps of rewriting" srcdoc="{escape(page(record), quote=True)}" sandbox="allow-scripts" '
        'style="width: 100%; height: 40rem; border: 1px solid #80889060; border-radius: 8px"></iframe>'
    )


def data(record: Record) -> dict[str, Any]:
    """The trace as data of JSON; `page.js` says what each field is for."""
    return _Book(record).written()


def _safe(text: str) -> str:
    """JSON that ends no element of HTML."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


class _Numbered(dict[Any, int]):
    """Things by the number that each gets when it is first asked for."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class _Book:
    """Lines, names and sites of a trace, each written once."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._lines: list[tuple[Any, ...]] = []
        self._line_of: dict[tuple[str, int, Site | None], int] = {}
        self._number_of: dict[int, tuple[Line, int, int]] = {}
        """For the `id` of an operator or variable its latest line, with its depth and number."""
        self._names = _Numbered()
        self._sites = _Numbered()
        self._identities: dict[int, int] = {}
        """Numbers of the rows of operators and variables, by their `id`."""
        self._fresh = count()
        self._states: dict[Snapshot, tuple[int, Rows]] = {}
        """The last step that shows a state, and its rows."""

    def written(self) -> dict[str, Any]:
        tracks = {track: number for number, track in enumerate(self._record.tracks)}
        return {
            "tracks": [track.title for track in tracks],
            "steps": [{"track": tracks[step.track], **self._step(step)} for step in self._record.steps],
            "lines": self._lines,
            "names": list(self._names),
            "sites": list(map(str, self._sites)),
        }

    def _step(self, step: Step) -> dict[str, Any]:
        first = step is step.track.steps[0]
        before = step.track.origin if first else step.before
        base, old = (-1, []) if before is None else self._states[before]
        rows = self._rows(step.after, old)
        self._states[step.after] = step.number, rows
        difference = step.difference
        return {
            "name": step.name,
            "inside": step.inside,
            "site": None if step.site is None else str(step.site),
            "base": base,
            "changed": step.changed,
            "rows": _splices(old, rows),
            "matched": [self._identities[id(op)] for op in step.fired_on if id(op) in self._identities],
            "operators": step.operators,
            "bytes": step.bytes,
            "ms": round(1000 * step.seconds, 3),
            "difference": None if difference is None else str(difference),
            "wrong": isinstance(step.rewrite, Rewrite) and difference is not None and difference.relative > _WRONG,
            "errors": step.errors,
        }

    def _rows(self, state: Snapshot, old: Rows) -> Rows:
        if state in self._states:
            return self._states[state][1]
        shown, known = [], self._number_of
        for line, depth in self._shown(state):
            latest = known.get(id(line.key))
            is_same = latest is not None and latest[0] is line and latest[1] == depth
            shown.append((line.key, latest[2] if latest is not None and is_same else self._line(line, depth)))
        self._identify(shown, old)
        return [(number, self._identities[id(key)]) for key, number in shown]

    def _shown(self, state: Snapshot) -> Iterable[tuple[Line, int]]:
        """The lines in the order in which they are shown, with the number of blocks around each.

        Headings are left out, and variables that no operator uses any more.
        """
        lines = self._record.texts.lines(state)
        shown = [line for line in lines if line.key is not None]
        if any([line.op is None and line.text.startswith("  var ") for line in shown]):
            read = set(chain.from_iterable([line.reads for line in lines]))
            shown = [
                line for line in shown
                if line.op is not None or not line.text.startswith("  var ") or line.writes[0] in read
            ]  # fmt: skip
        if len(state.blocks) == 1:
            return zip(shown, repeat(0))
        return self._nested(shown)

    def _nested(self, shown: Iterable[Line]) -> Iterator[tuple[Line, int]]:
        """Yield the lines of sub-blocks after the operators that run them, with the number of blocks around each."""
        blocks = {index: list(each) for index, each in groupby(shown, key=attrgetter("block"))}

        def inside(index: int, depth: int) -> Iterator[tuple[Line, int]]:
            for line in blocks.pop(index, ()):
                yield line, depth
                if line.op is not None and SUB_BLOCK in line.op.attrs:
                    yield from inside(line.op.attrs[SUB_BLOCK], depth + 1)

        yield from inside(0, 0)
        for index in list(blocks):  # sub-blocks that no operator runs
            yield from inside(index, 1)

    def _line(self, line: Line, depth: int) -> int:
        """Number of a line."""
        known = self._number_of.get(id(line.key))
        if known is not None and known[0] is line and known[1] == depth:
            return known[2]
        content = line.text, depth, None if line.op is None else line.op.site
        if content not in self._line_of:
            self._line_of[content] = len(self._lines)
            self._lines.append((*self._content(line), depth))
        number = self._line_of[content]
        self._number_of[id(line.key)] = line, depth, number
        return number

    def _content(self, line: Line) -> tuple[Any, ...]:
        """Text, type, role, names read and written, and source line."""
        text, op = line.text.strip(), line.op
        if op is None:
            return text, text.partition(" ")[0], _DECLARED, (), (self._names[line.writes[0]],), -1
        reads, writes = (
            tuple([self._names[name] for name in dict.fromkeys(names)]) for names in (line.reads, line.writes)
        )
        return (
            text,
            op.definition.type,
            purpose(op.role),
            reads,
            writes,
            -1 if op.site is None else self._sites[op.site],
        )

    def _identify(self, shown: Sequence[tuple[object, int]], old: Rows) -> None:
        """Give an identity to each operator and variable, shown by its line, that has none.

        One that takes the place of another, by the same line or else by the same results, takes over its identity.
        """
        new = [(key, line) for key, line in shown if id(key) not in self._identities]
        if not new:
            return
        kept = {self._identities[id(key)] for key, _ in shown if id(key) in self._identities}
        left = {identity: line for line, identity in old if identity not in kept}
        for place_of in (int, self._results):
            places: dict[Any, list[int]] = {}
            for identity, line in left.items():
                places.setdefault(place_of(line), []).append(identity)
            for key, line in new:
                if id(key) not in self._identities and places.get(place_of(line)):
                    identity = self._identities[id(key)] = places[place_of(line)].pop(0)
                    del left[identity]
        for key, _ in new:
            self._identities.setdefault(id(key), next(self._fresh))

    def _results(self, line: int) -> Any:
        """Kind of a line, a declaration or an operator, and the names that it writes."""
        _, _, role, _, writes, *_ = self._lines[line]
        return (role == _DECLARED, writes) if writes else -1


def _splices(old: Rows, new: Rows) -> list[list[int]]:
    """Splices that turn one list of rows into another: position, number of rows that go, new rows."""
    found = []
    i = j = 0
    for a, b in [*matching_lines(old, new), (len(old), len(new))]:
        if a > i or b > j:
            found.append([i, a - i, *chain.from_iterable(new[j:b])])
        i, j = a + 1, b + 1
    return found
