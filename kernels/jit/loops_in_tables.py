"""Compiled loops over matrices, vectors and numbers as functions that tables call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.offers import numba_name
from minigraph.kernels.jit.recording import STATUS, Recording, Symbol

_PARAMETERS = {
    "m": ("carray(pointer(load(operands + {at}), like), (load(sizes + {size}), load(sizes + {size} + 8)))", 1, 2),
    "v": ("array_at(load(operands + {at}), load(sizes + {size}), like)", 1, 1),
    "w": ("array_at(load(operands + {at}), load(sizes + {size}), np.float64(0))", 1, 1),
    "l": ("array_at(load(operands + {at}), load(sizes + {size}), label)", 1, 1),
    "n": ("load_as(load(operands + {at}), like)", 1, 0),
    "f": ("load_as(load(operands + {at}), np.float64(0))", 1, 0),
    "i": ("load(sizes + {size})", 0, 1),
}
"""By letter of a parameter the expression for it, its number of operands, and its number of sizes.

``m`` is a matrix, ``v`` a vector, ``w`` a vector of float64, ``l`` labels, ``n`` a number of the type of the matrices,
``f`` one of float64, and ``i`` a whole number.
"""


def types_of(dtype: np.dtype[Any]) -> dict[str, str]:
    """Types of the parameters, by letter, in numba's words, for matrices of this type."""
    kind = numba_name(dtype)
    vector = f"{kind}[::1]"
    return {"m": f"{kind}[:, ::1]", "v": vector, "w": "float64[::1]", "n": str(kind), "f": "float64", "i": "int64"}


@cache
def _loops(modules: Sequence[str], name: str, letters: str) -> Loops:
    """The function that calls the loop `name`, for each type of numbers and of labels."""
    operand = size = 0
    given = []
    for letter in letters:
        expression, operands, sizes = _PARAMETERS[letter]
        given.append(expression.format(at=8 * operand, size=8 * size))
        operand, size = operand + operands, size + sizes
    call = f"{name}({', '.join(given)})"
    body = [f"    if {call}:", "        store(own, 1)"] if "l" in letters else [f"    {call}"]
    lines = []
    for number in ("float32", "float64"):
        for label in ("int32", "int64"):
            lines += ["", "", f"def {name}_{number}_{label}(operands, sizes, strides, own):"]
            lines += [f"    like, label = np.{number}(0), np.{label}(0)", *body]
    return Loops(*modules, "layout", "table", text="\n".join([*lines, ""]))


def record_loop(recording: Recording, modules: Sequence[str], name: str, letters: str, *given: Any) -> None:
    """Record a call of the loop `name` of these modules, with the bits of the same loop called from Python.

    Parameters
    ----------
    letters : str
        The kinds of the parameters, see `_PARAMETERS`. The type of the first matrix or vector is that of all. A loop
        that takes labels returns how many are no class; where some are, the walk ends early.
    *given : Symbol, or number
        What the parameters get.
    """
    first = next(x for x, letter in zip(given, letters, strict=True) if letter in "mv")
    kind, labels, operands, sizes = first.dtype, "int64", list[Symbol](), list[int]()
    for x, letter in zip(given, letters, strict=True):
        if letter == "i":
            sizes.append(int(x))
        elif letter in "nf":
            operands.append(recording.constant([x], kind if letter == "n" else np.float64))
        else:
            operands.append(_checked(x, kind, letter))
            sizes += x.shape
        if letter == "l":
            labels = x.dtype.name
    recording.work += max(x.size for x in operands)
    address = _loops(tuple(modules), name, letters).address(f"{name}_{kind.name}_{labels}")
    recording.emit(address, operands, sizes, [], STATUS if "l" in letters else 0)


def _checked(x: Symbol, kind: np.dtype[Any], letter: str) -> Symbol:
    """`x`, if it lies row by row and has the type and the dimensions that its letter says."""
    wanted = ("int32", "int64") if letter == "l" else ("float64",) if letter == "w" else (kind.name,)
    if numba_name(kind) is None or x.dtype.name not in wanted or x.ndim != (2 if letter == "m" else 1):
        raise UnsupportedError("another type")
    if not x.size or not x.value.layout.flags.c_contiguous:
        raise UnsupportedError("another order, or nothing")
    return x
