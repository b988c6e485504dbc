"""The state of a plan: arrays of a scope, which are looked up again only after the scope got other arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from minigraph.errors import ExecutionError, MinigraphError
from minigraph.ir import Operator, explain
from minigraph.lowering.costs import size_in_bytes
from minigraph.lowering.flat_buffers import FlatBuffers, FlatView, is_state
from minigraph.lowering.output_buffers import LEAST_SPARE
from minigraph.lowering.steps import Steps, Value
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import ScopeVariable, is_rows, moved, type_of
from minigraph.types import product


@dataclass(slots=True)
class _Bound:
    """Arrays found in a scope, and the number of its changes by then."""

    arrays: list[Any]
    changes: int


class Binding:
    """Finds the arrays that a plan's function is given.

    Parameters
    ----------
    steps : Steps
    flat : FlatBuffers
        Those of the state lie side by side in the scope.
    wanted : sequence of Value or FlatView
        State of `steps`, in the order in which the function takes it.
    to_scope : mapping of Value to str
        New state that a run writes to spare arrays, with the names of the variables.
    place : Place
    """

    def __init__(
        self,
        steps: Steps,
        flat: FlatBuffers,
        wanted: Sequence[Value | FlatView],
        to_scope: Mapping[Value, str],
        place: Place,
    ) -> None:
        self._steps = steps
        self._wanted = wanted
        self._place = place
        self._flat = [values for values in flat.buffers if is_state(values)]
        self._in_flat = {value.name for values in self._flat for value in values}
        self._at = {each.name: i for i, each in enumerate(wanted) if isinstance(each, Value)}
        self._bound: WeakKeyDictionary[Scope, _Bound] = WeakKeyDictionary()
        self._to_scope = [(name, v.tensor_type.shape, v.tensor_type.dtype.numpy) for v, name in to_scope.items()]
        self._keeps = any(size_in_bytes(value) >= LEAST_SPARE for value in steps.replaced_state.values())
        self._replaced: WeakKeyDictionary[Scope, Mapping[str, ScopeVariable]] = WeakKeyDictionary()
        """Variables that a run has replaced, by scope and name."""

    def arrays(self, scope: Scope) -> list[Any]:
        """The arrays of `scope`, those of a flat buffer side by side.

        Raises
        ------
        ExecutionError
            If a variable has no value, or one of another dtype or shape than the program declares.
        """
        bound = self._bound.get(scope)
        if bound is None or bound.changes != scope.changes.count:
            arrays = self._find(scope)
            bound = self._bound[scope] = _Bound(arrays, scope.changes.count)
        return bound.arrays

    def spares(self, scope: Scope) -> list[Any]:
        """Return the arrays to which a run writes new state; nobody else holds them.

        The values in the scope stay whole until the run has succeeded, so a run that fails needs no undo.
        """
        if not self._to_scope:
            return []
        variables = self._replaced.get(scope)
        if variables is None:
            return [np.empty(shape, dtype) for _, shape, dtype in self._to_scope]
        return [variables[name].take_spare(shape, dtype) for name, shape, dtype in self._to_scope]

    def copy(self, scope: Scope, name: str, value: Any) -> Any:
        """Copy new state that may share memory with something else, to a spare array of `name` if there is one."""
        variables = self._replaced.get(scope) if self._keeps else None
        if variables is None or type(value) is not np.ndarray:
            return value.copy()
        spare = variables[name].take_spare(value.shape, value.dtype)
        np.copyto(spare, value)
        return spare

    def store(self, scope: Scope, given: Mapping[str, Any]) -> None:
        """Give the variables of `scope` what a run has computed.

        The arrays of a first run's variables are not kept: a startup program leaves no spare arrays behind.
        """
        before, variables = scope.changes.count, self._replaced.get(scope)
        keep_old = variables is not None and self._keeps
        if variables is None:
            variables = self._replaced[scope] = {name: scope.var(name) for name in given}
        for name, value in given.items():
            variables[name].replace(value, self._place, keep_old)
        self._follow(scope, before, given)

    def _follow(self, scope: Scope, before: int, given: Mapping[str, Any]) -> None:
        """Take over the arrays that a run gave to variables of `scope`; `before` counts the changes until then.

        Without this, a run that replaces one counter would make the next run look up all state again.
        """
        bound = self._bound.get(scope)
        if bound is None or bound.changes != before or scope.changes.count != before + len(given):
            return  # another thread or the user has changed the scope, too
        taken = [(at, value) for name, value in given.items() if (at := self._at.get(name)) is not None]
        if self._in_flat.isdisjoint(given) and all([_is_alike(bound.arrays[at], value) for at, value in taken]):
            if taken:
                arrays = list(bound.arrays)  # another run may still have the old ones
                for at, value in taken:
                    arrays[at] = value
                bound.arrays = arrays
            bound.changes += len(given)  # last, because another thread may look meanwhile

    def _find(self, scope: Scope) -> list[Any]:
        holders = {v: _checked(scope.find_var(v.name), v, self._steps, self._place) for v in self._steps.state}
        for values in self._flat:
            _gather([holders[value] for value in values], self._place)
        return [
            self._place.vector(holders[_first_of(each)].value, product(each.tensor_type.shape))
            if isinstance(each, FlatView)
            else holders[each].value
            for each in self._wanted
        ]


def _is_alike(old: Any, new: Any) -> bool:
    """Whether an array has the type of another."""
    return type(old) is type(new) and not is_rows(new) and (old.dtype, old.shape) == (new.dtype, new.shape)


def _first_of(vector: FlatView) -> Value:
    """The first part that has elements: the address of an empty array says nothing."""
    return next((part for part in vector.parts if product(part.tensor_type.shape)), vector.parts[0])


def _gather(holders: list[ScopeVariable], place: Place) -> None:
    """Move the arrays of `holders` into one vector, unless they are neighbours already."""
    arrays = [holder.value for holder in holders]
    if _are_neighbours(arrays, place):
        return
    dtype, size = arrays[0].dtype, sum(array.size for array in arrays)
    vector = place.bytes(size * dtype.itemsize).view(dtype)
    start = 0
    for holder, array in zip(holders, arrays, strict=True):
        moved_to = vector[start : start + array.size].reshape(array.shape)
        moved_to[...] = array
        holder.move(moved_to, place)
        start += array.size


def _are_neighbours(arrays: list[Any], place: Place) -> bool:
    base = arrays[0].base
    # Arrays without a common base may be adjacent by chance, and one of them may be freed.
    if base is None or not all(array.base is base and array.flags.c_contiguous for array in arrays):
        return False
    expected = place.address(arrays[0])
    for array in arrays:
        if array.size and place.address(array) != expected:
            return False
        expected += array.nbytes
    return True


def _checked(holder: ScopeVariable | None, wanted: Value, steps: Steps, place: Place) -> ScopeVariable:
    """`holder`, with its value moved to `place`."""
    value = holder.value if holder is not None else None
    expected = wanted.tensor_type
    if holder is None or value is None:
        problem = ExecutionError(f"{wanted.name} has no value in the scope", hint=_how_to_start(wanted, steps))
        raise _for_reader(problem, wanted, steps)
    if value.shape != expected.shape or value.dtype != expected.dtype.numpy or is_rows(value) is not expected.is_rows:
        problem = ExecutionError(
            f"{wanted.name} is declared {expected} but the scope holds {type_of(value)}",
            hint="Use another Scope or another name: programs that share a scope must agree on their parameters.",
        )
        raise _for_reader(problem, wanted, steps)
    # The value stays on the new place, so that only the first run moves it.
    if holder.place != place:
        holder.move(moved(value, holder.place, place), place)
    return holder


def _how_to_start(wanted: Value, steps: Steps) -> str:
    """Tell how a variable gets its first value; what a program adds up has it from an evaluator's `reset`."""
    reader = _reader(wanted, steps)
    if reader is not None and reader.type == "sum" and wanted.name in reader.output_arg_names:
        return "Call reset(executor) of the evaluator that adds it up, or set it with layers.fill_constant(out=...)."
    return "Run the startup program first, or set it with scope.var(name).get_tensor().set(array, place)."


def _reader(wanted: Value, steps: Steps) -> Operator | None:
    """The first operator that reads the value; None if the value is only fetched."""
    return next((step.op for step in steps.steps if wanted in step.reads), None)


def _for_reader(problem: MinigraphError, wanted: Value, steps: Steps) -> MinigraphError:
    reader = _reader(wanted, steps)
    return explain(problem, reader, reader.block) if reader is not None else problem
