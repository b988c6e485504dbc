"""Record products of matrices as the calls of BLAS that NumPy makes for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit.functions import UnsupportedError, address_of, inner_loop
from minigraph.kernels.jit.recording import FUNCTIONS, Recording, Symbol
from minigraph.support import blas

_PRODUCTS = 256
"""Multiplications of a matrix product that count as one element: outside of a table a product is no quicker."""

_PLAIN, _TRANSPOSED = 111, 112
"""Forms of a matrix, as BLAS counts them."""

_BY_ROWS, _BY_COLUMNS = 101, 102
"""Orders of a matrix, as BLAS counts them."""


def dot(recording: Recording, a: Symbol, b: Symbol) -> Symbol:
    """The product of two matrices, or of one and a vector, by the function of BLAS that `numpy.dot` calls."""
    if {a.ndim, b.ndim} not in ({2}, {1, 2}) or a.dtype != b.dtype or not (a.size and b.size):
        raise UnsupportedError("no matrices")
    a, b = _without_gaps(a), _without_gaps(b)
    shape = (*a.shape[:-1], *b.shape[1:])
    recording.work += prod(shape) * a.shape[-1] // _PRODUCTS + prod(shape)
    if a.size == b.size == 1:
        return np.multiply(b.reshape(shape), a.reshape(shape))  # type: ignore[return-value]  # of symbols
    result = recording.new(shape, a.dtype)
    if 1 in (a.size, b.size):
        number, vector = (a, b) if a.size == 1 else (b, a)
        _emit(recording, "axpy", [number, vector, result], [vector.size], [_step(vector)])
    elif _is_matrix(a):
        if _is_matrix(b):
            _multiply_matrices(recording, a, b, result)
        else:
            _emit(recording, "gemv", [a, b, result], a.shape, [*_order(a), _PLAIN, _step(b)])
    elif _is_matrix(b):
        _emit(recording, "gemv", [b, a, result], b.shape, [*_order(b), _TRANSPOSED, _step(a)])
    elif a.shape[-1] == 1:
        _multiply_matrices(recording, a, b, result)
    else:
        _emit(recording, "dot", [a, b, result], [a.size], [_step(a), _step(b)])
    return result


def _without_gaps(x: Symbol) -> Symbol:
    """`x`, or a copy of it if it is a matrix with gaps."""
    flags = x.value.layout.flags
    return x if flags.c_contiguous or flags.f_contiguous or not _is_matrix(x) else x.recording.copied(x)


def _any_dot(recording: Recording, a: Any, b: Any, out: None = None) -> Symbol:
    """``numpy.dot``, where one operand may be a known array."""
    common = next(x.dtype for x in (a, b) if isinstance(x, Symbol))
    if out is not None or any(isinstance(x, np.ndarray) and x.dtype != common for x in (a, b)):
        raise UnsupportedError("another type, or memory that is given")
    return dot(recording, *[x if isinstance(x, Symbol) else recording.constant(x, common) for x in (a, b)])


FUNCTIONS["dot"] = _any_dot


def dots(recording: Recording, x: Symbol, vector: Symbol) -> Symbol:
    """The product of each row with a vector, as `numpy.dot` makes it for more than two dimensions."""
    rows, size = x.size // vector.size, x.dtype.itemsize
    if not x.value.layout.flags.c_contiguous:
        raise UnsupportedError("another order")
    result = recording.new(x.shape[:-1], x.dtype)
    recording.work += x.size
    _emit(recording, "dot", [x, vector, result], [vector.size], [1, 1, 0, vector.size * size, 0, size], rows)
    return result


def square(recording: Recording, vector: Symbol) -> Symbol:
    """The product of a vector with itself, in an array of one."""
    result = recording.new((1,), vector.dtype)
    recording.work += vector.size
    _emit(recording, "dot", [vector, vector, result], [vector.size], [1, 1])
    return result


def matmul(recording: Recording, a: Symbol, b: Symbol) -> Symbol:
    """The products of batches of matrices, by NumPy's loop for `numpy.matmul`."""
    if a.dtype != b.dtype or a.dtype.name not in ("float32", "float64") or not (a.size and b.size):
        raise UnsupportedError("no matrices of one type")
    layouts = [x.value.layout for x in (a, b)]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x, y = (np.broadcast_to(layout, (*batch, *layout.shape[-2:])) for layout in layouts)
    result = recording.new((*x.shape[:-1], y.shape[-1]), a.dtype)
    z = result.value.layout
    recording.work += z.size * x.shape[-1] // _PRODUCTS + z.size
    count, steps = _one_loop(batch, [each.strides[:-2] for each in (x, y, z)])
    loop, _, _ = inner_loop(np.matmul, a.dtype.char)
    sizes = (count, x.shape[-2], x.shape[-1], y.shape[-1])
    strides = [*steps, *x.strides[-2:], *y.strides[-2:], *z.strides[-2:]]
    recording.emit(address_of("matmul"), [a, b, result], sizes, strides, loop)
    return result


