"""A program with the arrays that it needs, its results in the interpreter, and how two results differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from minigraph.errors import ExecutionError, MinigraphError
from minigraph.executor.feeds import prepare_feed
from minigraph.executor.fetches import fetch_names, results_of
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import Block, Operator, Program, Variable, VarKind
from minigraph.lowering.lengths import carry_lengths
from minigraph.opdef import definition_of
from minigraph.runtime.evaluate import bounded_loops, evaluate, results_in_order
from minigraph.runtime.place import CPUPlace
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import SelectedRows
from minigraph.support.simulated_ranks import run_ranks

Array = np.ndarray[Any, Any]
Results = dict[str, list[Array]]
"""By name, what is fetched and, under ``new <name>``, what is persistable after the run. An array of tensors has
several, and a tensor with sequences their offsets after it."""

MOST_LOOPS = 100
"""Maximum runs of the body of a loop; a pass, or what makes a program smaller, may break its condition."""

_MOST_SIZE = 10_000
"""Maximum number that a tensor may give for a size; a random number there could ask for all memory."""

_MOST_ELEMENTS = 10_000_000
"""Maximum product of such numbers."""

_SIZES = frozenset({
    "End", "ExpandTimes", "MaxLenTensor", "Num", "OutSize", "Shape", "ShapeTensor", "ShapeTensorList", "SizeTensor",
    "Start", "Step", "depth_tensor", "expand_times_tensor",
})  # fmt: skip
"""Input slots whose numbers decide how many elements a result has; beside an ``OutSize`` so do those of Scale."""

_NOISE = 4
"""Size of the random errors of a noisy run, in units of the last place."""

_LITTLE_NOISE = 1
"""Size of the errors of a run in which few operators have any."""

_NOISY_SHARE = 0.25
"""Share of these operators."""

_NOISY_RUNS = (4, 32, 128)
"""Numbers of runs after which a difference may be explained; in all but the first 4 few operators have errors.

