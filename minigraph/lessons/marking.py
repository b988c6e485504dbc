"""What a lesson finds in an answer, and the laws that every pass is held to."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from time import perf_counter
from typing import Any, ClassVar, TypeVar

import numpy as np

from minigraph.errors import LessonError, MinigraphError
from minigraph.executor import Executor
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import Operator, Program, Variable
from minigraph.ir.verifier import verify
from minigraph.passes import Pass, Pipeline
from minigraph.rewrite import check
from minigraph.runtime.place import CPUPlace
from minigraph.runtime.scope import Scope

T = TypeVar("T")

Call = Callable[..., Any]
"""`minigraph.lessons.answer.Answer.call`, usually of another process."""

TOLERANCE = 1e-5
"""Maximum relative difference of results where a pass may change the rounding."""


PROGRAMS = 100
"""Number of random programs that a pass is tried on."""

ROUNDS = 30
"""Number of runs of which the shortest is shown."""


@dataclass(frozen=True)
class Finding:
    """One thing that the grader looked at.

    Attributes
    ----------
    title : str
        What should hold.
    message : str
        Why it does not, and what to do; empty if it holds.
    points, of : float
        Points earned and possible. 0 possible points mark a law: if one is broken the grade is 0.
    """

    title: str
    message: str = ""
    points: float = 0.0
    of: float = 0.0

    @property
    def is_broken_law(self) -> bool:
        return not self.of and bool(self.message)


def task(title: str, points: float, message: str) -> Finding:
    """A finding worth `points`, all of them if there is no message."""
    return Finding(title, message, 0.0 if message else points, points)


def asked(questions: Mapping[str, Callable[[T], str]], answer: T) -> Iterator[Finding]:
    """Ask one question after the other, each worth a point: a function that says what is wrong."""
    for title, question in questions.items():
        try:
            message = question(answer)
        except MinigraphError as error:
            message = str(error)
        yield task(title, 1, message)


@dataclass(frozen=True)
class StudentPass(Pass):
    """The pass `pass_name` of a student's file: programs go there and come back as text."""

    call: Call = field(repr=False)
    pass_name: str
    reference: Pass | None = None
    """The reference solution, whose code tells `check` which operators the random programs should have."""

    @property
    def name(self) -> str:
        return self.pass_name

    def apply(self, program: Program) -> bool:
        text = str(program)
        reply = self.call("rewrite", name=self.pass_name, program=text, roots=program.roots)
        if reply["program"] != text:
            _become(program, Program.parse(reply["program"]))
        return bool(reply["changed"])


@dataclass(frozen=True)
class RoundingStudentPass(StudentPass):
    """A student's pass that may change the rounding."""

    changes_rounding: ClassVar[bool] = True


def sound(rewrite: Pass, program: Program) -> Program:
    """Return a copy of the program to which the pass was applied.

    Raises
    ------
    VerifyError
        If it is not sound.
    """
    rewritten = program.clone()
    rewrite.apply(rewritten)
    verify(rewritten)
    return rewritten


def again(rewrite: Pass, program: Program) -> str:
    """Say what is wrong with applying a pass to a program that it has left; empty if nothing."""
    text = str(program)
    changed = rewrite.apply(program)
    if str(program) != text:
        return "Applied a second time, the pass changes the program again."
    return "The second time nothing changes, but apply returns True." if changed else ""


def updates(program: Program) -> list[Operator]:
    """Return the operators that change parameters."""
    return [op for op in program.global_block().ops if "Param" in op.inputs and "Grad" in op.inputs]


def inserted(before: Program, after: Program) -> list[Operator]:
    """Return the operators of `after` that `before` has not, without the updates."""
    known = {str(op) for op in before.global_block().ops}
    return [op for op in after.global_block().ops if str(op) not in known and op not in updates(after)]


def _become(program: Program, other: Program) -> None:
    """Give `program` the blocks of `other`."""
    for block in other.blocks:
        block.program = program
    program.blocks, program.gradient_blocks = other.blocks, other.gradient_blocks
    program.version += 1


