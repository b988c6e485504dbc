"""Operators whose work is recorded as calls of C functions, so that small steps follow each other without Python.

Each recording has the bits of the shared kernel, because it makes the same calls. Large arrays keep their compiled
loops, where the time of Python's calls does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.formulas import TYPES
from minigraph.kernels.fused import RESULTS
from minigraph.kernels.jit.products import dot
from minigraph.kernels.jit.recording import Recording, Symbol, UnsupportedError, native, offer_for
from minigraph.kernels.loss import FLOOR, SHORT_ROW, goes_by_columns
from minigraph.kernels.registry import find_kernel
from minigraph.kernels.sums import MANY_ROWS
from minigraph.kernels.update_rules import RULES
from minigraph.support.fused_calls import parse_calls
from minigraph.types import align_shape

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _by_kernel(type: str) -> Callable[..., Any]:
    """Make the offer that runs the operator's own kernel on symbols of float32 or float64."""

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
    product = dot(recording, _as_matrix(x, x_num_col_dims), _as_matrix(y, y_num_col_dims))
    return product.reshape(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:])


@native("mul_grad")
def mul_grad(recording, x, y, d_out, *, x_num_col_dims, y_num_col_dims, wanted):
    a, b = _as_matrix(x, x_num_col_dims), _as_matrix(y, y_num_col_dims)
    d = d_out.reshape(a.shape[0], b.shape[1])
    d_y = dot(recording, a.T, d).reshape(y.shape) if wanted[1] else None
    return dot(recording, d, b.T).reshape(x.shape) if wanted[0] else None, d_y


@native("matmul")
def matmul(recording, x, y, *, transpose_X, transpose_Y, alpha):
    if not x.ndim == y.ndim == 2 or alpha != 1:
        raise UnsupportedError("batches")
    return dot(recording, x.T if transpose_X else x, y.T if transpose_Y else y)


@native("assign")
def assign(recording, x):
    """A copy row by row; the kernel keeps the order of another one."""
    if not isinstance(x, Symbol):
        raise UnsupportedError("arrays of tensors")
    if x.is_transposed and x.dtype in _FLOATS:
        return np.positive(x)
    result = recording.new(x.shape, x.dtype)
    recording.copy(x, result)
    return result


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
    return dot(recording, recording.constant(np.ones(rows), x.dtype), x)


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


def _total(recording: Recording, x: Symbol) -> Symbol:
    """Sum of all elements, in an array of one."""
    return recording.reduce(np.add, x.reshape(-1), recording.constant(np.zeros(1), x.dtype))


@native("mean")
def mean(recording, x):
    if x.dtype not in _FLOATS:
        raise UnsupportedError("halves")
    return np.true_divide(_total(recording, x), x.size)


@native("mean_grad")
def mean_grad(recording, x, d_out):
    each = np.true_divide(d_out, x.size)
    return np.positive(each.seen(np.broadcast_to(each.value.layout, x.shape)))


@native("fill_constant")
def fill_constant(recording, *tensors, shape, dtype, value, str_value):
    if any(each for each in tensors if not isinstance(each, Symbol)) or any(isinstance(x, Symbol) for x in tensors):
        raise UnsupportedError("what tensors say")
    kernel = find_kernel("fill_constant", "cpu")
    assert kernel is not None
    found = kernel.function(np, None, None, None, shape=shape, dtype=dtype, value=value, str_value=str_value)
    return recording.constant(found, found.dtype)


# Losses, where rows are short: see `minigraph.kernels.loss`


def _columns(x: Symbol) -> Symbol:
    """The rows of `x` as columns, in the order of the columns."""
    rows = x.reshape(-1, x.shape[-1])
    columns: Symbol = np.positive(rows.T)  # type: ignore[assignment]  # of a symbol
    return columns