def _one_loop(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[int, list[int]]:
    """Number of elements of these dimensions, and the step of each operand from one to the next."""
    count, steps = 1, [0] * len(strides)
    for size, own in zip(reversed(shape), zip(*map(reversed, strides), strict=True), strict=True):
        if size == 1:
            continue
        if count == 1:
            steps = list(own)
        elif list(own) != [count * step for step in steps]:
            raise UnsupportedError("more than one loop")
        count *= size
    return count, steps


def _multiply_matrices(recording: Recording, a: Symbol, b: Symbol, result: Symbol) -> None:
    if a.shape == b.shape[::-1]:
        recording.distinct.append((a.value.memory, b.value.memory))
    (a_form, a_row), (b_form, b_row) = _form(a), _form(b)
    sizes = (*result.shape, a.shape[1])
    _emit(recording, "gemm", [a, b, result], sizes, [a_form, b_form, a_row, b_row, result.shape[1]])


def _emit(
    recording: Recording,
    name: str,
    operands: Sequence[Symbol],
    sizes: Sequence[int],
    strides: Sequence[int],
    times: int = 1,
) -> None:
    function, own = _product(name, operands[0].dtype)
    recording.emit(function, operands, sizes, strides, own, times)


def _is_matrix(x: Symbol) -> bool:
    return x.ndim == 2 and min(x.shape) > 1


def _step(vector: Symbol) -> int:
    """Elements from one number of a vector, or of a matrix of one row or column, to the next."""
    layout = vector.value.layout
    axis = 1 if vector.ndim == 2 and vector.shape[0] == 1 else 0
    if layout.strides[axis] <= 0:
        raise UnsupportedError("another order")
    return int(layout.strides[axis]) // vector.dtype.itemsize


def _order(matrix: Symbol) -> tuple[int, int]:
    """The order of a matrix, and the length of the rows or columns in memory."""
    flags = matrix.value.layout.flags
    if not flags.c_contiguous and not flags.f_contiguous:
        raise UnsupportedError("a matrix with gaps")
    return (_BY_ROWS, matrix.shape[1]) if flags.c_contiguous else (_BY_COLUMNS, matrix.shape[0])


def _form(matrix: Symbol) -> tuple[int, int]:
    """The form and the length of the rows in memory; a single row or column counts as transposed, as for NumPy."""
    flags = matrix.value.layout.flags
    if flags.f_contiguous:
        return _TRANSPOSED, matrix.shape[0]
    if flags.c_contiguous:
        return _PLAIN, matrix.shape[1]
    raise UnsupportedError("a matrix with gaps")


@cache
def _product(name: str, dtype: np.dtype) -> tuple[int, int]:
    """Address of minigraph's function for a product, and that of BLAS's."""
    letter = {"float32": "s", "float64": "d"}.get(dtype.name)
    found = blas.address_of(f"cblas_{letter}{name}") if letter else None
    if found is None:
        raise UnsupportedError(f"no {name} of {dtype} in NumPy's wheel")
    address, width = found
    return address_of(f"{name}_{dtype.name}_int{width}"), address