@dataclass(frozen=True)
class Case:
    """A program whose results a pass must keep.

    Attributes
    ----------
    text : str
        The program.
    roots : tuple of str
        What is fetched.
    hint : str
        What to say if the pass breaks the program.
    """

    title: str
    text: str
    roots: tuple[str, ...]
    hint: str

    def program(self) -> Program:
        return parsed(self.text, self.roots)

    def shown(self) -> str:
        """Return the program with a heading."""
        return f"The program, of which a run fetches {', '.join(self.roots) or 'nothing'}:\n{self.program()}"


def parsed(text: str, roots: Iterable[str] = ()) -> Program:
    """The program of an indented text, of which `roots` are fetched."""
    lines = [line for line in text.splitlines() if line.strip()]
    margin = len(lines[0]) - len(lines[0].lstrip())
    program = Program.parse("\n".join(line[margin:] for line in lines))
    program.roots = tuple(roots)
    return program


def saved(
    rewrite: Pass, reference: Pass, program: Program, then: Callable[[Program], Program] = Program.clone
) -> Iterator[Finding | Timing]:
    """Compare what a pass and the reference save on a program, figure by figure, if the pass keeps its results.

    The figures are those of what `then` makes of a program afterwards. Last comes what to measure.
    """
    try:
        message = broken(rewrite, program)
    except LessonError as error:
        message = str(error)
    yield Finding("the program whose savings count keeps its results", message)
    if message:
        return
    programs = [then(each) for each in (program.clone(), sound(rewrite, program), sound(reference, program))]
    before, after, best = map(figures, programs)
    for what, most in before.items():
        if best[what] == most:
            continue
        share = min(max((most - after[what]) / (most - best[what]), 0.0), 1.0)
        title = f"{what}: {most:,} before, {after[what]:,} now, {best[what]:,} by the reference"
        message = "" if share == 1 else "Nothing is saved." if share == 0 else "The reference saves more."
        yield Finding(title, message, share, 1.0)
    yield Timing(programs)


def figures(program: Program) -> dict[str, int]:
    """Count operators of a program's global block, the bytes that they read and write, and the arithmetic of a run."""
    block = program.global_block()
    moved = [name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)]
    explained = Executor(passes=Pipeline(()), jit=False).explain(program, feed_of(program), program.roots)
    return {
        "operators": len(block.ops),
        "bytes": sum(_size(block.vars[name]) for name in moved if name in block.vars),
        "flops": explained.flops,
    }


@dataclass(frozen=True)
class Timing:
    """Programs to measure: as given, by the student's pass, by the reference. Times are shown and never count.

    Attributes
    ----------
    passes : tuple of Pass
        What the executor applies besides.
    peer : callable, optional
        Returns a line on what another system needs; empty if it is not installed.
    """

    programs: Sequence[Program]
    passes: tuple[Pass, ...] = ()
    peer: Callable[[], str] | None = None

    def text(self) -> str:
        """Measure, by turns, and say the shortest times."""
        runs = [_run_of(each, Pipeline(self.passes)) for each in self.programs]
        best = [inf] * len(runs)
        for _ in range(ROUNDS):
            for at, run in enumerate(runs):
                started = perf_counter()
                run()
                best[at] = min(best[at], perf_counter() - started)
        before, after, reference = (f"{1e6 * each:,.0f} us" for each in best)
        line = f"Time of a run, which does not count: {before} before, {after} now, {reference} by the reference."
        return "\n".join(filter(None, [line, self.peer() if self.peer is not None else ""]))


def _run_of(program: Program, passes: Pipeline) -> Callable[[], Any]:
    executor, scope, feed = Executor(passes=passes), scope_of(program), feed_of(program)
    return lambda: executor.run(program, feed, list(program.roots or ()), scope=scope)


def _size(var: Variable) -> int:
    if var.tensor_type is None:
        return 0
    return prod(abs(dim) for dim in var.tensor_type.shape) * var.dtype.numpy.itemsize


