"""C functions that tables call, by address: NumPy's inner loops, and minigraph's own, which `loops.table` has."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from itertools import product

import numpy as np

from minigraph.kernels.jit.compiling import Loops

IS_KNOWN = (
    sys.implementation.name == "cpython" and sys.byteorder == "little" and np.dtype(np.intp).itemsize == 8
)  # fmt: skip
"""Whether objects lie in memory as tables expect them: as CPython's do, with pointers of 8 bytes, lowest byte first."""


class UnsupportedError(Exception):
    """No calls of C functions are known for what a kernel does."""


# minigraph's own

_CONVERTED = ("bool", "uint8", "int32", "int64", "float32", "float64")

_ARGUMENTS = {
    "choose": "operands, sizes, strides, {number}(0)",
    "add_row": "operands, sizes, strides, {number}(0)",
    "check_same": "operands, sizes, own, {word}(0)",
    "take_rows": "operands, sizes, own, {word}(0)",
    "put_rows": "operands, sizes, own, {word}(0)",
    "add_rows": "operands, sizes, own, {number}(0), {word}(0)",
    "factor": "operands, {number}(0)",
    "shrink": "operands, own, {number}(1)",
    **dict.fromkeys(("gemm", "gemv", "dot", "axpy"), "operands, sizes, strides, own, {number}(1), {word}(1)"),
    **dict.fromkeys(("pick", "put"), "operands, sizes, strides, own, {number}(0), {word}(0)"),
}
"""Arguments of functions in `loops.table` that exist for each type of numbers, of whole numbers, or both."""


def _for_each_type() -> str:
    """Functions of four words, such as ``gemm_float32_int64``, that call those in `_ARGUMENTS` for their types."""
    text = ""
    for name, arguments in _ARGUMENTS.items():
        numbers = ("float32", "float64") if "{number}" in arguments else ("",)
        words = ("int32", "int64") if "{word}" in arguments else ("",)
        for number, word in product(numbers, words):
            typed = "_".join(filter(None, (name, number, word)))
            call = f"{name}({arguments.format(number=f'np.{number}', word=f'np.{word}')})"
            text += _DEFINITION.format(name=typed, call=call)
    for given, wanted in product(_CONVERTED, repeat=2):
        if not is_convertible(given, wanted):
            continue
        # A byte that is true may be any but 0.
        number = "1 if load_as(x, np.int8(0)) != 0 else 0" if given == "bool" else f"load_as(x, np.{given}(0))"
        call = f"store_as(z + i * load(strides + 8), np.{wanted}({number}))"
        text += _DEFINITION.format(name=f"convert_{given}_{wanted}", call=_LOOP.format(call=call))
    return text


_DEFINITION = "\n\ndef {name}(operands, sizes, strides, own):\n    {call}\n"

_LOOP = """first, z = load(operands), load(operands + 8)
    for i in range(load(sizes)):
        x = first + i * load(strides)
        {call}"""


def is_convertible(given: str, wanted: str) -> bool:
    """Whether there is a function that converts numbers: C does not say which integers fractions become."""
    known = {given, wanted} <= set(_CONVERTED) and wanted not in ("bool", "uint8")
    return known and given != wanted and not (given.startswith("float") and wanted.startswith("int"))


LOOPS = Loops("layout", "table", text=_for_each_type())


@cache
def address_of(name: str) -> int:
    """Address of one of minigraph's own functions for tables."""
    return LOOPS.address(name)


# Those of NumPy


@cache
def inner_loop(ufunc: np.ufunc, kind: str) -> tuple[int, int, np.dtype]:
    """Address of the inner loop for operands of one type, its own word, and the type of the result.

    The fields of a ufunc are those of ``PyUFuncObject`` in NumPy's public header ``ufuncobject.h``. Those that Python
    knows as well are compared first, so that a NumPy with another layout is refused and not called at a wrong address.
    """
    fields = id(ufunc) + object.__basicsize__
    counts = [ctypes.c_int.from_address(fields + 4 * i).value for i in range(3)]
    functions, own = (ctypes.c_void_p.from_address(fields + i).value or 0 for i in (16, 24))
    count = ctypes.c_int.from_address(fields + 32).value
    if (*counts, count) != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes) or not functions:
        raise UnsupportedError("ufuncs have other fields")
    given = kind * ufunc.nin + "->"
    at = next((i for i, types in enumerate(ufunc.types) if types.startswith(given)), None)
    if at is None:
        raise UnsupportedError(f"{ufunc.__name__} of {kind}")
    function, word = (ctypes.c_void_p.from_address(each + 8 * at).value if each else 0 for each in (functions, own))
    return function or 0, word or 0, np.dtype(ufunc.types[at][len(given) :])
