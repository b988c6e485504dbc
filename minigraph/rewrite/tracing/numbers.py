"""Values that the states of a program compute for one feed, and how far they are apart.

Operators are evaluated one by one, as the interpreter does. A result is kept and found again by what it was computed
from, and equal results are one object, so that a state costs little more than the operators whose results differ from
those in the states before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from minigraph.errors import MinigraphError
from minigraph.ir import Operator, Program, Variable
from minigraph.ir.operator import slot_names
from minigraph.kernels.sparse_rows import dense
from minigraph.opdef import EMPTY
from minigraph.passes import FuseGlobalNorm, events
from minigraph.passes.rewriting import is_random
from minigraph.rewrite.tracing.snapshots import Fields, OpState, Snapshot, fields_of_op, variable
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.place import CPUPlace
from minigraph.runtime.scope import Scope, is_rows
from minigraph.support.interrupts import is_interrupt
from minigraph.types import VarKind


class ValueDifference(NamedTuple):
    """How far a value of two states is apart.

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


class Computed(NamedTuple):
    """What a state computes.

    Attributes
    ----------
    written : dict
        The values of each name, in order, each with the operator that writes it.
    latest : dict
        The last value of each name.
    errors : tuple of str
        Of the operators that could not be computed.
    """

    written: dict[str, list[tuple[Operator, Any]]]
    latest: dict[str, Any]
    errors: tuple[str, ...]


class _Run(NamedTuple):
    """What an operator computed in the latest state."""

    fields: Fields
    reads: Sequence[str]
    given: Sequence[int]
    """Each value that it read, as its `id`; all are kept."""
    results: dict[str, Any] | str
    """By name; an error, or nothing where an input is missing."""
    written: dict[str, list[tuple[Operator, Any]]]
    """The same with the operator, as lists that states share."""


class _Source:
    """Operators of a state to be evaluated, and their variables.

    Attributes
    ----------
    ops : sequence of (Operator, tuple)
        Operators of the traced program, with what their fields (`OpState`) were.
    """

    def __init__(self, state: Snapshot) -> None:
        self.ops: Sequence[tuple[Operator, Fields]]
        self.ops, self._variables = state.global_block()

    @staticmethod
    def of(state: Snapshot) -> _Source:
        found = _Source(state)
        is_plain = len(state.blocks) == 1 and "sqrt" not in {fields[0].type for _, fields in found.ops}
        return found if is_plain else _Restored(state)

    def variable(self, name: str) -> Variable:
        """The variable of a name; a KeyError if there is none."""
        return variable(*self._variables[name])

    def operator(self, original: Operator, fields: OpState) -> Operator:
        """The operator in a program of its own."""
        block = Program().global_block()
        for name in chain.from_iterable([*fields.inputs.values(), *fields.outputs.values()]):
            if name in self._variables and name not in block.vars:
                block.vars[name] = self.variable(name)
        op = Operator(*fields)
        op._block = block
        return op