An answer that jumps at one number, such as whether a sum that cancels is 0, takes many: larger errors mostly miss it.
"""

_PICKS = frozenset({"maxout", "pool2d", "pool3d", "reduce_max", "reduce_min", "sequence_pool"})
"""Types of operators whose results may be elements of X, for which their gradients look."""

_SPREAD = 16
"""Maximum distance between results that differ by rounding, in units of the spread of noisy runs."""


@dataclass(frozen=True)
class Case:
    """A program and what it is run with. `Program.roots` are fetched or, where they are None, every value."""

    program: Program
    feed: Mapping[str, Array] = field(default_factory=dict)
    state: Mapping[str, Array] = field(default_factory=dict)
    """Arrays of persistable variables."""
    seed: int = 0
    """Seed of the generator of random numbers."""

    @cached_property
    def fetched(self) -> tuple[str, ...]:
        """Names of what is fetched."""
        roots = self.program.roots
        return fetchable(self.program.global_block()) if roots is None else roots

    @cached_property
    def results(self) -> Results:
        """Results of the program."""
        return self.run()

    @cached_property
    def computed(self) -> list[dict[str, Any] | None]:
        """Results of each operator, see `results_by_op`."""
        return results_by_op(self)

    @cached_property
    def for_test(self) -> Case:
        """The clone for a test, which fetches what of the roots is left."""
        test = clone_for_test(self.program, self.program.version)
        known = test.global_block().vars
        feed, state = ({n: value for n, value in each.items() if n in known} for each in (self.feed, self.state))
        return Case(test, feed, state, self.seed)

    @cached_property
    def noisy_runs(self) -> list[Results | None]:
        """Results of the first noisy runs, None for one that fails; `Rounding` adds to them."""
        return []

    def run(self, program: Program | None = None, interpreter: Interpreter | None = None) -> Results:
        """Run the program, or another one on the same arrays; one that exchanges values, as the first of two ranks."""
        program = self.program if program is None else program
        if not _exchanges(program):
            return self._run(program, interpreter or _Bounded(), self.feed)
        others = {name: value / 2 if value.dtype.kind == "f" else value for name, value in self.feed.items()}
        first = partial(self._run, program, interpreter or _Bounded(), self.feed)
        return run_ranks([first, partial(self._run, program, _Bounded(), others)])[0]

    def _run(self, program: Program, runner: Interpreter, feed: Mapping[str, Array]) -> Results:
        runner._rng = np.random.default_rng(self.seed)
        scope = Scope()
        for name, value in self.state.items():
            scope.var(name).get_tensor().set(value.copy())
        names = list(self.fetched)
        with bounded_loops(MOST_LOOPS), results_in_order():
            fetched = runner.run(program, feed=dict(feed), fetch_list=names, scope=scope, return_numpy=False)
        found = {
            name: [value] if type(value) is np.ndarray else arrays_of(value)
            for name, value in zip(names, fetched, strict=True)
        }
        for name in scope.local_var_names():
            held = scope.var(name)
            is_array = type(held.value) is np.ndarray and not held.lod
            found[f"new {name}"] = [held.value] if is_array else arrays_of(held.get_tensor())
        return found


@lru_cache(maxsize=8)
def clone_for_test(program: Program, version: int) -> Program:
    """The clone for a test of this version of a program, which fetches what of the roots is left."""
    test = program.clone(for_test=True)
    if program.roots is not None:
        test.roots = tuple([name for name in program.roots if name in test.global_block().vars])
    return test


def _exchanges(program: Program) -> bool:
    """Whether operators exchange values with other ranks."""
    return any("ring_id" in op.definition.attrs for block in program.blocks for op in block.ops)


def fetchable(block: Block) -> tuple[str, ...]:
    """Names of tensors that are fed or computed, without tensors that only gradient operators are meant to read."""
    made, hidden = {name for op in block.ops for name in op.output_arg_names}, _for_gradients(block)
    return tuple(
        name
        for name, var in block.vars.items()
        if var.tensor_type is not None and var.kind is VarKind.LOD_TENSOR and name not in hidden
        if var.is_data or var.persistable or name in made
    )


def _for_gradients(block: Block) -> set[str]:
    """Names of results that only gradient operators are meant to read, such as ``XShape``."""
    return {
        name
        for op in block.ops
        for slot in op.definition.outputs
        if slot.intermediate
        for name in op.outputs.get(slot.name, ())
    }


def arrays_of(value: Any) -> list[Array]:
    """The arrays of a result: of each element of an array of tensors, of selected rows; after a tensor its offsets."""
    if isinstance(value, list):
        return [each for element in value for each in arrays_of(element)]
    if value is None:
        return []
    if isinstance(value, SelectedRows):
        return [np.asarray(value.numpy())]
    return [np.asarray(value), *map(np.array, value.lod())]


def runs_completely(case: Case) -> bool:
    """Whether every operator of the program runs, those whose results nothing reads among them."""
    return None not in case.computed


def has_declared_types(case: Case) -> bool:
    """Whether results have the shapes and element types that are declared.

    Kernels compute some results of operands that do not fit. An example is the sum of a column of open length, which
    turns out to be 3, and one of length 1: inference says [1, 1]. An executor refuses such a run. Another one is the
    gradient of a product of integers and floats, which layers refuse to make.
    """
    block = case.program.global_block()
    writers = Counter(name for op in block.ops for name in op.output_arg_names)
    hidden = _for_gradients(block)  # of which some have no shape that fluid declares
    return all(
        value is None or writers[name] > 1 or name in hidden or _fits(value, block.vars.get(name))
        for results in case.computed
        for name, value in (results or {}).items()
    )


def _fits(value: Array, var: Variable | None) -> bool:
    """Whether a value has the type that is declared; a run counts the rows of sequences, and makes their lengths."""
    if var is None or var.tensor_type is None or var.lod_level:
        return True
    declared = var.tensor_type.shape
    return (
        value.dtype == var.dtype.numpy
        and value.ndim == len(declared)
        and all(size in (-1, actual) for size, actual in zip(declared, value.shape, strict=True))
    )


def results_by_op(case: Case) -> list[dict[str, Any] | None]:
    """Results of each operator. None stands for an operator that fails, or reads a result of one that failed."""
    values = {name: value.copy() for name, value in {**case.feed, **case.state}.items()}
    random, found = np.random.default_rng(case.seed), []
    program = case.program.clone()
    block = program.global_block()
    own = {id(op) for op in block.ops}
    with suppress(MinigraphError):  # the first operator without the lengths that it needs fails below
        carry_lengths(program, case.feed, ())
    for op in block.ops:
        results: dict[str, Any] | None
        try:
            _require_modest(op, values.__getitem__)
            with np.errstate(all="ignore"), bounded_loops(MOST_LOOPS):
                results = evaluate(op, values.__getitem__, CPUPlace(), random)
        except Exception:
            results = None
            for name in op.output_arg_names:
                values.pop(name, None)
        values.update(results or {})
        if id(op) in own:  # others compute lengths
            found.append(results if results is None else _arrays(results))
    return found


def _arrays(results: dict[str, Any]) -> dict[str, Any]:
    """Copies of results, with None for a list; nothing if one is held otherwise."""
    results = {name: None if isinstance(value, list) else value for name, value in results.items()}
    if not all(value is None or isinstance(value, np.ndarray | np.generic) for value in results.values()):
        return {}
    return {name: None if value is None else np.array(value) for name, value in results.items()}


def is_finite(results: Results) -> bool:
    return all(np.isfinite(each).all() for each in _floating(results))


def _floating(results: Results) -> Iterator[Array]:
    return (each for arrays in results.values() for each in arrays if each.dtype.kind == "f")


def differing(one: Results, other: Results, same: Callable[[Array, Array], bool]) -> str | None:
    """The first name under which results differ."""
    for name, arrays in one.items():
        others = other.get(name)
        if others is None or len(others) != len(arrays) or not all(map(same, arrays, others)):
            return name
    return next((name for name in other if name not in one), None)


def are_same_bits(one: Array, other: Array) -> bool:
    """Whether arrays are equal bit for bit; one NaN is as good as another."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.tobytes() == other.tobytes():
        return True
    if one.dtype.kind != "f":
        return False
    is_nan = np.isnan(one)
    if not np.array_equal(is_nan, np.isnan(other)):
        return False
    return np.where(is_nan, 0, one).tobytes() == np.where(is_nan, 0, other).tobytes()


