"""Savings by a pass on a program: operators, bytes, arithmetic and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from minigraph.executor import Executor
from minigraph.ir import Program, Variable, VarKind
from minigraph.ir.verifier import verify
from minigraph.lowering.prune import prune
from minigraph.passes.base import Pipeline
from minigraph.rewrite.laws import Subject
from minigraph.rewrite.random_programs.arrays import Drawn, arrays_for
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import LoDTensor
from minigraph.support.html import in_notebook
from minigraph.support.html import table as html_table
from minigraph.support.public import public

_HEADINGS = ("before", "after", "saved")

_ROWS = 16
"""Size of unknown dimensions where nothing is fed."""

_SECONDS = 0.01
"""Minimum time of the runs of one program in one round."""

_ROUNDS = 20


@dataclass(frozen=True)
class Figures:
    """Costs of one run of a program.

    Attributes
    ----------
    operators : int
        Operators that a run needs, also those of sub-blocks.
    bytes : int
        Estimated bytes that a run moves.
    flops : int
        Estimated arithmetic operations of a run.
    seconds : float
        Lowest measured time of a run.
    """

    operators: int
    bytes: int
    flops: int
    seconds: float


@dataclass(frozen=True)
class Score:
    """Figures of a program before and after a pass; prints as a table."""

    name: str
    before: Figures
    after: Figures

    @property
    def saved(self) -> dict[str, float]:
        """The share that the pass saves of each figure; negative if there is more than before."""
        pairs = zip(fields(Figures), astuple(self.before), astuple(self.after), strict=True)
        return {field.name: 1 - after / before if before else 0.0 for field, before, after in pairs}

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for name, share in self.saved.items():
            values = [getattr(each, name) for each in (self.before, self.after)]
            is_time = name == "seconds"
            shown = [f"{1e6 * value:,.1f} µs" if is_time else f"{value:,}" for value in values]
            yield "time" if is_time else name, *shown, f"{share:.0%}"

    def __rich__(self) -> Table:
        table = Table(title=self.name)
        table.add_column("")
        for heading in _HEADINGS:
            table.add_column(heading, justify="right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        return in_notebook(f"What {self.name} saves", html_table("", ("", *_HEADINGS), self._rows()))

    def __str__(self) -> str:
        console = Console(width=80)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()


@public
def score(
    rewrite: Any,
    program: Program,
    feed: Mapping[str, Any] | None = None,
    fetch_list: Sequence[Variable | str] | None = None,
    *,
    scope: Scope | None = None,
    passes: Pipeline | None = None,
) -> Score:
    """Compare what a run of a program takes before and after a pass.

    Parameters
    ----------
    rewrite : Pass, Pipeline, rule or function
        What is applied to a clone.
    program : Program
        It is not changed.
    feed : dict, optional
        What is fed. Inputs that are left out are drawn at random, with 16 rows where the size is unknown.
    fetch_list : list of Variable or str, optional
        What is fetched. Default: ``program.roots``, or else what no operator reads.
    scope : Scope, optional
        Where persistable variables have their values; it is not changed. Default: random ones.
    passes : Pipeline, optional
        What the executor applies besides. By default nothing, so that the pass stands alone;
        ``minigraph.passes.LOWERING`` shows what it gives beyond the executor's own passes.

    Returns
    -------
    Score
        Times are the lowest of runs of both programs by turns.
    """
    before = program.clone()
    if fetch_list is not None:
        before.roots = tuple(each if isinstance(each, str) else each.name for each in fetch_list)
    elif before.roots is None:
        before.roots = tuple(_unread(before))
    after = before.clone()
    subject = Subject(rewrite)
    subject.apply(after)
    verify(after)
    arrays = _arrays(before, feed or {}, scope)
    measured = [_Measured(each, before.roots, arrays, passes or Pipeline(())) for each in (before, after)]
    for _ in range(_ROUNDS):
        for each in measured:
            each.run()
    return Score(subject.name, *(each.figures() for each in measured))


def _unread(program: Program) -> list[str]:
    block = program.global_block()
    read = {name for op in block.ops for name in op.input_arg_names}
    written = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    unread = [block.vars[name] for name in written if name not in read and name in block.vars]
    return [var.name for var in unread if not var.persistable and var.kind is not VarKind.STEP_SCOPES]


def _arrays(program: Program, feed: Mapping[str, Any], scope: Scope | None) -> dict[str, Any]:
    """Fed arrays and state, by name; what is fed with lengths keeps them."""
    fed = {name: np.asarray(value) for name, value in feed.items()}
    rows = next((value.shape[0] for value in fed.values() if value.ndim), _ROWS)
    found = {**arrays_for(Drawn(program, rows, {}), program, 0, "positive"), **fed}
    for name, var in program.global_block().vars.items():
        held = scope.find_var(name) if scope is not None and var.persistable else None
        if held is not None and held.value is not None:
            found[name] = np.array(held.get_tensor())
    return {**found, **{name: value for name, value in feed.items() if isinstance(value, LoDTensor)}}


class _Measured:
    """A program that is run many times on the same arrays."""

    def __init__(self, program: Program, fetched: Sequence[str], arrays: Mapping[str, Any], passes: Pipeline) -> None:
        known = program.global_block().vars
        self._feed = {name: value for name, value in arrays.items() if name in known and not known[name].persistable}
        scope, executor = Scope(), Executor(passes=passes)
        for name, value in arrays.items():
            if name in known and known[name].persistable:
                scope.var(name).get_tensor().set(value.copy())
        names = list(fetched)
        self._operators = sum(len(block.ops) for block in prune(program, list(self._feed), names).blocks)
        self._explained = executor.explain(program, self._feed, names)
        self._run: Callable[[], Any] = lambda: executor.run(program, self._feed, names, scope=scope)
        self._seconds = math.inf
        for _ in range(3):  # the first runs make and compile the plan
            self._run()
        started = perf_counter()
        self._run()
        self._runs = max(1, int(_SECONDS / (perf_counter() - started)))

    def run(self) -> None:
        started = perf_counter()
        for _ in range(self._runs):
            self._run()
        self._seconds = min(self._seconds, (perf_counter() - started) / self._runs)

    def figures(self) -> Figures:
        return Figures(self._operators, self._explained.bytes, self._explained.flops, self._seconds)
