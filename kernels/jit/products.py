"""Record products of matrices as the calls of BLAS that NumPy makes for them."""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from minigraph.kernels.jit.recording import Recording, Symbol, UnsupportedError, address_of
from minigraph.support import blas

_PRODUCTS = 32
"""Multiplications of a matrix product that take as long as one element of an inner loop."""

_PLAIN, _TRANSPOSED = 111, 112
"""Forms of a matrix, as BLAS counts them."""


def dot(recording: Recording, a: Symbol, b: Symbol) -> Symbol:
    """The product of two matrices, or of one and a vector, by the function that `numpy.dot` calls."""
    sizes = (*a.shape, b.shape[-1])
    if {a.ndim, b.ndim} not in ({2}, {1, 2}) or min(sizes) < 2 or a.dtype != b.dtype:
        raise UnsupportedError("no matrices")
    if a.shape == b.shape[::-1]:
        recording.distinct.append((a.value.memory, b.value.memory))
    shape = (*a.shape[:-1], *b.shape[1:])
    recording.work += prod(sizes) // _PRODUCTS + prod(shape)
    result = recording.new(shape, a.dtype)
    if a.ndim == b.ndim:
        function, own = _product("gemm", a.dtype)
        (a_form, a_row), (b_form, b_row) = _form(a), _form(b)
        strides = [a_form, b_form, a_row, b_row, shape[1]]
        recording.emit(function, [a, b, result], [*shape, a.shape[1]], strides, own)
    else:
        function, own = _product("gemv", a.dtype)
        matrix, vector, form = (a, b, _PLAIN) if a.ndim == 2 else (b, a, _TRANSPOSED)
        if matrix.is_transposed or not vector.value.layout.flags.c_contiguous:
            raise UnsupportedError("another order")
        recording.emit(function, [matrix, vector, result], matrix.shape, [form], own)
    return result


def _form(matrix: Symbol) -> tuple[int, int]:
    """The form and the length of the rows in memory."""
    layout, size = matrix.value.layout, matrix.dtype.itemsize
    if layout.flags.c_contiguous:
        return _PLAIN, layout.strides[0] // size
    if layout.flags.f_contiguous:
        return _TRANSPOSED, layout.strides[1] // size
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
