"""Write instructions as one Python function of straight-line kernel calls.

The first run of a plan walks through the table of instructions; the function is written and compiled when the plan is
run again, or when its source is asked for. The source is registered with `linecache`, so that tracebacks and debuggers
show it. Its lines map back to steps, and steps to operators and to the user's lines.
"""

from __future__ import annotations

import itertools
import linecache
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from minigraph.ir.type_inference import blame
from minigraph.lowering.buffer_pool import BufferPool
from minigraph.lowering.functions import Function
from minigraph.lowering.instructions import (
    DROPPED,
    NOTHING,
    RNG,
    XP,
    Instruction,
    Instructions,
    Operand,
    assemble,
)
from minigraph.lowering.memory_plan import BufferPlan, Layout, plan_buffers
from minigraph.lowering.output_buffers import OutputPlan
from minigraph.lowering.resized import Resized, Resizing
from minigraph.lowering.steps import Step, Steps
from minigraph.runtime.place import Place
from minigraph.support.gc_pause import without_collector
from minigraph.support.interrupts import Saved, hold, is_interrupt
from minigraph.support.stack_room import page_faults, with_room
from minigraph.types import TensorType

if TYPE_CHECKING:  # imported where segments are formed, which only executors that compile do
    from minigraph.lowering.native_segments import Segment

_NUMBERS = itertools.count()

RUNS_BEFORE_NATIVE = 32
"""Number of a plan's run before which segments become tables of C calls: that takes the time of some runs."""

RUNS_PER_LOOK = 8
"""Runs of a plan of which one looks whether its calls have room on the stack."""

MANY_FAULTS = 6
"""Minimum new pages of a run for which its function gets room, which takes two or three pages."""