def _check_rows(x: Symbol, label: Symbol, ignore_index: int) -> None:
    classes = x.shape[-1]
    if x.dtype not in _FLOATS or classes > SHORT_ROW or 0 <= ignore_index < classes:
        raise UnsupportedError("long rows, or rows without a class")
    if label.size * classes != x.size or min(x.size // classes, classes) < 2:
        raise UnsupportedError("other labels")


@native("fused_mean_loss", most_columns=SHORT_ROW)
def fused_mean_loss(recording, x, label, *, ignore_index, slope, from_logits, wanted):
    _check_rows(x, label, ignore_index)
    if from_logits:
        return _mean_loss_of_logits(recording, x, label, ignore_index, slope, wanted)
    if not slope or not goes_by_columns(x.shape):
        raise UnsupportedError("another way")
    dtype, columns = x.dtype, _columns(x)
    rows = columns.shape[1]
    shifted = np.subtract(columns, recording.reduce(np.maximum, columns[1:], columns[0]))
    powers = np.exp(np.maximum(shifted, dtype.type(FLOOR)))
    y = np.true_divide(powers, _sum_of_rows(recording, powers))
    labels, match = label.reshape(-1), recording.new((rows,), dtype)
    recording.label_call("pick", labels, y, match, y)
    total = np.true_divide(_total(recording, np.negative(np.log(match))), rows)
    d_x = None
    if wanted[2]:
        steep = np.true_divide(-(dtype.type(slope) / dtype.type(rows)), match)
        along = np.multiply(match, steep)
        slopes = np.multiply(y, np.subtract(dtype.type(0), along))
        recording.label_call("put", labels, np.multiply(np.subtract(steep, along), match), slopes, slopes)
        d_x = np.positive(slopes.T).reshape(x.shape)
    return np.positive(y.T).reshape(x.shape) if wanted[0] else None, total, d_x


def _mean_loss_of_logits(recording, x, label, ignore_index, slope, wanted):
    kind = {"soft_label": False, "ignore_index": ignore_index, "axis": -1}
    y, loss = softmax_with_cross_entropy(recording, x, label, **kind)
    each = np.full(label.size, x.dtype.type(slope) / x.dtype.type(label.size), x.dtype)
    d_loss = recording.constant(each, x.dtype)
    d_x = softmax_with_cross_entropy_grad(recording, y, label, d_loss, **kind) if wanted[2] else None
    return y if wanted[0] else None, mean(recording, loss), d_x


@native("softmax_with_cross_entropy", most_columns=SHORT_ROW)
def softmax_with_cross_entropy(recording, logits, label, *, soft_label, ignore_index, axis):
    _check_rows(logits, label, ignore_index)
    if soft_label or axis not in (-1, 1) or logits.ndim > 2:
        raise UnsupportedError("another way")
    columns, classes = _columns(logits), logits.shape[-1]
    rows, dtype = logits.reshape(-1, classes), logits.dtype
    largest = recording.reduce(np.maximum, columns[1:], columns[0]).reshape(-1, 1)
    shifted, match = np.subtract(rows, largest), recording.new((label.size,), dtype)
    recording.label_call("pick", label.reshape(-1), shifted, match, shifted.T)
    powers = np.exp(np.maximum(shifted, dtype.type(FLOOR)))
    total = dot(recording, powers, recording.constant(np.ones(classes), dtype))
    loss = np.subtract(np.log(total), match)
    return np.true_divide(powers, total.reshape(-1, 1)).reshape(logits.shape), loss.reshape(label.shape)


@native("softmax_with_cross_entropy_grad", most_columns=SHORT_ROW)
def softmax_with_cross_entropy_grad(recording, y, label, d_loss, *, soft_label, ignore_index, axis):
    _check_rows(y, label, ignore_index)
    if soft_label or axis not in (-1, y.ndim - 1) or d_loss.size != label.size:
        raise UnsupportedError("another way")
    rows, labels = y.reshape(-1, y.shape[-1]), label.reshape(-1)
    less, match = np.positive(rows), recording.new((label.size,), y.dtype)
    recording.label_call("pick", labels, less, match, less.T)
    recording.label_call("put", labels, np.subtract(match, 1), less, less.T)
    return np.multiply(less, d_loss.reshape(-1, 1)).reshape(y.shape)
