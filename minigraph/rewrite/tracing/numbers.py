"""Values that the states of a program compute for one feed, and how far they are apart.

Operators are evaluated one by one, as the interpreter does. A result is kept and found again by the operator and
operands that it was computed from. Equal results are one object, so that a state costs little more than the operators
whose results have changed since the states before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import chain, count
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from minigraph.errors import MinigraphError
from minigraph.executor.feeds import offsets_by_level
from minigraph.ir import Operator, Program, Variable
from minigraph.ir.operator import slot_names
from minigraph.kernels.sparse_rows import dense
from minigraph.lowering.lengths import carry_lengths, fed_levels
from minigraph.opdef import EMPTY
from minigraph.passes import FuseGlobalNorm, events
from minigraph.passes.rewriting import is_random
from minigraph.rewrite.tracing.snapshots import Fields, OpState, Snapshot, fields_of_op
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.place import CPUPlace
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import LoDTensor, is_rows
from minigraph.support.interrupts import is_interrupt
from minigraph.types import VarKind


class ValueDifference(NamedTuple):
    """Distance of a value between two states.

    Attributes
    ----------
    name : str
        The variable.
    largest : float
        Largest absolute difference of an element; infinite where only one is finite, or where the shapes differ.
    relative : float
        The same as a share of the largest element.
    """

    name: str
    largest: float
    relative: float

    def __str__(self) -> str:
        return f"{self.largest:.3g} in {self.name}" if self.largest else "none"


class Run(NamedTuple):
    """The run of one operator in a state."""

    op: Operator
    fields: Fields
    key: tuple[Any, ...]
    """Everything that the results depend on besides values."""
    reads: Sequence[str]
    given: Sequence[int]
    """Each value that it read, as its `id`; all are kept."""
    results: dict[str, Any] | str
    """Results by name; an error, or nothing where an input is missing."""
    written: dict[str, Any]
    """The results that have a value, of variables that the page shows."""

    @property
    def writes(self) -> Iterable[str]:
        """Names that mean another value after the operator."""
        return slot_names(OpState._make(self.fields).outputs) if isinstance(self.results, str) else self.results


Runs = Sequence[Run]
"""Runs of the operators of a state, in order."""


class _Source:
    """Operators of a state to be evaluated, and their variables.

    Attributes
    ----------
    ops : sequence of (Operator, tuple)
        Operators of the traced program, with what their fields (`OpState`) were.
    """

    def __init__(self, state: Snapshot) -> None:
        self._state = state.blocks[0]
        self.ops: Sequence[tuple[Operator, Fields]] = list(zip(self._state.ops, self._state.op_fields, strict=True))

    @staticmethod
    def of(state: Snapshot, feed: Mapping[str, Any]) -> _Source:
        found = _Source(state)
        is_plain = len(state.blocks) == 1 and "sqrt" not in {fields[0].type for _, fields in found.ops}
        return found if is_plain and not fed_levels(feed) else _Restored(state, feed)

    def variable(self, name: str) -> Variable:
        """The variable of a name; a KeyError if there is none."""
        return self._state.variable(name)

    def operator(self, original: Operator, fields: OpState) -> Operator:
        """The operator in a program of its own."""
        block = Program().global_block()
        for name in chain.from_iterable([*fields.inputs.values(), *fields.outputs.values()]):
            if name in self._state.by_name and name not in block.vars:
                block.vars[name] = self.variable(name)
        op = Operator(*fields)
        op._block = block
        return op


class _Restored(_Source):
    """Operators of a state with several blocks, with lengths, or in which fluid's chain for a global norm may stand."""

    def __init__(self, state: Snapshot, feed: Mapping[str, Any]) -> None:
        program, originals = state.restored()
        with suppress(MinigraphError):  # an operator without the lengths that it needs fails when it is computed
            carry_lengths(program, feed, ())
        with events.unobserved():
            FuseGlobalNorm().apply(program)  # part of what a program means, see `Interpreter`
        self._block = program.global_block()
        self._ops = {originals.get(op, op): op for op in self._block.ops}
        self.ops = [(original, fields_of_op(op)) for original, op in self._ops.items()]

    def variable(self, name: str) -> Variable:
        return self._block.vars[name]

    def operator(self, original: Operator, fields: OpState) -> Operator:
        return self._ops[original]


