"""Record every step of the rewriting of programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Operator, Program
from minigraph.ir.default_programs import default_main_program, default_startup_program
from minigraph.ir.variable import name_of
from minigraph.passes import events
from minigraph.rewrite.tracing.numbers import Numbers
from minigraph.rewrite.tracing.page import in_a_cell, page
from minigraph.rewrite.tracing.snapshots import Snapshot
from minigraph.rewrite.tracing.steps import Record, Step, Track
from minigraph.runtime.scope import Scope, global_scope
from minigraph.support.atomic_files import as_path, replacing
from minigraph.support.public import public
from minigraph.support.undo import JOURNAL


@dataclass
class _Frame:
    """A rewrite that has begun and not ended, or the firing of a rule."""

    rewrite: Any
    track: Track
    steps: list[Step] = field(default_factory=list)
    """Steps that were recorded inside of it."""
    matched: Sequence[Operator] = ()
    """The operators that a rule has matched."""
    keeps_journal: bool = False
    """Whether the trace keeps an undo journal for the time of this rewrite, to see what it changes."""

    def begins(self, rewrite: Any) -> bool:
        return self.rewrite is rewrite and not self.matched


class Trace(Record, AbstractContextManager["Trace"], events.Observer):
    """Steps of rewriting, which are recorded inside the ``with`` statement.

    Attributes
    ----------
    steps : list of Step
        In the order in which they were made; ``trace[i]`` is ``trace.steps[i]``.
    tracks : list of Track
        The programs that were rewritten.
    """

    def __init__(self, programs: Sequence[Program], feed: Mapping[str, Any] | None, scope: Scope | None) -> None:
        super().__init__()
        self._numbers = None if feed is None else Numbers(feed, scope or global_scope())
        self._programs = programs
        self._by_serial: dict[int, Track] = {}
        self._frames: list[_Frame] = []
        self._observing: AbstractContextManager[None] = nullcontext()
        self._thread = 0
        self._clock = 0.0
        """Time of the latest event."""
        self._elapsed = 0.0
        """Seconds between the latest event and the one before, without those of the recording."""

    # Recording

    def __enter__(self) -> Trace:
        self._thread = get_ident()
        self._clock = perf_counter()
        for program in self._programs:
            self._begin_track(program, None, "start")
        self._observing = events.observed_by(self)
        self._observing.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._observing.__exit__(*exception)
        self._leave(0)
        for track in self.tracks:
            self._look(track, carefully=True)

    def begin(self, rewrite: Any, program: Program) -> None:
        self._enter(program, rewrite)

    def fired(self, rule: Any, program: Program, matched: Sequence[Operator]) -> None:
        self._enter(program, rule, matched)

    def _enter(self, program: Program, rewrite: Any, matched: Sequence[Operator] = ()) -> None:
        """Ascribe changes to `rewrite` from now on."""
        track = self._track(program)
        if track is not None:
            self._look(track)
            if self._frames and self._frames[-1].matched:  # a firing ends where the next event comes
                self._leave(len(self._frames) - 1)
            keeps_journal = JOURNAL.get() is None
            if keeps_journal:
                JOURNAL.set([])
                track.mark()
            self._frames.append(_Frame(rewrite, track, [], matched, keeps_journal))
            self._clock = perf_counter()

    def end(self, rewrite: Any, program: Program, changed: bool | None) -> None:
        track = self._track(program)
        at = next((at for at, frame in reversed([*enumerate(self._frames)]) if frame.begins(rewrite)), None)
        if track is None or at is None:
            return
        self._look(track, carefully=changed is not False)
        if not self._frames[at].steps:
            self._record(track, self._frames[at], track.state)
        self._leave(at)
        self._clock = perf_counter()

    def _leave(self, at: int) -> None:
        """Drop the frames from `at` on."""
        if any(frame.keeps_journal for frame in self._frames[at:]):
            JOURNAL.set(None)
        del self._frames[at:]

    def copied(self, source: Program, copy: Program, why: str) -> None:
        track = self._track(source)
        if track is not None:
            self._look(track)
            self._begin_track(copy, track, why)
            self._clock = perf_counter()

    def runs(self, program: Program, feed: Mapping[str, Any], scope: Scope) -> None:
        track = self._track(program)
        if track is not None:
            track.runs(feed, scope)

    def _track(self, program: Program) -> Track | None:
        """The track of a program; None if the program or what happens in this thread is not traced."""
        if self._thread != get_ident() or program.computes_at_once:
            return None
        track = self._by_serial.get(program.serial)
        if track is None:
            sources = [self._by_serial[each] for each in program.clone_of if each in self._by_serial]
            if sources:
                return self._begin_track(program, sources[-1], "clone")
            if not self._programs:
                return self._begin_track(program, None, "start")
        return track

    def _begin_track(self, program: Program, source: Track | None, why: str) -> Track:
        title = _title(program, source, why, len(self.tracks))
        same = sum(track.title.startswith(title) for track in self.tracks)
        track = Track(program, f"{title} ({same + 1})" if same else title, source, self._numbers)
        self._by_serial[program.serial] = track
        self.tracks.append(track)
        # A clone is the program that it is of, a part of it is not.
        self._record(track, _Frame(why, track), None if source is None or why == "clone" else source.state)
        return track

    def _look(self, track: Track, carefully: bool = False) -> None:
        """Record what has changed since the latest event, which is the work of what is active."""
        before, self._elapsed = track.state, perf_counter() - self._clock
        if track.look(carefully) is not before:
            active = [frame for frame in self._frames if frame.track is track]
            self._record(track, active[-1] if active else _Frame("edits", track), before)

    def _record(self, track: Track, frame: _Frame, before: Snapshot | None) -> None:
        """Record a step of the rewrite of `frame`, which has turned `before` into the state now."""
        seconds = 0.0 if isinstance(frame.rewrite, str) else self._elapsed
        around = [each for each in self._frames if each.track is track]
        inside = [each.rewrite for each in around if each.rewrite is not frame.rewrite]
        step = Step(self, track, frame.rewrite, inside, before, seconds, frame.matched)
        self.steps.append(step)
        track.steps.append(step)
        for each in around:
            each.steps.append(step)

    # Questions

    def __len__(self) -> int:
        return len(self.steps)

    @public
    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    @public
    def first_wrong(self, fetch: Any = None, tolerance: float = 1e-4) -> Step | None:
        """Find the step after which a fetched value differs from that of the program as it was.

        The steps of each program are bisected: for `n` steps about ``log2(n)`` states are computed.

        Parameters
        ----------
        fetch : Variable or str, or a list of them, optional
            Default: all that outlives a run, the persistable variables.
        tolerance : float
            Largest difference that is right, as a share of the largest element of the value: some passes change the
            rounding.

        Returns
        -------
        Step or None
            None if every program computes the right values in the end.

        Raises
        ------
        ProgramError
            If the trace was made without a feed, or no program computes what is fetched.
        """
        if all(track.numbers is None for track in self.tracks):
            raise ProgramError(
                "a trace without a feed has no numbers", hint="Trace with rewrite.trace(program, feed=batch)."
            )
        if fetch is None:
            names = None
        else:
            names = [name_of(each) for each in (fetch if isinstance(fetch, list | tuple) else [fetch])]
        is_known = False
        for track in self.tracks:
            numbers = track.numbers
            if numbers is None:
                continue
            states = list(dict.fromkeys(track.states()))
            wanted = numbers.kept(states[-1]) if names is None else names
            first = next((at for at, state in enumerate(states) if numbers.computes(state, wanted)), None)
            if first is None:
                continue
            is_known = True
            wrong = numbers.first_wrong(states[first:], wanted, tolerance)
            if wrong is not None:
                return next(step for step in track.steps if step.after is states[first + wrong])
        if not is_known:
            raise ProgramError(
                f"no program of the trace computes {', '.join(names or ['what is kept'])} from this feed",
                hint="Feed all that it depends on, and fetch a variable of the traced program.",
            )
        return None

    @public
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the steps as one HTML page, which needs no other file and no network."""
        with replacing(as_path(path, "path")) as partial:
            partial.write_text(page(self), encoding="utf-8")

    _repr_html_ = in_a_cell

    def counted(self) -> str:
        """The number of steps and programs, in words."""
        programs = "program" if len(self.tracks) == 1 else "programs"
        return f"{len(self.steps)} steps on {len(self.tracks)} {programs}"

    def __str__(self) -> str:
        """One line for each step that changed something."""
        lines = [self.counted()]
        for track in self.tracks:
            lines.append(f"{track.title}: {track.steps[0].operators} to {track.steps[-1].operators} operators")
            lines += [f"  {_summary(step)}" for step in track.steps if step.changed]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Trace of {self.counted()}>"


