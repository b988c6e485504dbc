"""Look for a program that a pass breaks."""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from random import Random
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from minigraph.errors import MinigraphError, Site, warn
from minigraph.ir import Program
from minigraph.passes.rules.element_types import warn_of_sets
from minigraph.rewrite.cases import Case, are_same_bits, has_declared_types, runs_completely
from minigraph.rewrite.counter_examples import CounterExample
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.laws import (
    SECONDS,
    Broken,
    Original,
    Subject,
    broken_law,
    other_gradients,
    other_values,
    rewritten,
    runs_to_finite_numbers,
)
from minigraph.rewrite.random_programs.arrays import Drawn, arrays_for
from minigraph.rewrite.random_programs.drawing import Hints, Pick, draw
from minigraph.rewrite.reducing import reduced
from minigraph.support.public import public
from minigraph.support.undo import unnoted

Array = np.ndarray[Any, Any]

Plant: TypeAlias = Callable[[Pick], Any]

_FINITE_TRIES = 3
"""Maximum draws of arrays of each kind until all results are finite."""

_BRIEFLY = 0.5
"""Maximum time of a pass that does not end for one of the smaller programs, in seconds."""

_ANYTHING = 0.15
"""Share of the programs of which any value may be fetched: their `Program.roots` are None."""

_LATER_RUNS = 2
"""Maximum runs after the first in which a program reads what earlier ones have written."""

_OF_PROGRAMS_THAT_RUN = frozenset({"gradients", "raises", "runs", "valid"})
"""Laws of programs all of whose operators can be computed: a pass may infer, as a run does, that shapes do not fit.

It may also compute two results at once, of which nothing read the one that fails.
"""

_OF_RESULTS = frozenset({"gradients", "raises", "runs", "values"})
"""Laws of programs whose operands fit each other."""

_SECONDS_OF_ENDLESS = 20.0
"""Maximum time to make a program smaller for which a pass does not end, in seconds."""


@public
@unnoted
def check(
    rewrite: Any,
    programs: int = 500,
    seed: int = 0,
    *,
    plant: Sequence[Plant] = (),
    prepare: Callable[[Program], Any] | None = None,
    reduce: bool = True,
    seconds: float = SECONDS,
) -> CounterExample | None:
    """Apply a pass to random programs, and look for one that it breaks.

    Parameters
    ----------
    rewrite : Pass, Pipeline, rule or function
        What is applied. A function changes the program that it is given in place, and says whether it did.
    programs : int
        Number of programs. The types of operators and of elements that the code of the pass names are drawn more often
        than others.
    seed : int
        The same seed gives the same programs and so the same answer.
    plant : sequence of callable
        Fragments that many of the programs shall hold, besides the patterns of rules. Each is given ``pick``, a call of
        which returns a variable of the program, appends operators to the default program, and returns what these
        compute: ``lambda pick: layers.relu(layers.relu(pick()))``.
    prepare : callable, optional
        Changes each program before the pass does, such as ``LEGALIZE.apply``. A program for which it raises an error of
        minigraph is left out.
    reduce : bool
        Make the program that is found as small as possible.
    seconds : float
        Maximum processor time of the pass for one program, in seconds; it may wait for several times as long.

    Returns
    -------
    CounterExample or None
        None if every program keeps every law (`minigraph.rewrite.laws`).

    Warns
    -----
    UserWarning
        If the pass has changed none of the programs, so that only its doing nothing was checked; if a fragment to
        plant mostly fails. What one line of the pass warns of is shown once.

    Notes
    -----
    Results are compared bit for bit, or up to rounding if the pass says ``changes_rounding``: then only where all
    numbers of the program, before it is rewritten, are finite.
    """
    subject = Subject(rewrite)
    subject.seconds = seconds
    for each in _functions(rewrite):
        warn_of_sets(each)
    fragments = [_Fragment(each) for each in plant]
    hints = hints_of(rewrite, fragments)
    with np.errstate(all="ignore"), _each_line_warning_once():
        for number in range(programs):
            found = _check_one(subject, hints, f"{seed}/{number}", prepare)
            if found is not None:
                return _reduced(subject, *found) if reduce else _counter_example(subject, *found)
    if not subject.has_changed:
        warn(
            f"{subject.name} has changed none of the {programs:,} programs, so that nothing it does was checked. "
            "Plant what it looks for: plant=[lambda pick: layers.relu(pick())]."
        )
    for fragment in fragments:
        fragment.warn_of_failures()
    return None


def _functions(rewrite: Any) -> Iterator[Callable[..., Any]]:
    """The functions that a pass is written in; those of rules are looked through when they are made."""
    if inspect.isfunction(rewrite):
        yield rewrite
    else:
        yield from (inspect.unwrap(each) for each in vars(type(rewrite)).values() if inspect.isfunction(each))


