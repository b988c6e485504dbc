"""Profiler: time of runs by operator, with the user's lines, as a table and as a Chrome trace.

While a profile is taken, executors run plans whose functions note the time after each step; other plans contain nothing
of it. Only steps of plans are measured: in the imperative mode not the operators, which are computed directly, but the
backward pass and the updates.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minigraph.errors import MinigraphError, ProgramError, Site
from minigraph.support.public import public

if TYPE_CHECKING:
    from minigraph.ir import Program
    from minigraph.lowering.steps import Step
    from minigraph.runtime.place import Place

__all__ = [
    "KINDS", "SORTED_KEYS", "TRACER_OPTIONS", "Profile", "Row", "is_active", "note", "profile", "profiler",
    "reset_profiler", "start_profiler", "stop_profiler",
]  # fmt: skip

KINDS = {"CPU": ("cpu",), "GPU": ("cuda",), "All": ("cpu", "cuda")}
SORTED_KEYS = ("calls", "total", "max", "min", "ave")
TRACER_OPTIONS = ("Default", "OpDetail", "AllOpDetail")

_active: list[Profile] = []


@public
@dataclass(frozen=True)
class Row:
    """Calls of the operators of one type that one line of the user's code made; times in seconds."""

    op_type: str
    site: Site | None
    calls: int
    total: float
    max: float
    min: float
    share: float
    """Part of the time of all operators, from 0 to 1."""

    @property
    def ave(self) -> float:
        return self.total / self.calls


@dataclass(frozen=True, eq=False)
class _Run:
    """One run of a plan: its steps, and the nanoseconds at which it began and each step ended."""

    program: Program
    steps: Sequence[Step]
    ticks: tuple[int, ...]
    thread: int


