"""Validate fetch lists; convert results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from minigraph.errors import ExecutionError, NotFoundError, ProgramError, WrongTypeError, caller_site, suggest
from minigraph.ir import Operator, Program, Role, Variable
from minigraph.runtime.lod import Levels
from minigraph.runtime.one_element import for_user
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope, global_scope
from minigraph.runtime.scope_variable import LoDTensor, ScopeVariable, SelectedRows, is_rows
from minigraph.support.public import public
from minigraph.types import VarKind

_ARRAY = {np.ndarray}
_FEW = 8
"""Minimum number of results that are looked at by functions written in C."""
_is_row_major = attrgetter("flags.c_contiguous")


def fetch_names(program: Program, fetch_list: Any) -> tuple[str, ...]:
    """Names of what is to be fetched, checked.

    Raises
    ------
    WrongTypeError
        For an entry that is neither Variable nor name.
    NotFoundError
        For a name that the program does not have.
    ProgramError
        For what an operator keeps for its gradient.
    """
    if fetch_list is None:
        return ()
    names = []
    variables = program.global_block().vars
    for entry in _entries(fetch_list):
        if isinstance(entry, Operator) and entry.role & Role.OPTIMIZE:
            continue  # runs in any case
        if not isinstance(entry, Variable | str):
            raise WrongTypeError(f"fetch_list holds {entry!r:.80}, which is no Variable or name")
        name = entry if isinstance(entry, str) else entry.name
        if name not in variables:
            raise NotFoundError(
                f"the program has no variable {name!r} to fetch", site=caller_site(), hint=suggest(name, variables)
            )
        if variables[name].kind is VarKind.STEP_SCOPES:
            raise ProgramError(f"{name} is what an operator keeps for its gradient and cannot be fetched")
        names.append(name)
    return tuple(names)


def _entries(fetch_list: Any) -> Iterator[Any]:
    """Entries of a fetch list and of lists in it.

    As in fluid the list may be a single variable, and an entry the result of `minimize`.
    """
    for entry in fetch_list if isinstance(fetch_list, list | tuple) else [fetch_list]:
        if isinstance(entry, tuple) and entry and isinstance(entry[0], list):
            yield from entry[0]  # the operators of (operators, pairs of parameters and gradients)
        elif isinstance(entry, list | tuple):
            yield from entry
        else:
            yield entry


def unshared_results(
    fetched: Sequence[Any], must_copy: Sequence[bool], others: Sequence[Any], new_state: Sequence[Any]
) -> list[Any]:
    """The fetched arrays, each the caller's own: what may share memory with `others` or `new_state` is copied."""
    # Identities are unique here, because all these arrays are alive.
    shared = {*map(id, others), *map(id, new_state), *map(_owner, new_state)}
    found = []
    for value, copy in zip(fetched, must_copy, strict=True):
        if copy and isinstance(value, list):
            value = [None if each is None else each.copy() for each in value]
        # A kernel may have returned new memory where the plan allowed a view: then there is nothing to copy.
        elif copy and value is not None and (is_rows(value) or value.base is not None or id(value) in shared):
            value = value.copy()
        shared.add(_owner(value))
        found.append(value)
    return found


def _owner(value: Any) -> int:
    """The identity of the array that has the memory of a value."""
    array = value.value if is_rows(value) else value
    base = getattr(array, "base", None)
    return id(array if base is None else base)


def results_of(
    values: list[Any], place: Place, return_numpy: bool, names: tuple[str, ...], numbers: Sequence[int] | None = None
) -> list[Any]:
    """Results of a run for fetched values, each the caller's own; arrays are in row-major order, as in fluid.

    `numbers` are the positions of the values that may have one element; None if each may.
    """
    if return_numpy and place.kind == "cpu" and set(map(type, values)) <= _ARRAY:
        # A loop in Python over a thousand results takes as long as the rest; for a few it is faster.
        if numbers is None or len(values) < _FEW or not all(map(_is_row_major, values)):
            return [value if value.flags.c_contiguous and value.size != 1 else for_user(value) for value in values]
        for position in numbers:
            values[position] = for_user(values[position])
        return values
    return [_result(value, place, return_numpy, name) for name, value in zip(names, values, strict=True)]