class _Fragment:
    """A fragment to plant, with the number of its calls and its errors: values that do not suit it are left out."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._calls = self._failures = 0
        self._said = ""

    def __call__(self, pick: Pick) -> Any:
        self._calls += 1
        try:
            return self._plant(pick)
        except Exception as error:
            self._failures += 1
            message = (str(error).splitlines() or [""])[0]
            self._said = f"{type(error).__name__}: {message}\n  at {self._line_of(error)}"
            raise

    def _line_of(self, error: Exception) -> Site:
        """The line of the fragment that an error came through, or else the innermost of all."""
        frames = traceback.extract_tb(error.__traceback__)
        code = getattr(inspect.unwrap(self._plant), "__code__", None)
        own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
        frame = (own or frames)[-1]
        return Site(frame.filename, frame.lineno or 0)

    def warn_of_failures(self) -> None:
        """Warn if more calls failed than not."""
        if self._failures * 2 > self._calls:
            name = getattr(self._plant, "__name__", f"{self._plant!r:.60}")
            warn(
                f"the fragment to plant {name} failed in {self._failures:,} of {self._calls:,} calls, and was left out "
                f"there: {self._said}"
            )


@contextmanager
def _each_line_warning_once() -> Iterator[None]:
    """Show the first warning of a line only: the text of each may name another program."""
    seen = set()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_first(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, *others: Any, **named: Any
        ) -> None:
            if (category, filename, lineno) not in seen:
                seen.add((category, filename, lineno))
                show(message, category, filename, lineno, *others, **named)

        warnings.showwarning = show_first
        yield


def _check_one(
    subject: Subject, hints: Hints, seed: str, prepare: Callable[[Program], Any] | None
) -> tuple[Case, Broken] | None:
    """Draw one program and apply the pass to it."""
    choose = Random(seed)
    drawn = draw(choose, hints)
    if Random(f"{seed}/roots").random() < _ANYTHING:
        drawn.program.roots = None
    try:
        if prepare is not None:
            prepare(drawn.program)
    except MinigraphError:
        return None
    twin, broken = rewritten(subject, Original(drawn.program))
    if broken is not None:
        case = _case(drawn, choose.randrange(2**32), "positive")
        return (case, broken) if counts(broken, case) else None
    if twin is None:
        return None
    for number, case in enumerate(cases_of(drawn, choose, subject.changes_rounding)):
        broken = other_values(subject, case, twin)
        if broken is None and not number:
            broken = other_gradients(subject, case, twin)
        if broken is not None and counts(broken, case):
            return case, broken
    return None


def counts(broken: Broken, case: Case) -> bool:
    """Whether the operands of the program are such that the law holds."""
    fits = broken.law not in _OF_RESULTS or has_declared_types(case)
    return fits and (broken.law not in _OF_PROGRAMS_THAT_RUN or runs_completely(case))


def cases_of(drawn: Drawn, choose: Random, only_ordinary: bool = False) -> Iterator[Case]:
    """The program on ordinary numbers, in several runs, and on the edges of the arithmetic, if every bit must stay."""
    for kind in ("mixed", "positive"):
        case = next(filter(runs_to_finite_numbers, _draws(drawn, choose, kind)), None)
        if case is not None:
            yield case
            yield from _later_runs(case)
            break
    else:
        yield _case(drawn, choose.randrange(2**32), "mixed")
    if not only_ordinary:
        yield from _draws(drawn, choose, "edges", 1)
        yield from _draws(drawn, choose, choose.choice(("edges", "near")), 1)
        yield from _draws(drawn, choose, "limits", 1)


def _later_runs(case: Case) -> Iterator[Case]:
    """The case with the state that each run leaves to the next one, if runs write any."""
    for _ in range(_LATER_RUNS):
        left = {name: case.results[f"new {name}"][:1] for name in case.state}
        if all(map(are_same_bits, [value for (value,) in left.values()], case.state.values())):
            return
        case = Case(case.program, case.feed, {name: value for name, (value,) in left.items()}, case.seed + 1)
        if not runs_to_finite_numbers(case):
            return
        yield case


def _draws(drawn: Drawn, choose: Random, kind: str, count: int = _FINITE_TRIES) -> Iterator[Case]:
    return (_case(drawn, choose.randrange(2**32), kind) for _ in range(count))


def _case(drawn: Drawn, seed: int, kind: str) -> Case:
    variables = drawn.program.global_block().vars
    arrays = arrays_for(drawn, drawn.program, seed, kind)
    state = {name: value for name, value in arrays.items() if variables[name].persistable}
    return Case(drawn.program, {name: arrays[name] for name in arrays if name not in state}, state, seed % 2**16)


def _counter_example(subject: Subject, case: Case, broken: Broken) -> CounterExample:
    return CounterExample(
        case.program, case.feed, case.state, broken.law, broken.text, broken.rewritten, subject, case.seed
    )


def _reduced(subject: Subject, case: Case, broken: Broken) -> CounterExample:
    """The smallest program of which the same law is broken."""
    end = inf
    if broken.law == "ends":
        subject.seconds, end = min(subject.seconds, _BRIEFLY), monotonic() + _SECONDS_OF_ENDLESS

    def fails(candidate: Case) -> bool:
        if monotonic() > end:
            return False
        found = broken_law(subject, candidate)
        same_law = found is not None and (found.law, found.kind) == (broken.law, broken.kind)
        return same_law and counts(broken, candidate)

    small = reduced(case, fails)
    return _counter_example(subject, small, broken_law(subject, small) or broken)