@cache
def _slots_of_sizes(type: str) -> tuple[str, ...]:
    """Input slots of operators of a type whose numbers decide how many elements a result has."""
    slots = set(definition_of(type).input_slots.keys() & _SIZES)
    if "OutSize" in slots:
        slots.add("Scale")
    if type == "sequence_mask":  # without a length for all, the largest
        slots.add("X")
    return tuple(sorted(slots))


def _require_modest(op: Operator, read: Callable[[str], Any]) -> None:
    """Raise if an operator is asked for a very large result."""
    for slot in _slots_of_sizes(op.type):
        numbers = [np.abs(np.asarray(read(name)).astype("float64").ravel()) for name in op.inputs.get(slot, ())]
        sizes = np.concatenate([np.ones(1), *numbers])
        if not (sizes <= _MOST_SIZE).all() or np.maximum(sizes, 1).prod() > _MOST_ELEMENTS:
            raise ExecutionError(
                f"{op.type}: {slot} asks for more than {_MOST_SIZE:,} along an axis, or {_MOST_ELEMENTS:,} in all"
            )


_PREPARED: WeakKeyDictionary[Program, dict[Any, Any]] = WeakKeyDictionary()
"""Prepared programs by program: each is run on several arrays, and with rounding errors."""


class _Bounded(Interpreter):
    """Evaluate nothing that asks for very large results; arrays are returned as they are."""

    _is_literal = False

    def _prepared(self, program: Program, feed_names: tuple[str, ...], names: tuple[str, ...]) -> Any:
        known = _PREPARED.setdefault(program, {})
        key = self._is_literal, program.version, feed_names, names
        if key not in known:
            known[key] = super()._prepared(program, feed_names, names)
        return known[key]

    def _run_fed(
        self,
        program: Program,
        feed: Any,
        fetch_list: Any,
        scope: Scope,
        return_numpy: bool,
        then: Callable[[], None] | None = None,
    ) -> list[Any]:
        names = fetch_names(program, fetch_list)
        values = self._run(program, prepare_feed(program, feed, self.place, scope), names, scope, then, return_numpy)
        return [
            value if type(value) is np.ndarray else results_of([value], self.place, return_numpy, (name,))[0]
            for name, value in zip(names, values, strict=True)
        ]

    def _results(self, op: Operator, read: Callable[[str], Any]) -> dict[str, Any]:
        _require_modest(op, read)
        return super()._results(op, read)


class Literal(_Bounded):
    """Evaluate single operators as they stand, also those of a global norm, which may overflow."""

    _is_literal = True

    def _legalize(self, program: Program) -> None:
        pass