class WithLengths(NamedTuple):
    """A fetched value and the offsets of the sequences among its rows."""

    value: Any
    levels: Sequence[Any]


def with_lengths(values: list[Any], counts: Sequence[int]) -> list[Any]:
    """The fetched values with their lengths, of which there are `counts` levels each, after all values."""
    if not counts:
        return values
    offsets = iter(values[len(counts) :])
    pairs = zip(values[: len(counts)], counts, strict=True)
    return [WithLengths(value, list(islice(offsets, count))) if count else value for value, count in pairs]


def keep_lengths(scope: Scope, counts: Iterable[tuple[str, int]], levels: Iterable[Any]) -> None:
    """Note the lengths of persistable variables that a run has written.

    `counts` are their names and numbers of levels, `levels` the offsets of all, one variable after the other.
    """
    offsets = iter(levels)
    for name, count in counts:
        scope.var(name).lod = _as_lod(islice(offsets, count))


def _as_lod(levels: Iterable[Any]) -> Levels:
    return tuple(tuple(level.tolist()) for level in levels)


def refuse_lengths(names: Sequence[str], levels: Sequence[Any]) -> None:
    """Raise if a fetched value would have lengths, which an array cannot hold."""
    found = [name for name, has_lengths in zip(names, levels, strict=False) if has_lengths]
    if found:
        raise ExecutionError(
            f"{', '.join(found)}: what is fetched has sequences of several lengths, which an array cannot hold",
            site=caller_site(), hint="Run with return_numpy=False for LoDTensors; np.array(tensor) is the rows.",
        )  # fmt: skip


def fetch_var(name: str | Variable, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """The value that a scope, by default the current one, holds for a variable; a handle on it unless `return_numpy`.

    Raises
    ------
    NotFoundError
        If it holds none.
    """
    key = name.name if isinstance(name, Variable) else name
    scope = scope or global_scope()
    found = scope.find_var(key)
    if found is None or found.value is None:
        raise NotFoundError(
            f"the scope has no value of {key!r}", site=caller_site(),
            hint=suggest(key, scope.local_var_names()) or "Only persistable variables keep a value after a run.",
        )  # fmt: skip
    return _result(found.value, found.place, True, key) if return_numpy else found.get_tensor()


@public
def as_numpy(tensor: LoDTensor | list[Any]) -> Any:
    """The array of a tensor without lengths of sequences; of a list of tensors the list of theirs."""
    if isinstance(tensor, list):
        return [as_numpy(each) for each in tensor]
    if not isinstance(tensor, LoDTensor):
        raise WrongTypeError(f"as_numpy takes a LoDTensor or a list of them, got {type(tensor).__name__}")
    refuse_lengths(["the tensor"], [tensor.lod()])
    return np.array(tensor)


def _result(value: Any, place: Place, return_numpy: bool, name: str) -> Any:
    if value is None:
        raise ExecutionError(
            f"{name} has no value, because the block that writes it did not run", site=caller_site(),
            hint="Assign it a value before the branch or loop.",
        )  # fmt: skip
    if isinstance(value, WithLengths):
        return _with_levels(value, place, return_numpy, name)
    if isinstance(value, list):  # an array of tensors
        return [None if each is None else _result(each, place, return_numpy, name) for each in value]
    if is_rows(value):
        return SelectedRows(ScopeVariable(name, value, place))
    if return_numpy:
        return for_user(place.to_host(value))
    return LoDTensor(ScopeVariable(name, value, place))


def _with_levels(fetched: WithLengths, place: Place, return_numpy: bool, name: str) -> Any:
    value, levels = fetched
    if isinstance(value, list):
        lengths = [WithLengths(each, [level[i] for level in levels]) for i, each in enumerate(value)]
        return _result(lengths, place, return_numpy, name)
    tensor = ScopeVariable(name, value, place)
    tensor.lod = _as_lod(levels)
    return LoDTensor(tensor)
