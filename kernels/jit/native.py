"""Operators whose work is recorded as calls of C functions, so that small steps follow each other without Python.

Each offer gives the bits of the shared kernel, because it makes the same calls. Large arrays are left to other loops,
beside which calls take no time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.formulas import TYPES
from minigraph.kernels.fused import RESULTS
from minigraph.kernels.jit.recording import Recording, Symbol, UnsupportedError, native, offer_for
from minigraph.kernels.registry import find_kernel
from minigraph.kernels.sums import MANY_ROWS
from minigraph.kernels.update_rules import RULES
from minigraph.support.fused_calls import parse_calls
from minigraph.types import align_shape

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _by_kernel(type: str) -> Callable[..., Any]:
    """What the operator's kernel does with symbols of float32 or float64."""

    def offer(recording: Recording, *inputs: Any, **attrs: Any) -> Any:
        kernel = find_kernel(type, "cpu")
        assert kernel is not None
        arrays = [x for entry in inputs for x in (entry if isinstance(entry, list) else [entry]) if x is not None]
        if {x.dtype for x in arrays} not in [{each} for each in _FLOATS] or any(x.is_transposed for x in arrays):
            raise UnsupportedError("not of one type and order")
        return kernel.function(recording.module, *inputs, **attrs)

    return offer


for _type in TYPES:
    native(_type)(_by_kernel(_type))
for _type, _rule in RULES.items():
    if "skip" in _rule.inputs:
        native(_type)(_by_kernel(_type))


@native("fused_elementwise")
def fused_elementwise(recording, xs, *, steps):
    known: dict[Any, Any] = {f"x{i}": x for i, x in enumerate(xs)} | {None: None}
    for call in parse_calls(tuple(steps)):
        inputs = [[known[n] for n in x] if isinstance(x, tuple) else known[x] for x in call.inputs]
        words = {"wanted": tuple(name is not None for name in call.outputs)} if len(call.outputs) > 1 else {}
        results = offer_for(call.type)(recording, *inputs, **call.attrs, **words)
        known.update(zip(call.outputs, results if len(call.outputs) > 1 else (results,), strict=True))
        known[None] = None
    return tuple(known.get(f"y{i}") for i in range(RESULTS))


# Products


def _as_matrix(x: Symbol, dims: int) -> Symbol:
    return x.reshape(prod(x.shape[:dims]), prod(x.shape[dims:]))


@native("mul")
def mul(recording, x, y, *, x_num_col_dims, y_num_col_dims):
    product = recording.dot(_as_matrix(x, x_num_col_dims), _as_matrix(y, y_num_col_dims))
    return product.reshape(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:])


@native("mul_grad")
def mul_grad(recording, x, y, d_out, *, x_num_col_dims, y_num_col_dims, wanted):
    a, b = _as_matrix(x, x_num_col_dims), _as_matrix(y, y_num_col_dims)
    d = d_out.reshape(a.shape[0], b.shape[1])
    d_y = recording.dot(a.T, d).reshape(y.shape) if wanted[1] else None
    return recording.dot(d, b.T).reshape(x.shape) if wanted[0] else None, d_y


@native("matmul")
def matmul(recording, x, y, *, transpose_X, transpose_Y, alpha):
    if not x.ndim == y.ndim == 2 or alpha != 1:
        raise UnsupportedError("batches")
    return recording.dot(x.T if transpose_X else x, y.T if transpose_Y else y)


@native("transpose2")
def transpose2(recording, x, *, axis):
    if tuple(axis) != (1, 0):
        raise UnsupportedError("no matrix")
    return x.T, recording.new((0, *x.shape), x.dtype)


# Sums


def _sum_of_rows(recording: Recording, x: Symbol) -> Symbol:
    """Sum of the rows of a matrix, as `minigraph.kernels.sums` makes it."""
    rows = x.shape[0]
    if rows >= MANY_ROWS or x.dtype not in _FLOATS:
        raise UnsupportedError("many rows")
    return recording.dot(recording.constant(np.ones(rows), x.dtype), x)


@native("elementwise_add_grad")
def elementwise_add_grad(recording, x, y, d_out, *, axis, wanted):
    if x.shape != d_out.shape or not d_out.size:
        raise UnsupportedError("X is broadcast, or nothing is there")
    d_y = None
    if wanted[1] and y.shape == d_out.shape:
        d_y = d_out
    elif wanted[1]:
        aligned = align_shape(x.shape, y.shape, axis)
        axes = [i for i, (size, own) in enumerate(zip(x.shape, aligned, strict=True)) if size != own]
        if axes != list(range(len(axes))) or len(axes) == x.ndim:
            raise UnsupportedError("not the leading dimensions")
        rows = prod(x.shape[: len(axes)])
        d_y = _sum_of_rows(recording, d_out.reshape(rows, d_out.size // rows)).reshape(y.shape)
    return d_out if wanted[0] else None, d_y
