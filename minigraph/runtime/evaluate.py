"""Compute one operator by its kernel, outside of any plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from math import inf
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.ir import Operator
from minigraph.ir.type_inference import blame
from minigraph.kernels.numbers import are_numbers, on_numbers
from minigraph.opdef import EMPTY, SUB_BLOCK
from minigraph.runtime.control_flow import BlockCall, call_of
from minigraph.runtime.kernel_call import arguments_of, has_rows, kernel_of, keywords_of, results_of
from minigraph.runtime.place import Place
from minigraph.runtime.scope_variable import is_rows, type_of
from minigraph.support.context import holding
from minigraph.support.interrupts import is_interrupt

_MOST_RUNS: ContextVar[float] = ContextVar("most_runs", default=inf)
_IN_ORDER: ContextVar[bool] = ContextVar("in_order", default=False)


def bounded_loops(most_runs: int) -> AbstractContextManager[None]:
    """Let `evaluate` end loops that run longer with an error, for programs that may have none."""
    return holding(_MOST_RUNS, most_runs)


def results_in_order() -> AbstractContextManager[None]:
    """Let `evaluate` give arrays whose elements are in C order in memory.

    NumPy computes the elements of a view one by one, and others several at a time, which may round in another way: so
    the last bit of a result would depend on what a reversal or a transposition stands for in memory.
    """
    return holding(_IN_ORDER, True)


def evaluate(op: Operator, read: Callable[[str], Any], place: Place, rng: Any) -> dict[str, Any]:
    """Output values of `op` by name, its inputs read through `read`.

    Raises
    ------
    ExecutionError
        If the operator has no kernel for the place, or its kernel refuses the values.
    """
    if SUB_BLOCK in op.attrs:
        return _evaluate_call(call_of(op), read, place, rng)
    arguments = arguments_of(op, read)
    kernel = kernel_of(op, place.kind, _takes_or_gives_rows(op, arguments))
    arguments += [_previous(op.outputs[slot][0], read) for slot in op.definition.updates]
    keywords = keywords_of(op, kernel)
    if kernel.takes_rng:
        keywords["rng"] = rng
    function = on_numbers(kernel.function) if _has_no_dimensions(op) else kernel.function
    results = results_of(op, function(place.xp, *arguments, **keywords))
    names = [name for slot in op.definition.outputs for name in op.outputs.get(slot.name, ())]
    if _IN_ORDER.get():
        results = [_in_order(value) for value in results]
    return {name: value for name, value in zip(names, results, strict=False) if name != EMPTY}


def _in_order(value: Any) -> Any:
    is_view = isinstance(value, np.ndarray) and not value.flags.c_contiguous
    return value.copy(order="C") if is_view else value


def _has_no_dimensions(op: Operator) -> bool:
    """Whether all that `op` reads and writes is without dimensions."""
    find = op.block.find_var
    # One at a time: for most operators the first one tells.
    used = (find(name) for names in (*op.inputs.values(), *op.outputs.values()) for name in names if name != EMPTY)
    return are_numbers(var.tensor_type.shape for var in used if var is not None and var.tensor_type is not None)


def _takes_or_gives_rows(op: Operator, arguments: Sequence[Any]) -> bool:
    """Whether a value that `op` reads or writes is selected rows; variables may hold another kind of value later."""
    slots = op.definition.inputs
    given = [each if slot.duplicable else [each] for slot, each in zip(slots, arguments, strict=True)]
    # Arguments tell more than declarations: a sum of selected rows may be dense or not.
    if any([is_rows(value) for values in given for value in values or ()]):
        return True
    if not has_rows(op, op.block):
        return False
    inputs = tuple(
        (slot.name, tuple(type_of(value) for value in values or () if value is not None))
        for slot, values in zip(slots, given, strict=True)
    )
    written = op.definition.inferred(inputs, op.attrs)
    return any(each is not None and each.is_rows for types in written.values() for each in types)


def _evaluate_call(call: BlockCall, read: Callable[[str], Any], place: Place, rng: Any) -> dict[str, Any]:
    """An operator of control flow, whose sub-block is computed operator by operator too."""
    runs, most_runs = 0, _MOST_RUNS.get()

    def body(given: Sequence[Any]) -> list[Any]:
        nonlocal runs
        runs += 1
        if runs > most_runs:
            raise ExecutionError(f"a block has run {most_runs:,} times, and its operator does not end")
        values = _BlockValues(zip(call.given, given, strict=True))
        for op in call.body.ops:
            try:
                values.update(evaluate(op, values.__getitem__, place, rng))
            except Exception as error:
                if is_interrupt(error):
                    raise
                raise blame(error, op) from error
        return [values[name] for name in call.taken]

    given = [read(name) if call.must_have(name) else _previous(name, read) for name in call.reads]
    return dict(zip(call.writes, call.run(body, given, place.xp), strict=True))


class _BlockValues(dict[str, Any]):
    """Values of a sub-block by name."""

    def __missing__(self, name: str) -> Any:
        raise ExecutionError(
            f"nothing computes {name} in its block before it is read",
            hint="Append the operator that computes it there first.",
        )


def _previous(name: str, read: Callable[[str], Any]) -> Any:
    """The value of a variable, None if it has none yet."""
    try:
        return read(name)
    except (ExecutionError, KeyError):
        return None
