"""Find the origin of a value that is not finite: repeat a failed run operator by operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minigraph.ir import Operator
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.place import Place
from minigraph.runtime.scope_variable import is_rows


def origin(
    ops: Sequence[Operator],
    wanted: Sequence[str],
    values: Mapping[str, Any],
    place: Place,
    rng: Any,
    recorded: Mapping[str, Any] | None = None,
) -> str:
    """Say what made the first value that is not finite on the way to one of `wanted`.

    Parameters
    ----------
    ops : sequence of Operator
        Operators computed until the failure, in order.
    wanted : sequence of str
        Names of the values that are not finite.
    values : mapping
        Values known before the first operator, by name.
    rng : object
        A random generator in the state that it had before the first operator.
    recorded : mapping, optional
        Values kept from the failed run; the operators that made them are not run again.
    """
    needed, known = _ancestors(ops, wanted), recorded or {}
    found = {**values, **known}

    def first_bad(names: Iterable[str]) -> str | None:
        return next((name for name in names if name in found and not is_finite(found[name], place)), None)

    # Operators that are not needed run too, so that all draw the same random numbers again.
    for op in ops:
        given = first_bad(op.input_arg_names) if op in needed else None
        if given is not None:
            return f"{given} was not finite before anything was computed; {op.type}, created at {op.site}, reads it"
        if not all(name in known for name in op.output_arg_names):
            with np.errstate(all="ignore"):
                found.update(evaluate(op, found.__getitem__, place, rng))
        made = first_bad(op.output_arg_names) if op in needed else None
        if made is not None:
            return f"the first such value is {made}, made by {op.type}, created at {op.site}"
    return "repeated one by one, the operators gave finite values"


def _ancestors(ops: Sequence[Operator], wanted: Iterable[str]) -> set[Operator]:
    names, needed = set(wanted), set()
    for op in reversed(ops):
        if names.intersection(op.output_arg_names):
            names.update(op.input_arg_names)
            needed.add(op)
    return needed


def is_finite(value: Any, place: Place) -> bool:
    """Whether every element of an array or of selected rows is finite; integers are."""
    values = value.value if is_rows(value) else value
    return values.dtype.kind != "f" or bool(place.xp.isfinite(values).all())