class _Restored(_Source):
    """Operators of a state with several blocks, or in which fluid's chain for a global norm may stand."""

    def __init__(self, state: Snapshot) -> None:
        program, originals = state.restored()
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
        self._feed = feed
        self._start: dict[str, Any] = {}
        """Values from outside, one object in all states: results are found again by the objects they came from."""
        self._scope = scope
        self._place = CPUPlace()
        self._states: dict[Snapshot, Computed] = {}
        self._results: dict[Any, dict[str, Any] | str] = {}
        self._runs: dict[Operator, _Run] = {}
        self._equal: dict[Any, np.ndarray[Any, Any]] = {}
        """Results by their contents."""
        self._seeds: dict[Any, int] = {}
        """Of a random operator, by itself and by the names that it writes: what a pass keeps draws the same again."""

    @property
    def batch(self) -> int:
        """Number of rows that are fed."""
        return max([len(value) for value in self._feed.values() if getattr(value, "shape", None)], default=1)

    def of(self, state: Snapshot) -> Computed:
        """Return the values of a state."""
        if state not in self._states:
            self._states[state] = self._compute(state)
        return self._states[state]

    def difference(self, before: Snapshot, after: Snapshot) -> ValueDifference | None:
        """Find the value that differs most among those that both states compute; None if there is none."""
        old, new = self.of(before).written, self.of(after).written
        common = [name for name in new if name in old]
        # The lists of a name are one object where nothing differs.
        found = [ValueDifference(name, 0.0, 0.0) for name in common[:1]]
        found += [
            compare(name, a, b)
            for name in common if old[name] is not new[name]
            for a, b in _survivors(old[name], new[name])
        ]  # fmt: skip
        return max(found, key=lambda each: each.largest, default=None)

    def computes(self, state: Snapshot, names: Sequence[str]) -> bool:
        """Whether a state computes all of `names`, of which there are some."""
        return bool(names) and all(name in self.of(state).latest for name in names)

    def kept(self, state: Snapshot) -> list[str]:
        """Names of what outlives a run of a state: what is fetched or persistable."""
        program = state.program()
        variables, roots = program.global_block().vars, program.roots or ()
        return [name for name in self.of(state).latest if name in roots or variables[name].persistable]

    def first_wrong(self, states: Sequence[Snapshot], names: Sequence[str], tolerance: float) -> int | None:
        """Bisect for the first of `states` whose values of `names` differ from those of the first state."""
        expected = self.of(states[0]).latest

        def is_wrong(index: int) -> bool:
            found = self.of(states[index]).latest
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

    def _compute(self, state: Snapshot) -> Computed:
        source = _Source.of(state)
        latest: dict[str, Any] = {}
        written: dict[str, list[tuple[Operator, Any]]] = {}
        errors: list[str] = []

        def read(name: str) -> Any:
            if name not in latest:
                latest[name] = self._start_value(source.variable(name))
            return latest[name]

        for original, fields in source.ops:
            run = self._run(original, fields, source, read)
            if isinstance(run.results, str):
                errors += [run.results] if run.results else []
                for name in slot_names(OpState._make(fields).outputs):
                    latest.pop(name, None)
                continue
            latest.update(run.results)
            for name, values in run.written.items():
                written[name] = [*written[name], *values] if name in written else values
        return Computed(written, {name: value for name, value in latest.items() if name in written}, tuple(errors))

    def _run(self, original: Operator, fields: Fields, source: _Source, read: Callable[[str], Any]) -> _Run:
        """What an operator computes; the object of the state before where it read the same."""
        known = self._runs.get(original)
        if known is not None and known.fields is fields and known.given:
            with suppress(KeyError):
                if known.given == [id(read(name)) for name in known.reads]:
                    return known
        state = OpState._make(fields)
        reads = slot_names(state.inputs)
        given: Sequence[int] = ()
        results: dict[str, Any] | str = ""
        if state.definition.has_hidden_names:  # some of these need no value
            results = self._computed(original, source.operator(original, state), read)
        else:
            try:
                given = [id(read(name)) for name in reads]
            except KeyError:
                pass
            else:
                results = self._result(original, state, zip(reads, given, strict=True), source, read)
        # A branch that was not taken has written None.
        shown = {} if isinstance(results, str) else {
            name: [(original, value)] for name, value in results.items()
            if value is not None and source.variable(name).kind is not VarKind.STEP_SCOPES
        }  # fmt: skip
        run = self._runs[original] = _Run(fields, reads, given, results, shown)
        return run

    def _result(
        self, original: Operator, fields: OpState, given: Iterable[tuple[str, int]], source: _Source,
        read: Callable[[str], Any],
    ) -> dict[str, Any] | str:  # fmt: skip
        """The results of an operator by name; found again where one like it read the same."""
        draws = self._seed(original, fields) if is_random(fields.definition.type) else 0
        key = (
            fields.definition.type, tuple(fields.inputs.items()), tuple(fields.outputs.items()),
            str(sorted(fields.attrs.items())), tuple(given), draws,
        )  # fmt: skip
        if key not in self._results:
            self._results[key] = self._computed(original, source.operator(original, fields), read)
        return self._results[key]

    def _computed(self, original: Operator, op: Operator, read: Callable[[str], Any]) -> dict[str, Any] | str:
        draws = self._seed(original, op) if is_random(op.type) else 0
        try:
            with np.errstate(all="ignore"):
                found = evaluate(op, read, self._place, self._place.rng(draws))
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
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
        largest = float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))
        scale = float(np.abs(a).max(initial=0.0))
    return ValueDifference(name, largest, largest / scale if largest and scale else largest and np.inf)