@public
@dataclass(eq=False)
class Profile:
    """Measured times: filled inside its context, readable at any time.

    Attributes
    ----------
    kinds : tuple of str
        The kinds of places whose runs are measured.
    """

    kinds: tuple[str, ...] = ("cpu", "cuda")
    _runs: list[_Run] = field(default_factory=list)

    def rows(self, sorted_key: str | None = "total") -> list[Row]:
        """The table: one row for each type of operator and line, by falling `sorted_key`; in program order if None."""
        _check("sorted_key", sorted_key, (None, *SORTED_KEYS))
        times: dict[tuple[str, Site | None], list[float]] = {}
        for run in self._runs:
            for step, start, end in zip(run.steps, run.ticks, run.ticks[1:], strict=False):
                times.setdefault((step.op.type, step.op.site), []).append((end - start) * 1e-9)
        whole = sum(map(sum, times.values())) or 1.0
        rows = [Row(*key, len(t), sum(t), max(t), min(t), sum(t) / whole) for key, t in times.items()]
        return rows if sorted_key is None else sorted(rows, key=lambda row: -getattr(row, sorted_key))

    def table(self, sorted_key: str | None = "total") -> str:
        """The rows as text, without the time to compile loops."""
        rows = self.rows(sorted_key)
        lines = [self._summary(rows)]
        heads = f"{'total [us]':>12}{'mean [us]':>11}{'min [us]':>11}{'max [us]':>11}"
        lines.append(f"{'operator':<28}{'calls':>8}{heads}{'share':>8}  line")
        for row in rows:
            figures = f"{row.total * 1e6:>12.1f}{row.ave * 1e6:>11.2f}{row.min * 1e6:>11.2f}{row.max * 1e6:>11.2f}"
            line = str(row.site) if row.site is not None else ""
            lines.append(f"{row.op_type:<28}{row.calls:>8}{figures}{row.share:>8.1%}  {line}".rstrip())
        return "\n".join(lines)

    __str__ = table

    def _repr_html_(self) -> str:
        from html import escape

        from minigraph.support.html import cell, frame, in_notebook, row

        rows = self.rows()
        heads = ["operator", "calls", "total [µs]", "mean [µs]", "min [µs]", "max [µs]", "share", "line"]
        body = "".join(
            row(
                each.op_type,
                [
                    *map(cell, [f"{each.calls:,}", f"{each.total * 1e6:,.1f}"]),
                    *(cell(f"{1e6 * time:,.2f}") for time in (each.ave, each.min, each.max)),
                    f'<td class="shade" style="--share: {each.share:.1%}">{each.share:.1%}</td>',
                    f'<td class="word">{escape("" if each.site is None else str(each.site))}</td>',
                ],
            )
            for each in rows
        )
        return in_notebook(self._summary(rows), frame("", heads, body))

    def _summary(self, rows: Sequence[Row]) -> str:
        return f"{len(self._runs)} runs, {1e3 * sum(row.total for row in rows):.3f} ms in operators"

    def reset(self) -> None:
        """Drop the times measured so far."""
        self._runs.clear()

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the runs as a JSON file that ``chrome://tracing`` and Perfetto open.

        References
        ----------
        Google, Trace Event Format: complete events, ``"ph": "X"``, times in microseconds.
        """
        import json

        from minigraph.support.atomic_files import as_path, write_files

        events = [event for run in self._runs for event in _events(run)]
        trace = json.JSONEncoder().iterencode({"traceEvents": events, "displayTimeUnit": "ms"})
        write_files({as_path(path, "path"): (part.encode() for part in trace)})


def _events(run: _Run) -> Iterator[dict[str, Any]]:
    def event(name: str, category: str, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
        times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
        return {"name": name, "cat": category, "ph": "X", "pid": os.getpid(), "tid": run.thread, **times, "args": args}

    yield event(f"program {run.program.serial}", "run", run.ticks[0], run.ticks[-1], {"operators": len(run.steps)})
    for step, start, end in zip(run.steps, run.ticks, run.ticks[1:], strict=False):
        args = {"outputs": step.op.output_arg_names, "created at": str(step.op.site)}
        yield event(step.op.type, "operator", start, end, args)


@contextmanager
def profile() -> Iterator[Profile]:
    """Measure the runs of executors inside.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     y = fluid.layers.relu(fluid.data("x", [None, 2]))
    ...     exe = fluid.Executor()
    ...     with fluid.profiler.profile() as p:
    ...         for _ in range(3):
    ...             _ = exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y])
    >>> [(row.op_type, row.calls, row.share) for row in p.rows()]
    [('relu', 3, 1.0)]
    """
    found = Profile()
    _active.append(found)
    try:
        yield found
    finally:
        _active.remove(found)


def is_active(place: Place) -> bool:
    """Whether runs on `place` are measured now."""
    return bool(_active) and any(place.kind in each.kinds for each in _active)


def note(program: Program, steps: Sequence[Step], ticks: Sequence[int], place: Place) -> None:
    """Record a run in every active profile of this kind of place."""
    run = _Run(program, steps, tuple(ticks), threading.get_ident())
    for each in _active:
        if place.kind in each.kinds:
            each._runs.append(run)


# Fluid's functions

_started: list[Profile] = []
"""The profile that `start_profiler` has begun, if there is one."""


@public
@contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str | os.PathLike[str] | None = "/tmp/profile",
    tracer_option: str = "Default",
) -> Iterator[None]:
    """Measure the runs inside and print the table at the end.

    Parameters
    ----------
    state : {'CPU', 'GPU', 'All'}
        Which places.
    sorted_key : {'calls', 'total', 'max', 'min', 'ave'}, optional
        What the rows are sorted by, largest first. Default: in the order of the program.
    profile_path : path, optional
        File that the Chrome trace is written to; None writes none.
    tracer_option : {'Default', 'OpDetail', 'AllOpDetail'}
        Checked and otherwise without effect: all operators are told apart anyway.

    Raises
    ------
    ProgramError
        If an argument is none of these, or a profile was started already.
    """
    _check("sorted_key", sorted_key, (None, *SORTED_KEYS))
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        try:
            stop_profiler(sorted_key, profile_path)
        except MinigraphError:  # the block ends, and what was measured is printed, even if the trace cannot be written
            stop_profiler(sorted_key, None)
            raise


@public
def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Begin to measure; arguments as for `profiler`."""
    _check("state", state, tuple(KINDS))
    _check("tracer_option", tracer_option, TRACER_OPTIONS)
    if _started:
        raise ProgramError("the profiler was started already", hint="Call stop_profiler first.")
    found = Profile(KINDS[state])
    _started.append(found)
    _active.append(found)


@public
def stop_profiler(sorted_key: str | None = None, profile_path: str | os.PathLike[str] | None = "/tmp/profile") -> None:
    """Print the times measured since `start_profiler`; arguments as for `profiler`.

    If the trace cannot be written, the profiler goes on: call it again with another path.
    """
    if not _started:
        raise ProgramError("the profiler was not started", hint="Call start_profiler first.")
    _check("sorted_key", sorted_key, (None, *SORTED_KEYS))
    [found] = _started
    if profile_path is not None:
        found.save_trace(profile_path)
    _started.remove(found)
    _active.remove(found)
    print(found.table(sorted_key))


def reset_profiler() -> None:
    """Drop the times measured since `start_profiler`."""
    for found in _started:
        found.reset()


def _check(what: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        listed = ", ".join(map(repr, choices))
        raise ProgramError(f"{what} must be one of {listed}, got {value!r:.60}", hint=f"Give {what}={choices[-1]!r}.")
