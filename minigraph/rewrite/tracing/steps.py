"""Programs and steps of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minigraph.errors import Site
from minigraph.ir import Operator, Program
from minigraph.ir.text.diff import Difference, diff_lines
from minigraph.rewrite.tracing.numbers import Numbers, ValueDifference
from minigraph.rewrite.tracing.rewrites import label, site_of
from minigraph.rewrite.tracing.snapshots import Edits, Snapshot, Texts
from minigraph.runtime.scope import Scope
from minigraph.support.undo import JOURNAL, Journal


class Track:
    """The states of one program, one after the other.

    Attributes
    ----------
    title : str
    source : Track or None
        Of the program that this one is a copy of.
    steps : list of Step
        The first is the program as it was when the trace first saw it.
    """

    def __init__(self, program: Program, title: str, source: Track | None, numbers: Numbers | None = None) -> None:
        self.program = program
        self.title = title
        self.source = source
        self._numbers = numbers
        self.origin: Snapshot | None = None if source is None else source.state
        """State of the source when it was copied."""
        self.steps: list[Step] = []
        self._journal: Journal | None = None
        self._read = 0
        """Number of entries of the journal that have been looked at."""
        self.state: Snapshot = Snapshot(program)
        self.version = program.version
        self.mark()

    @property
    def numbers(self) -> Numbers | None:
        """Values for the feed that was given; else for that of the first run; None without either."""
        return self.source.numbers if self._numbers is None and self.source is not None else self._numbers

    def runs(self, feed: Mapping[str, Any], scope: Scope) -> None:
        """Take over the feed of a run if none is known."""
        if self.numbers is None:
            arrays = {name: value.copy() for name, value in feed.items() if isinstance(value, np.ndarray)}
            self._numbers = Numbers(arrays, scope)

    def look(self, carefully: bool) -> Snapshot:
        """Return the state of the program now: the object of before if nothing has changed.

        `carefully` compares all: passes may write to fields of variables and operators, which counts up no version and
        stands in no journal. Otherwise only what the undo journal names is looked at, if there is one.
        """
        if carefully or self.program.version != self.version:
            edits = None if carefully else self._edits()
            found = Snapshot(self.program, self.state, edits)
            if edits is not None or not found.holds(self.state):
                self.state = found
            self.version = self.program.version
        self.mark()
        return self.state

    def mark(self) -> None:
        """Look at later entries of the journal only from now on."""
        self._journal = JOURNAL.get()
        self._read = 0 if self._journal is None else len(self._journal)

    def _edits(self) -> Edits | None:
        journal = JOURNAL.get()
        if journal is None or journal is not self._journal or len(journal) < self._read:
            return None
        return Edits.of(self.program, journal[self._read :])

    def states(self) -> Iterator[Snapshot]:
        """The states in order, the first of which may be that of the source."""
        yield self.steps[0].before or self.steps[0].after
        for step in self.steps:
            yield step.after


class Step:
    """A step of a trace: what one pass, one firing of a rule, or one function did to one program.

    Attributes
    ----------
    number : int
        Position in ``trace.steps``.
    name : str
        Of the pass, rule or function; ``start`` for the program as it was, ``edits`` for changes outside of any.
    inside : tuple of str
        Names of the pipeline, pass and the like in which it ran, the outermost first.
    track : Track
        The program that it changed.
    seconds : float
        Time that the step took, without that of the recording; 0 for ``start``, ``edits`` and copies.
    """

    def __init__(
        self, record: Record, track: Track, rewrite: Any, inside: Sequence[Any], before: Snapshot | None,
        seconds: float, fired_on: Sequence[Operator] = (),
    ) -> None:  # fmt: skip
        self.number = len(record.steps)
        self.track = track
        self.rewrite = rewrite
        self.name = label(rewrite)
        self.inside = tuple(map(label, inside))
        self.before = before
        self.after = track.state
        self.seconds = seconds
        self.fired_on = fired_on
        self._record = record

    @property
    def changed(self) -> bool:
        """Whether the step changed the program."""
        return self.before is not None and self.before is not self.after

    @property
    def program(self) -> Program:
        """A copy of the program after the step."""
        return self.after.program()

    @property
    def text(self) -> str:
        """Text of the program after the step."""
        return self._record.texts.text(self.after)

    @property
    def diff(self) -> Difference:
        """Changes of the step, as by `minigraph.diff`."""
        if not self.changed or self.before is None:
            return Difference("")
        texts = self._record.texts
        old, new = ([line.text for line in texts.lines(state)] for state in (self.before, self.after))
        return Difference("\n".join(diff_lines(old, new, 3)))

    @property
    def matched(self) -> tuple[str, ...]:
        """The operators, as text, that a rule has matched, or that a pass has changed or removed."""
        if self.before is None or not self.changed:
            return ()
        lines = {line.key: line for line in self._record.texts.lines(self.before) if line.op is not None}
        if self.fired_on:
            return tuple([lines[op].text.strip() for op in self.fired_on if op in lines])
        kept = {line.text for line in self._record.texts.lines(self.after)}
        return tuple([line.text.strip() for line in lines.values() if line.text not in kept])

    @property
    def site(self) -> Site | None:
        """Line where the rule, pass or function is written."""
        return site_of(self.rewrite)

    @property
    def operators(self) -> int:
        """Number of operators after the step."""
        return self.after.operators

    @property
    def bytes(self) -> int:
        """Estimate of the bytes that the operators after the step read and write."""
        numbers = self.track.numbers
        return self.after.bytes_moved(1 if numbers is None else numbers.batch)

    @property
    def difference(self) -> ValueDifference | None:
        """The value that the step changed most among the values that survive it; None without a feed."""
        numbers = self.track.numbers
        if numbers is None or self.before is None:
            return None
        return numbers.difference(self.before, self.after)

    @property
    def errors(self) -> tuple[str, ...]:
        """Errors of operators after the step that cannot be computed with the feed."""
        numbers = self.track.numbers
        return () if numbers is None else numbers.errors(self.after)

    def __str__(self) -> str:
        where = f" in {' / '.join(self.inside)}" if self.inside else ""
        head = f"step {self.number}: {self.name}{where}, {self.track.title}"
        return "\n".join(filter(None, [head, f"  {self.site}" if self.site else "", self.diff]))

    def __repr__(self) -> str:
        return f"<Step {self.number}: {self.name}, {self.operators} operators>"


class Record:
    """Programs, their steps, and what the steps share.

    Attributes
    ----------
    steps : list of Step
        In the order in which they were made.
    tracks : list of Track
        The programs that were rewritten.
    texts : Texts
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.tracks: list[Track] = []
        self.texts = Texts()