class Compiled:
    """Runs steps: walks through their instructions once, then calls the function written from them.

    Attributes
    ----------
    instructions : Instructions
    state : list of Value or FlatView
        State that a run takes, in order.
    replaces : list of str
        Names of the new state that a run returns.
    is_native : bool
        Whether runs of small steps become tables of C calls when the plan is run often.
    ticks : list of int or None
        Of a timed plan: nanoseconds at which the latest run began and each of its steps ended.
    bodies : list of (Step, Compiled)
        Compiled sub-blocks, each with the step that calls it.
    """

    def __init__(
        self,
        steps: Steps,
        buffers: BufferPlan,
        place: Place,
        timed: bool,
        jit: bool,
        blocks: BufferPool,
        like: tuple[Origin, Resized] | None = None,
    ) -> None:
        self.bodies: list[tuple[Step, Compiled]] = []
        earlier: tuple[Instructions, OutputPlan, Resized] | None = None
        if like is not None:
            origin, resized = like
            earlier = origin.instructions, origin.buffers.outputs, resized
            self.bodies += origin.bodies  # whose sizes are the same
        self._assembled: Instructions = assemble(steps, buffers, place, jit, self._calling(place, jit, blocks), earlier)
        self.instructions = self._assembled
        if buffers.flat.over and place.kind == "cpu":
            from minigraph.lowering.measured_sums import measure_sums  # late: most programs are those of one rank

            self.instructions = measure_sums(self._assembled, buffers.flat.over, jit)
        self.state = self.instructions.state_values
        self.replaces = list(steps.replaced_state)
        self.ticks: list[int] | None = [] if timed else None
        self._place = place
        self._buffer_plan: BufferPlan = buffers
        self._runs = 0
        self._faults: int | None = None
        """New pages of a run without room on the stack, if there is room now."""
        self._usual_faults = 0
        """New pages of a run with room."""
        self._took_many = False
        """Whether the last look found many new pages."""
        self.is_native = jit and place.kind == "cpu" and not timed

    def origin(self, types: Sequence[TensorType]) -> Origin:
        """Everything that plans for other sizes need; `types` depend on the sizes."""
        return Origin(types, self._buffer_plan, self._assembled, self.bodies)

    def hand_out(self, fetched: Sequence[Any], new_state: Mapping[str, Any]) -> None:
        """Check what a run gives to the caller and to the scope; only checked plans do."""

    def run(
        self, feeds: Iterable[Any], state: Iterable[Any], rng: Any, buffers: Iterable[Any], saved: Saved
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the fetches and the new state; the first run compiles nothing.

        Before state is written over, it goes to `saved`, or signals wait until the caller's `release`.
        """
        # A program that is run once, such as a startup program, is never compiled: that takes longer than a run.
        self._runs += 1
        if self._runs == RUNS_BEFORE_NATIVE and self.is_native:
            self.make_native()
        if self._runs > 1:
            run = self.function if self._runs % RUNS_PER_LOOK else self._run_and_look
            fetched: tuple[Sequence[Any], Sequence[Any]] = run(feeds, state, rng, buffers, saved)
            return fetched
        return self.instructions.run(self._place, feeds, state, rng, buffers, saved, self.ticks)

    def _run_and_look(self, *arguments: Any) -> Any:
        """Run; give the function room on the stack if it took new pages twice, and take that away if it does not help.

        Once, it may be the memory of a table that is used for the first time.
        """
        before = page_faults()
        fetched = self.function(*arguments)
        found = page_faults() - before
        if self._faults is None:
            took_many, self._took_many = self._took_many, found >= MANY_FAULTS + 2 * self._usual_faults
            if took_many and self._took_many:
                self._faults = found
                self.__dict__["function"] = with_room(self._written.function)
        elif found > self._faults // 2:  # of arrays that each run allocates
            self._usual_faults, self._faults, self._took_many = max(found, self._usual_faults), None, False
            self.__dict__["function"] = self._written.function
        return fetched

    def make_native(self) -> None:
        """Let runs of steps be tables of C calls from now on, see `minigraph.lowering.native_segments`."""
        from minigraph.lowering.native_segments import form_segments

        segments = form_segments(self.instructions, self._buffer_plan)
        if segments:
            self.__dict__["_written"] = written = _Written(self.instructions, self._place, None, segments)
            self.__dict__["function"] = written.function
            self._faults = None

    @cached_property
    def _written(self) -> _Written:
        return _Written(self.instructions, self._place, self.ticks)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The generated function ``(feeds, state, rng, buffers, saved) -> (fetches, new state)``."""
        return self._written.function

    @property
    def source(self) -> str:
        return self._written.source

    @property
    def filename(self) -> str:
        """Name of the source in tracebacks."""
        return self._written.filename

    @property
    def step_of_line(self) -> dict[int, Step]:
        """Steps by line number of the source, as linecache counts."""
        return self._written.step_of_line

    def listing(self) -> str:
        """The source, followed by the sources of sub-blocks."""
        parts = [
            f"# block {step.call.body.idx}, of {step.op.type}\n{body.listing()}"
            for step, body in self.bodies
            if step.call is not None
        ]
        return "\n".join([self.source, *parts])

    def failing_step(self, traceback: TracebackType | None) -> Step | None:
        """The step at which an exception passed through a run."""
        # Not through the property, which would compile a plan whose first run has failed.
        written: _Written | None = self.__dict__.get("_written")
        while traceback is not None:
            frame = traceback.tb_frame
            if written is not None and frame.f_code.co_filename == written.filename:
                return written.step_of_line.get(traceback.tb_lineno)
            step = self.instructions.step_in(frame)
            if step is not None:
                return step
            traceback = traceback.tb_next
        return None

    def _calling(self, place: Place, jit: bool, blocks: BufferPool) -> Callable[[Step], Callable[..., Any]]:
        """Return the maker of functions for operators of control flow, whose sub-blocks run like plans."""
        bodies = self.bodies

        def calling(step: Step) -> Callable[..., Any]:
            assert step.body is not None
            buffers = plan_buffers(step.body)
            body = type(self)(step.body, buffers, place, False, jit, blocks)
            bodies.append((step, body))
            return bind_body(step, body, buffers.layout, blocks)

        return calling


@dataclass(frozen=True, eq=False)
class Origin:
    """The parts that plans for other sizes take over from the plan for the first sizes.

    They do not keep the plan itself, whose tables of C calls may be large.
    """

    types: Sequence[TensorType]
    """Types that depend on the sizes."""
    buffers: BufferPlan
    instructions: Instructions
    bodies: Sequence[tuple[Step, Compiled]]

    @cached_property
    def resizing(self) -> Resizing:
        return Resizing(self.instructions.steps, self.types)


def generate(
    steps: Steps,
    buffers: BufferPlan,
    place: Place,
    timed: bool = False,
    jit: bool = False,
    blocks: BufferPool | None = None,
    kind: type[Compiled] = Compiled,
    like: tuple[Origin, Resized] | None = None,
) -> Compiled:
    """Compile `steps` for `place`, with values in the places of `buffers` and values of sub-blocks in some of `blocks`.

    If `timed`, a run notes when each step ends. With `jit`, steps call loops that numba compiles, if there are any.
    `like` is of the steps that these are resized from, with the same flat buffers.
    """
    return kind(steps, buffers, place, timed, jit, blocks or BufferPool(place), like)


_CODE: WeakValueDictionary[str, CodeType] = WeakValueDictionary()
"""Code by source: plans of one program that differ in batch size mostly have the same."""


class _Written:
    """Instructions as source and as the function that it defines."""

    filename = ""

    @without_collector
    def __init__(
        self, instructions: Instructions, place: Place, ticks: list[int] | None, segments: Sequence[Segment] = ()
    ) -> None:
        self.filename = f"<minigraph plan {next(_NUMBERS)}>"
        writer = _Writer(instructions, place, ticks, segments)
        self.source = writer.source()
        self.step_of_line = writer.step_of_line
        self._code = _CODE.get(self.source) or compile(self.source, "<minigraph plan>", "exec")
        _CODE[self.source] = self._code
        exec(self._code, writer.namespace)
        self.function: FunctionType = writer.namespace["run"]
        self.function.__code__ = self.function.__code__.replace(co_filename=self.filename)
        # None in the place of a time keeps `linecache` from looking for a file.
        linecache.cache[self.filename] = (
            len(self.source), None, self.source.splitlines(keepends=True), self.filename,
        )  # fmt: skip

    def __del__(self, cache: dict[str, Any] = linecache.cache) -> None:
        # A default value, because modules have lost their names when the last plans go at the end of a process.
        cache.pop(self.filename, None)


class _Writer:
    def __init__(
        self, instructions: Instructions, place: Place, ticks: list[int] | None, segments: Sequence[Segment]
    ) -> None:
        self.instructions = instructions
        self._segments = segments
        self._inner: set[int] = set()
        """Registers that may have no value, because a segment keeps it to itself."""
        self.namespace: dict[str, Any] = {"xp": place.xp, "hold": hold, "empty": np.empty}
        self.step_of_line: dict[int, Step] = {}
        self.timed = ticks is not None
        if ticks is not None:
            self.namespace.update(ticks=ticks, now=place.now)
        taken = ("feeds", "state", "rng", "buffers", "saved", "xp", "ticks", "now", "hold", "empty", "_")
        self._taken = dict.fromkeys(taken, 1)
        self._buffers = [self._unused(f"buffer_{i}") for i in range(instructions.buffers)]
        # An underscore in front keeps clear of kernels, keywords and builtins.
        locals_ = [self._unused("_" + re.sub(r"\W", "_", value.name)) for value in instructions.values]
        fixed = {NOTHING: "None", XP: "xp", RNG: "rng", DROPPED: "_"}
        self._names = [*(fixed[i] for i in range(len(fixed))), *locals_, *reversed(self._buffers)]
        """Names in the source, by register."""
        self._functions: dict[int, str] = {}
        self._constants: dict[int, list[str]] = {}

    def source(self) -> str:
        rows = self.instructions
        lines = ["def run(feeds, state, rng, buffers, saved):"]
        lines += _unpack([self._names[i] for i in rows.feeds], "feeds")
        lines += _unpack([self._names[i] for i in rows.state], "state")
        lines += _unpack(self._buffers, "buffers")
        if self.timed:
            lines.append("    ticks[:] = [now()]")
        number = 0
        for segment in self._segments:
            self._write_rows(rows.rows[number : segment.start], lines)
            self._write_segment(segment, lines)
            number = segment.end
        self._write_rows(rows.rows[number:], lines)
        returned = ["".join(f"{self._names[i]}, " for i in which) for which in (rows.fetches, rows.new_state)]
        lines.append(f"    return ({returned[0]}), ({returned[1]})")
        return "\n".join(lines) + "\n"

    def _write_rows(self, rows: Sequence[Instruction], lines: list[str]) -> None:
        for row in rows:
            if row is self.instructions.first_in_place:
                self._write_keeping(lines)
            self._write(row, lines)
            self._write_release(row.released, lines)
            if self.timed:
                lines.append("    ticks.append(now())")

    def _write_keeping(self, lines: list[str]) -> None:
        """State that is about to be written over is copied, or signals wait."""
        copies = [f"({name}, {name}.copy())" for name in (self._names[i] for i in self.instructions.short_state)]
        lines.append(f"    saved += [{', '.join(copies)}]" if copies else "    hold()")

    def _write_segment(self, segment: Segment, lines: list[str]) -> None:
        """The call of a segment, and the ordinary calls for when it refuses."""
        rows, names = self.instructions.rows[segment.start : segment.end], self._names
        if any(row is self.instructions.first_in_place for row in rows):
            self._write_keeping(lines)
        for register, (shape, dtype, is_transposed) in segment.new.items():
            kind, order = f"dtype_{dtype.name}", ', "F"' if is_transposed else ""
            self.namespace[kind] = dtype
            lines.append(f"    {names[register]} = empty({shape}, {kind}{order})")
        lines += [f"    {names[register]} = {names[other]}" for register, other in segment.same.items()]
        name = self._unused("native")
        self.namespace[name] = segment.call
        lines.append(f"    if {name}(({''.join(f'{names[register]}, ' for register in segment.arrays)})):")
        for row in rows:
            self._write(row, lines, "        ")
        if not lines[-1].startswith("        "):
            lines.append("        pass")
        self._inner |= segment.inner
        self._write_release([register for row in rows for register in row.released], lines)

    def _write(self, row: Instruction, lines: list[str], indent: str = "    ") -> None:
        names = self._names
        for buffer, value in row.copies:
            lines.append(f"{indent}{names[buffer]}[...] = {names[value]}")
            self.step_of_line[len(lines)] = row.step
        if row.function is not None:
            lines.append(f"{indent}{self._call(row, row.function)}")
            self.step_of_line[len(lines)] = row.step

    def _write_release(self, registers: Sequence[int], lines: list[str]) -> None:
        there = [self._names[register] for register in registers if register not in self._inner]
        if there:
            lines.append(f"    del {', '.join(there)}")

    def _call(self, row: Instruction, function: Function) -> str:
        words = [*map(self._text, row.arguments), *self._literals(function.constants)]
        words += [f"{word}={self._text(operand)}" for word, operand in (row.keywords or {}).items()]
        call = f"{self._name(function)}({', '.join(words)})"
        if row.target is None:
            return call
        target = self._text(row.target)
        return f"{target[1:-1] if isinstance(row.target, tuple) else target} = {call}"

    def _text(self, operand: Operand) -> str:
        if isinstance(operand, int):
            return self._names[operand]
        text = ", ".join(map(self._text, operand))
        return f"[{text}]" if isinstance(operand, list) else f"({text})"

    def _name(self, function: Function) -> str:
        # An `id` is unique here, because the instructions keep every function alive.
        name = self._functions.get(id(function.call))
        if name is None:
            name = self._functions[id(function.call)] = self._unused(function.name)
            self.namespace[name] = function.call
        return name

    def _literals(self, constants: dict[str, Any]) -> list[str]:
        found = self._constants.get(id(constants))
        if found is None:
            found = self._constants[id(constants)] = [f"{word}={_literal(each)}" for word, each in constants.items()]
        return found

    def _unused(self, name: str) -> str:
        while name in self._taken:
            self._taken[name] += 1
            name = f"{name}__{self._taken[name]}"
        self._taken[name] = 1
        return name


def _literal(value: Any) -> str:
    # `repr` gives inf and nan, which are no literals.
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _unpack(names: Sequence[str], source: str) -> list[str]:
    return [f"    {''.join(f'{name}, ' for name in names)} = {source}"] if names else []


def bind_body(step: Step, compiled: Compiled, layout: Layout, blocks: BufferPool) -> Callable[..., Any]:
    """Make the kernel of an operator of control flow from its compiled sub-block, whose runs share one memory block."""
    call, steps = step.call, step.body
    assert call is not None and steps is not None
    shared = fetches_to_copy(steps, call.private)
    is_shared = any(shared)

    def kernel(xp: Any, values: Any, *, rng: Any) -> list[Any]:
        with blocks.lent(layout) as arrays:

            def body(given: Sequence[Any]) -> Sequence[Any]:
                try:
                    taken, _ = compiled.run(given, (), rng, arrays, [])
                except Exception as error:
                    if is_interrupt(error):
                        raise
                    raise _blame(compiled, error) from error
                if not is_shared:
                    return taken
                return [value.copy() if copy else value for value, copy in zip(taken, shared, strict=True)]

            return _distinct(call.run(body, values, xp))

    return kernel


def fetches_to_copy(steps: Steps, private: Collection[str]) -> list[bool]:
    """Tell for each fetch whether it may share memory with a feed that others write to; see `BlockCall.private`."""
    shared = {value for value in steps.feeds if value.name not in private}
    return [steps.storage.root(value) in shared for value in steps.fetches]


def _distinct(values: list[Any]) -> list[Any]:
    """Copy each array that shares memory with an earlier one: the plan takes the results for separate values."""
    seen: set[int] = set()
    for i, value in enumerate(values):
        if hasattr(value, "base"):
            root = id(value if value.base is None else value.base)
            if root in seen:
                values[i] = value.copy()
            seen.add(root)
    return values


def _blame(compiled: Compiled, error: Exception) -> Exception:
    """Make the error name the operator of the sub-block that failed."""
    step = compiled.failing_step(error.__traceback__)
    return error if step is None else blame(error, step.op)
