"""Call a Python function of the user's, with arrays in the memory of the host."""

from __future__ import annotations

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.support.py_functions import called
from minigraph.types import parse_type, same_shape


@kernel("py_func")
def py_func(xp, x, *, forward_callable_id, functions, out_types, wanted):
    name = functions[0]
    # Copies: the function may keep them, and the next step writes over these arrays.
    result = called(forward_callable_id, name)(*(each.copy() if xp is np else xp.asnumpy(each) for each in x or ()))
    results = result if isinstance(result, (list, tuple)) else (result,)
    (flags,) = wanted
    if not flags and len(results) == 1 and results[0] is None:
        return []
    if len(results) != len(flags):
        raise ExecutionError(
            f"{name} must return {_count(len(flags))}, it returned {_count(len(results))}",
            hint="Return an array, or a tuple of arrays: a list or tuple counts as several results.",
        )
    return [
        xp.asarray(_checked(name, each, parse_type(declared))) if is_wanted else None
        for each, declared, is_wanted in zip(results, out_types, flags, strict=True)
    ]


def _count(number):
    return "nothing" if number == 0 else "one result" if number == 1 else f"{number} results"


def _checked(name, result, declared):
    """A result as an array of the declared type: rounded to it where both are floats, else unchanged in value."""
    if result is None:
        raise ExecutionError(f"{name} returned None where {declared} is needed")
    array = np.array(result)
    if array.ndim == 0 and len(declared.shape) == 1:
        array = array.reshape(1)
    dtype = declared.dtype.numpy
    if array.dtype.kind in "biuf" and same_shape(array.shape, declared.shape):
        converted = array.astype(dtype)
        if array.dtype.kind == dtype.kind == "f" or np.array_equal(converted, array):
            return converted
    raise ExecutionError(
        f"{name} returned {array.dtype}{list(array.shape)} where {declared} is needed",
        hint="Return that, or declare the variable otherwise.",
    )