class Numbers:
    """Computes states for a feed.

    Parameters
    ----------
    feed : mapping
        Variable name to array. Operators that need what is neither fed nor computed are left out.
    scope : Scope
        Has the persistable variables; one that has no value there gets small positive numbers, made from its name.
    """

    def __init__(self, feed: Mapping[str, Any], scope: Scope) -> None:
        self._feed: dict[str, Any] = {}
        for name, value in feed.items():
            self._feed[name] = np.asarray(value)
            if isinstance(value, LoDTensor):
                self._feed.update(offsets_by_level(name, value))
        self._start: dict[str, Any] = {}
        """Values from outside, one object in all states: results are found again by the objects they came from."""
        self._scope = scope
        self._place = CPUPlace()
        self._states: dict[Snapshot, Runs] = {}
        self._latest = _Flow()
        self._results: dict[Any, dict[str, Any] | str] = {}
        self._equal: dict[Any, np.ndarray[Any, Any]] = {}
        """Results by their contents."""
        self._seeds: dict[Any, int] = {}
        """Seeds of random operators, by operator and by the names that it writes: one that a pass keeps draws the same
        numbers again."""

    @property
    def batch(self) -> int:
        """Number of rows that are fed."""
        return max([len(value) for value in self._feed.values() if value.shape], default=1)

    def of(self, state: Snapshot) -> Runs:
        """Return what the operators of a state compute."""
        if state not in self._states:
            self._states[state] = self._compute(state)
        return self._states[state]

    def errors(self, state: Snapshot) -> tuple[str, ...]:
        """Return the errors of the operators that cannot be computed."""
        return tuple([run.results for run in self.of(state) if isinstance(run.results, str) and run.results])

    def difference(self, before: Snapshot, after: Snapshot) -> ValueDifference | None:
        """Find the value that differs most among the values that both states compute; None if there is none."""
        old, new = self.of(before), self.of(after)
        common = (name for run in new for name in run.written if any(name in each.written for each in old))
        first = next(common, None)
        if first is None:
            return None
        differing = {id(run): run for run in (*old, *new)}
        for each in set(map(id, old)).intersection(map(id, new)):  # states share what is the same in both
            del differing[each]
        names = set(chain.from_iterable([run.written for run in differing.values()]))
        was, now = _written(old, names), _written(new, names)
        found = [
            compare(name, a, b) for name in now if name in was for a, b in _survivors(was[name], now[name])
        ]  # fmt: skip
        return max([ValueDifference(first, 0.0, 0.0), *found], key=lambda each: each.largest)

    def computes(self, state: Snapshot, names: Sequence[str]) -> bool:
        """Whether a state computes all of `names`, of which there are some."""
        latest = self.latest(state)
        return bool(names) and all(name in latest for name in names)

    def latest(self, state: Snapshot) -> dict[str, Any]:
        """Return the last value of each name that a state computes."""
        found: dict[str, Any] = {}
        for run in self.of(state):
            if isinstance(run.results, str):
                for name in run.writes:
                    found.pop(name, None)
            else:
                found.update(run.results)
        written = set(chain.from_iterable([run.written for run in self.of(state)]))
        return {name: value for name, value in found.items() if name in written}

    def kept(self, state: Snapshot) -> list[str]:
        """Names of what outlives a run of a state: what is fetched or persistable."""
        program = state.program()
        variables, roots = program.global_block().vars, program.roots or ()
        return [name for name in self.latest(state) if name in roots or variables[name].persistable]

    def first_wrong(self, states: Sequence[Snapshot], names: Sequence[str], tolerance: float) -> int | None:
        """Bisect for the first of `states` whose values of `names` differ from those of the first state."""
        expected = self.latest(states[0])

        def is_wrong(index: int) -> bool:
            found = self.latest(states[index])
            return any(
                name not in found or compare(name, expected[name], found[name]).relative > tolerance for name in names
            )

        right, wrong = 0, len(states) - 1
        if not is_wrong(wrong):
            return None
        while wrong - right > 1:
            middle = (right + wrong) // 2
            right, wrong = (right, middle) if is_wrong(middle) else (middle, wrong)
        return wrong

    def _compute(self, state: Snapshot) -> Runs:
        """Run the operators that differ from those of the latest state, and those after that read other values."""
        source, flow = _Source.of(state, self._feed), self._latest
        waiting = flow.begin(source.ops)
        while waiting:
            at = heappop(waiting)
            original, fields = source.ops[at]
            known = flow.runs.get(original)

            def read(name: str, at: int = at) -> Any:
                value = flow.value(name, at)
                return self._start_value(source.variable(name)) if value is None else value[0]

            run = self._run(original, fields, source, read, known)
            if run is not known:
                flow.note(run, at, waiting)
        return flow.end()

    def _run(
        self, original: Operator, fields: Fields, source: _Source, read: Callable[[str], Any], known: Run | None
    ) -> Run:
        """Results of an operator; `known` of the state before if it reads the same."""
        state, given = OpState._make(fields), list[int]()
        key: tuple[Any, ...] = ()
        reads: Sequence[str]
        results: dict[str, Any] | str = ""
        if state.definition.has_hidden_names:  # some of these need no value
            op = source.operator(original, state)
            reads = op.input_arg_names
            results = self._computed(original, op, read)
        else:
            key, reads = (self._key(original, state), slot_names(state.inputs)) if known is None else known[2:4]
            with suppress(KeyError):
                given = [id(read(name)) for name in reads]
                if known is not None and known.given == given:
                    return known
                everything = (*key, *given)
                if everything not in self._results:
                    self._results[everything] = self._computed(original, source.operator(original, state), read)
                results = self._results[everything]
        # A branch that was not taken has written None.
        written = {} if isinstance(results, str) else {
            name: value for name, value in results.items()
            if value is not None and source.variable(name).kind is not VarKind.STEP_SCOPES
        }  # fmt: skip
        return Run(original, fields, key, reads, given, results, written)

    def _key(self, original: Operator, fields: OpState) -> tuple[Any, ...]:
        """Everything that the results of an operator depend on besides values."""
        draws = self._seed(original, fields) if is_random(fields.definition.type) else 0
        attrs = str(sorted(fields.attrs.items()))
        return fields.definition.type, tuple(fields.inputs.items()), tuple(fields.outputs.items()), attrs, draws

    def _computed(self, original: Operator, op: Operator, read: Callable[[str], Any]) -> dict[str, Any] | str:
        # To make a generator takes longer than most operators, of which few draw.
        rng = self._place.rng(self._seed(original, op)) if is_random(op.type) else None
        try:
            with np.errstate(all="ignore"):
                found = evaluate(op, read, self._place, rng)
            return {name: self._shared(value) for name, value in found.items()}
        except KeyError:
            return ""
        except Exception as error:
            if is_interrupt(error):
                raise
            return f"{op.type}: {error.message if isinstance(error, MinigraphError) else error}"

    def _shared(self, value: Any) -> Any:
        """An equal result of another operator, or of another state, if there is one."""
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return value
        content = blake2b(value.tobytes()).digest()
        return self._equal.setdefault((value.dtype, value.shape, content), value)

    def _seed(self, original: Operator, fields: OpState | Operator) -> int:
        names = tuple([name for name in chain.from_iterable(fields.outputs.values()) if name != EMPTY])
        seed = self._seeds.get(original, self._seeds.get(names))
        if seed is None:
            seed = crc32(" ".join(names).encode())
        self._seeds[original] = self._seeds[names] = seed
        return seed

    def _start_value(self, var: Variable) -> Any:
        """The value that a variable has before a run; a KeyError if it has none."""
        if var.name not in self._start:
            if var.name in self._feed or not var.persistable:
                value: Any = np.asarray(self._feed[var.name], var.dtype.numpy)
            else:
                holder = self._scope.find_var(var.name)
                value = None if holder is None else holder.value
                if value is None:
                    shape = tuple(abs(size) for size in var.shape or ())
                    drawn = np.random.default_rng(crc32(var.name.encode())).uniform(0, 0.2, shape)
                    value = drawn.astype(var.dtype.numpy)
            self._start[var.name] = value.copy()
        return self._start[var.name]