class _Noisy(_Bounded):
    """Evaluate with errors of a few units of the last place in the floating values of a share of the operators."""

    def __init__(self, seed: int, size: int = _NOISE, share: float = 1) -> None:
        super().__init__()
        self._noise = np.random.default_rng(seed)
        self._size, self._share = size, share

    def _results(self, op: Operator, read: Callable[[str], Any]) -> dict[str, Any]:
        # The gradient of a largest element looks for it, so that it must stay the same.
        given = [read(name).ravel() for name in op.inputs["X"]] if op.type in _PICKS else []
        found = super()._results(op, read)
        if self._share < 1 and self._noise.random() >= self._share:
            return found
        return {name: self._changed(value, given) for name, value in found.items()}

    def _changed(self, value: Any, given: list[Array]) -> Any:
        if not isinstance(value, np.ndarray | np.floating) or value.dtype.kind != "f":
            return value
        limits, error = np.finfo(value.dtype), self._size * self._noise.uniform(-1, 1, value.shape)
        with np.errstate(all="ignore"):
            noisy = value * (1 + error * limits.eps)
            # Below the smallest normal number the last place has one size.
            is_small = (value != 0) & (np.abs(value) < limits.tiny)
            noisy = np.where(is_small, value + error * limits.smallest_subnormal, noisy).astype(value.dtype)
        return np.where(np.isin(value, np.concatenate(given)), value, noisy) if given else noisy


class Rounding:
    """Decide whether results differ by rounding alone.

    How far rounding may carry depends on the program: a difference of almost equal numbers magnifies it, a comparison
    turns it into another answer. So the program is run several times with small random errors in each operator
    (Monte Carlo arithmetic), and the spread of the results says what rounding can do. A difference that this does not
    explain gets more runs, with smaller errors in fewer operators.

    References
    ----------
    D. S. Parker, Monte Carlo Arithmetic, 1997.
    """

    def __init__(self, case: Case, results: Results) -> None:
        self._case = case
        self._results = results

    def difference(self, other: Results) -> str | None:
        """The first name under which `other` differs by more than rounding."""
        if differing(self._results, other, _are_close) is None:
            return None
        for name in self._results:
            if differing({name: self._results[name]}, {name: other.get(name, [])}, _are_close) is None:
                continue
            if not self._explains(name, other.get(name, [])):
                return name
        return None

    def _explains(self, name: str, found: list[Array]) -> bool:
        return any(self._is_within(self._first_runs(count), name, found) for count in _NOISY_RUNS)

    def _is_within(self, runs: list[Results], name: str, found: list[Array]) -> bool:
        """Whether a result lies where the runs let it lie."""
        expected = self._results[name]
        if not runs:
            return True
        if [(each.dtype, each.shape) for each in expected] != [(each.dtype, each.shape) for each in found]:
            return any([each.shape for each in run[name]] != [each.shape for each in expected] for run in runs)
        for position, (value, wanted) in enumerate(zip(found, expected, strict=True)):
            around = np.stack([wanted, *(run[name][position] for run in runs)]).astype("float64")
            with np.errstate(all="ignore"):
                spread = np.abs(around - around[0]).max(axis=0)
                is_near = np.abs(value.astype("float64") - wanted) <= _SPREAD * spread + _room(wanted)
            if not (is_near | ~np.isfinite(around).all(axis=0)).all():
                return False
        return True

    def _first_runs(self, count: int) -> list[Results]:
        """Results of `count` noisy runs. Runs that fail are left out: noise may make an index no whole number."""
        runs = self._case.noisy_runs
        for number in range(len(runs), count):
            is_ordinary = number < _NOISY_RUNS[0]
            noisy = _Noisy(number) if is_ordinary else _Noisy(number, _LITTLE_NOISE, _NOISY_SHARE)
            try:
                runs.append(self._case.run(interpreter=noisy))
            except MinigraphError:
                runs.append(None)
        return [each for each in runs[:count] if each is not None]


def _room(value: Array) -> float:
    """The distance that rounding explains in any program."""
    if value.dtype.kind != "f" or not value.size:
        return 0.0
    magnitude = np.abs(value[np.isfinite(value)]).max(initial=0.0)
    return float(64 * np.finfo(value.dtype).eps * magnitude + 16 * np.finfo(value.dtype).tiny)


def _are_close(one: Array, other: Array) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.tobytes() == other.tobytes():
        return True
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    return bool(np.allclose(one, other, rtol=0, atol=_room(one), equal_nan=True))