def kept_cases(cases: Iterable[Case], rewrite: Pass) -> Iterator[Finding]:
    """Look at each case: the pass keeps the program sound, its results, and tells the truth about changes.

    A pass that breaks none is tried on random programs, too.
    """
    breaks_any = False
    for case in cases:
        try:
            message = broken(rewrite, case.program())
        except LessonError as error:
            message = str(error)
        breaks_any = breaks_any or bool(message)
        yield Finding(case.title, f"{message}\n{case.hint}\n{case.shown()}" if message else "")
    if not breaks_any:
        found = check(rewrite, PROGRAMS)
        message = "" if found is None else str(found)
        if found is not None and found.law == "raises":  # the line is that of the student's error, not of this module
            message = message.rpartition("\n  at ")[0]
        yield Finding(f"{PROGRAMS} random programs keep their results", message)


def broken(rewrite: Pass, program: Program) -> str:
    """Say which law a pass breaks on this program; empty if none."""
    rewritten, before = program.clone(), str(program)
    changed = rewrite.apply(rewritten)
    if changed != (str(rewritten) != before):
        return f"apply returned {changed}, although the program was {'not ' if changed else ''}changed."
    try:
        verify(rewritten)
        difference = first_difference(outcome(program), outcome(rewritten), rewrite.changes_rounding)
    except MinigraphError as error:
        return f"The program that the pass leaves is broken: {error.message}."
    if difference:
        return difference
    return again(rewrite, rewritten)


def outcome(program: Program, feed: Mapping[str, Any] | None = None, fetch: Iterable[str] = ()) -> dict[str, Any]:
    """Run a program once with numbers that depend on the names only; return fetched values and the new state."""
    scope, block, names = scope_of(program), program.global_block(), list(fetch or program.roots or ())
    runner = Interpreter()
    runner._rng = np.random.default_rng(0)
    results = runner.run(program, feed={**feed_of(program), **(feed or {})}, fetch_list=names, scope=scope)
    state = {name: np.array(scope.var(name).get_tensor()) for name, var in block.vars.items() if var.persistable}
    return {**state, **dict(zip(names, results, strict=True))}


def feed_of(program: Program) -> dict[str, Any]:
    """Return an array for each name that is fed."""
    fed = [var for var in program.global_block().vars.values() if var.is_data]
    return {var.name: numbers(var.name, var.shape, var.dtype.numpy, negative=True) for var in fed}


def scope_of(program: Program) -> Scope:
    """Return a scope with an array for each persistable variable."""
    scope = Scope()
    for name, var in program.global_block().vars.items():
        if var.persistable:
            scope.var(name).get_tensor().set(numbers(name, var.shape, var.dtype.numpy), CPUPlace())
    return scope


def numbers(name: str, shape: Iterable[int] | None, dtype: Any, negative: bool = False) -> Any:
    """Return an array that belongs to a name; an unknown dimension is 3, an integer 0 or 1."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    dims = [3 if dim < 0 else dim for dim in shape or ()]
    if np.dtype(dtype).kind != "f":
        return random.integers(0, 2, dims).astype(dtype)
    return random.uniform(-1.5 if negative else 0.1, 1.5, dims).astype(dtype)


def first_difference(before: Mapping[str, Any], after: Mapping[str, Any], rounds: bool = False) -> str:
    """Say which result differs and how; empty if none does."""
    for name, value in before.items():
        found = after.get(name)
        if found is None or found.shape != value.shape or found.dtype != value.dtype:
            return f"{name} is {_shown(found)} and not {_shown(value)}."
        same = np.allclose(found, value, TOLERANCE, TOLERANCE, equal_nan=True) if rounds else _has_bits(found, value)
        if not same:
            at = np.unravel_index(np.argmax(_distance(found, value)), value.shape)
            where = f"[{', '.join(map(str, at))}]" if value.ndim else ""
            return f"{name}{where} is {found[at]:.6g} and not {value[at]:.6g}."
    return ""


def _has_bits(found: Any, value: Any) -> bool:
    return found.tobytes() == value.tobytes()


def _distance(found: Any, value: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(found.astype("float64") - value.astype("float64")), nan=np.inf)


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{value.dtype}[{', '.join(map(str, value.shape))}]"