class _Flow:
    """The runs of one state, and who reads and writes each name: from these follows what changes in the next state.

    Attributes
    ----------
    runs : dict
        By operator.
    """

    def __init__(self) -> None:
        self.runs: dict[Operator, Run] = {}
        self._place: dict[Operator, int] = {}
        self._readers: defaultdict[str, set[Operator]] = defaultdict(set)
        self._writers: defaultdict[str, set[Operator]] = defaultdict(set)

    def begin(self, ops: Sequence[tuple[Operator, Fields]]) -> list[int]:
        """Go on to the state that has these operators; return a heap of the places whose results may change."""
        self._place = dict(zip([op for op, _ in ops], count(), strict=False))
        runs = self.runs
        kept = {op: None for op, fields in ops if op in runs and runs[op].fields is fields}
        if list(kept) != [op for op in runs if op in kept]:  # some have moved
            kept = {}
        waiting = {at for op, at in self._place.items() if op not in kept}
        gone = [run for op, run in runs.items() if op not in kept]
        for run in gone:
            self._forget(run)
        for name in {name for run in gone for name in run.writes}:
            waiting.update(map(self._place.__getitem__, self._readers[name]))
        return sorted(waiting)

    def note(self, run: Run, at: int, waiting: list[int]) -> None:
        """Take over what the operator at a place computes; those after that read a new result are waiting then."""
        known = self.runs.get(run.op)
        if known is not None:
            self._forget(known)
        for name in run.reads:
            self._readers[name].add(run.op)
        names = set(run.writes).union(() if known is None else known.writes)
        if known is not None and not isinstance(known.results, str) and not isinstance(run.results, str):
            same = [name for name in names if known.results.get(name, names) is run.results.get(name, known)]
            names.difference_update(same)
        for name in run.writes:
            self._writers[name].add(run.op)
        self.runs[run.op] = run
        behind = {self._place[op] for name in names for op in self._readers[name]}
        for each in behind.difference(waiting) if behind else ():
            if each > at:
                heappush(waiting, each)

    def value(self, name: str, at: int) -> tuple[Any] | None:
        """The value, in a tuple, that the operators before a place give a name; None if it has that from outside."""
        places = {place: op for op in self._writers.get(name, ()) if (place := self._place[op]) < at}
        for place in sorted(places, reverse=True):
            results = self.runs[places[place]].results
            if isinstance(results, str):
                return None
            if name in results:
                return (results[name],)
        return None

    def end(self) -> Runs:
        """Return the runs in order."""
        self.runs = {op: self.runs[op] for op in self._place}
        return list(self.runs.values())

    def _forget(self, run: Run) -> None:
        del self.runs[run.op]
        for name in run.reads:
            self._readers[name].discard(run.op)
        for name in run.writes:
            self._writers[name].discard(run.op)