def _summary(step: Step) -> str:
    """A line about a step."""
    marks = [line[:1] for line in step.diff.split("\n")]
    parts = [
        f"{step.number:>4}  {' / '.join((*step.inside, step.name))}",
        f"+{marks.count('+')} -{marks.count('-')} lines, {step.operators} operators, {step.seconds * 1000:.1f} ms",
    ]
    if step.difference is not None and step.difference.largest:
        parts.append(f"largest difference {step.difference}")
    return ": ".join(parts[:1]) + "  " + "; ".join(parts[1:])


def _title(program: Program, source: Track | None, why: str, number: int) -> str:
    if source is not None and why == "clone":
        return f"clone of {source.title}"
    if source is not None:
        return f"private copy of {source.title}, fetching {', '.join(program.roots or ()) or 'nothing'}"
    if program is default_main_program():
        return "main program"
    ops = program.global_block().ops
    is_startup = program is default_startup_program() or (len(ops) and not any(op.inputs for op in ops))
    return "startup program" if is_startup else f"program {number}"


@public
def trace(*programs: Program, feed: Mapping[str, Any] | None = None, scope: Scope | None = None) -> Trace:
    """Record each step of what rewrites programs inside a ``with`` statement.

    Steps are what passes, rules, `append_backward`, clips, decay and optimizers do, and what executors do to their
    private copies before the first run.

    Parameters
    ----------
    *programs : Program
        Record what happens to these, to their clones, and to the copies that executors make of them. Default: to all
        programs that are rewritten.
    feed : dict, optional
        Variable name to array: the steps then know which values they change. Nothing is computed before somebody asks.
        Default: what a program is fed in its first run inside.
    scope : Scope, optional
        Has the values of persistable variables. Default: the global scope.

    Returns
    -------
    Trace
        Its `steps`, `first_wrong`, `save`; prints as text.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers, rewrite
    >>> from minigraph.passes import CleanUp, RemoveDeadOps
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main), fluid.unique_name.guard():
    ...     y = layers.scale(layers.assign(fluid.data("x", [None, 4])), 2.0)
    >>> main.roots = (y.name,)
    >>> with rewrite.trace(main) as t:
    ...     changed = CleanUp().apply(main), RemoveDeadOps().apply(main)
    >>> [(step.name, step.operators) for step in t.steps]
    [('start', 2), ('CleanUp', 2), ('RemoveDeadOps', 1)]
    >>> print(t[1].diff)
      block 0
        data x: float32[-1, 4] {need_check_feed=True}
        assign_0.tmp_0: float32[-1, 4] = assign(X=x)
    -   scale_0.tmp_0: float32[-1, 4] = scale(X=assign_0.tmp_0) {scale=2.0}
    +   scale_0.tmp_0: float32[-1, 4] = scale(X=x) {scale=2.0}
    """
    for each in programs:
        if not isinstance(each, Program):
            raise WrongTypeError(
                f"a trace is of Programs, got {each!r:.60}", hint="Name the feed: rewrite.trace(program, feed=batch)."
            )
    return Trace(programs, feed, scope)