def _written(runs: Runs, names: set[str]) -> dict[str, list[tuple[Operator, Any]]]:
    """The values of some names, in order, each with the operator that writes it."""
    found: defaultdict[str, list[tuple[Operator, Any]]] = defaultdict(list)
    for run in runs:
        if not names.isdisjoint(run.written):
            for name, value in run.written.items():
                if name in names:
                    found[name].append((run.op, value))
    return found


def _survivors(old: Sequence[tuple[Operator, Any]], new: Sequence[tuple[Operator, Any]]) -> Iterator[tuple[Any, Any]]:
    """Pairs of values of a name that are the same value in two states.

    If the name is written as often as before, all are, in order. Else those are that the same operator writes.
    """
    if len(old) == len(new):
        yield from zip([value for _, value in old], [value for _, value in new], strict=True)
        return
    before = dict(old)
    yield from ((before[op], value) for op, value in new if op in before)


def compare(name: str, old: Any, new: Any) -> ValueDifference:
    """Compare two values of a variable."""
    if old is new:
        return ValueDifference(name, 0.0, 0.0)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):  # arrays of tensors
        return max((compare(name, *pair) for pair in zip(old, new, strict=True)), key=lambda each: each.largest,
                   default=ValueDifference(name, 0.0, 0.0))  # fmt: skip
    if any(value is None or isinstance(value, list) for value in (old, new)):
        return ValueDifference(name, np.inf, np.inf)
    a, b = (np.asarray(dense(np, value) if is_rows(value) else value, np.float64) for value in (old, new))
    if a.shape != b.shape:
        return ValueDifference(name, np.inf, np.inf)
    if not a.size:
        return ValueDifference(name, 0.0, 0.0)
    with np.errstate(all="ignore"):
        largest, scale = float(np.abs(a - b).max()), float(np.abs(a).max())
        if not np.isfinite(largest):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            largest = float(np.where(same, 0.0, np.abs(a - b)).max())
            largest = np.inf if np.isnan(largest) else largest
    return ValueDifference(name, largest, largest / scale if largest and scale else largest and np.inf)
