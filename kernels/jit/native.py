"""Operators whose work is recorded as calls of C functions, so that small steps follow each other without Python.

Each recording has the bits of the shared kernel, because it makes the same calls. Large arrays keep their compiled
loops, where the time of Python's calls does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.formulas import TYPES, has_formula, takes_error_function
from minigraph.kernels.fused import RESULTS
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.products import dot, dots
from minigraph.kernels.jit.products import matmul as batched
from minigraph.kernels.jit.recorders import native, offer_for
from minigraph.kernels.jit.recording import FUNCTIONS, Recording, Symbol
from minigraph.kernels.loss import FLOOR, SHORT_ROW, goes_by_columns
from minigraph.kernels.registry import find_kernel
from minigraph.kernels.sums import MANY_ROWS, are_rows, sums_of_last
from minigraph.kernels.update_rules import RULES
from minigraph.support.fused_calls import parse_calls
from minigraph.types import align_shape, as_dtype

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _by_kernel(type: str) -> Callable[..., Any]:
    """Make the offer that runs the operator's own kernel on symbols of float32 or float64."""

    def offer(recording: Recording, *inputs: Any, **attrs: Any) -> Any:
        kernel = find_kernel(type, "cpu")
        assert kernel is not None
        arrays = [x for entry in inputs for x in (entry if isinstance(entry, list) else [entry]) if x is not None]
        if {x.dtype for x in arrays} not in [{each} for each in _FLOATS] or any(x.is_transposed for x in arrays):
            raise UnsupportedError("not of one type and order")
        if type in TYPES and not has_formula(type, attrs, arrays[0].dtype):
            raise UnsupportedError("no formula")
        return kernel.function(np, *inputs, **attrs)

    return offer


def _is_short(type: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda attrs: not takes_error_function(type, attrs)


for _type in TYPES:
    native(_type, replaces_loops=_is_short(_type))(_by_kernel(_type))
for _type, _rule in RULES.items():
    if "skip" in _rule.inputs:
        native(_type)(_by_kernel(_type))


def _are_short(attrs: Mapping[str, Any]) -> bool:
    return not any(takes_error_function(call.type, call.attrs) for call in parse_calls(tuple(attrs["steps"])))


@native("fused_elementwise", replaces_loops=_are_short)
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
    a, b = _operands(x, y, transpose_X, transpose_Y)
    product = _product(recording, a, b)
    return product if alpha == 1 else np.multiply(product, alpha)


def _operands(x: Symbol, y: Symbol, transpose_x: bool, transpose_y: bool) -> tuple[Symbol, Symbol]:
    """Both as batches of matrices, see `minigraph.kernels.matrix`."""
    if min(x.ndim, y.ndim) < 2:
        raise UnsupportedError("vectors")
    a, b = _transposed(x) if transpose_x else x, _transposed(y) if transpose_y else y
    return a, b.reshape(a.shape[:-2] + b.shape[-2:]) if a.ndim > 2 and b.ndim > 2 else b


def _transposed(x: Symbol) -> Symbol:
    return x.seen(x.value.layout.swapaxes(-1, -2))


def _product(recording: Recording, a: Symbol, b: Symbol) -> Any:
    if b.ndim == 2:
        return dot(recording, _as_matrix(a, a.ndim - 1), b).reshape(*a.shape[:-1], b.shape[-1])
    return np.multiply(a, b) if a.shape[-1] == 1 else batched(recording, a, b)


@native("matmul_grad")
def matmul_grad(recording, x, y, d_out, *, transpose_X, transpose_Y, alpha, wanted):
    a, b = _operands(x, y, transpose_X, transpose_Y)
    d = d_out.reshape(*(a.shape[:-2] or b.shape[:-2]), a.shape[-2], b.shape[-1])
    d = d if alpha == 1 else np.multiply(d, alpha)
    d_x = _operand_gradient(recording, d, _transposed(b), x, transpose_X) if wanted[0] else None
    d_y = None
    if wanted[1] and a.ndim > 2 and y.ndim == 2 and not transpose_Y:
        d_y = dot(recording, _as_matrix(a, a.ndim - 1).T, _as_matrix(d, d.ndim - 1))
    elif wanted[1]:
        d_y = _operand_gradient(recording, _transposed(a), d, y, transpose_Y)
    return d_x, d_y


def _operand_gradient(recording: Recording, left: Symbol, right: Symbol, operand: Symbol, transposed: bool) -> Any:
    # The kernel moves axes for one long product, which a recording of layouts cannot.
    if left.ndim > 2 and operand.ndim <= 2:
        raise UnsupportedError("a sum over the batch")
    if transposed:
        left, right = _transposed(right), _transposed(left)
    return _product(recording, left, right).reshape(operand.shape)


@native("assign")
def assign(recording, x):
    """A copy row by row; the kernel keeps the order of another one."""
    if not isinstance(x, Symbol):
        raise UnsupportedError("arrays of tensors")
    return recording.copied(x)


# Sums


def _sum_of_rows(recording: Recording, x: Symbol) -> Symbol:
    """Sum of the rows of a matrix, as `minigraph.kernels.sums` makes it."""
    rows = x.shape[0]
    # The kernel adds many rows in another way, and the bits must be the same.
    if rows >= MANY_ROWS or x.dtype not in _FLOATS:
        raise UnsupportedError("many rows")
    return dot(recording, recording.constant(np.ones(rows), x.dtype), x)


@native("elementwise_add_grad")
def elementwise_add_grad(recording, x, y, d_out, *, axis, wanted):
    if x.shape != d_out.shape or not d_out.size:
        raise UnsupportedError("X is broadcast, or nothing is there")
    d_y = None
    if wanted[1]:
        aligned = align_shape(x.shape, y.shape, axis)
        axes = [i for i, (size, own) in enumerate(zip(x.shape, aligned, strict=True)) if size != own]
        if axes != list(range(len(axes))) or (axes and len(axes) == x.ndim):
            raise UnsupportedError("not the leading dimensions")
        d_y = (_sum_of_rows(recording, _as_matrix(d_out, len(axes))) if axes else d_out).reshape(y.shape)
    return d_out if wanted[0] else None, d_y


def _total(recording: Recording, x: Symbol) -> Symbol:
    """Sum of all elements, in an array of one."""
    return recording.reduced(np.add, x.reshape(-1), keepdims=True)


@native("reduce_sum")
def reduce_sum(recording, x, *, dim, keep_dim, reduce_all, out_dtype):
    if x.dtype not in _FLOATS or out_dtype not in (-1, int(as_dtype(x.dtype))) or x.is_transposed or not x.size:
        raise UnsupportedError("another type or order")
    axes = _axes(x, dim, reduce_all)
    kept = [size for i, size in enumerate(x.shape) if i not in axes]
    if len(axes) == x.ndim:
        total = _total(recording, x)
    elif are_rows(x.shape, axes):
        total = _sum_of_rows(recording, _as_matrix(x, len(axes)))
    elif axes == tuple(range(len(kept), x.ndim)):
        total = sums_of_last(x, axes)
    else:
        raise UnsupportedError("dimensions in between")
    return total.reshape([1 if i in axes else size for i, size in enumerate(x.shape)] if keep_dim else kept or [1])


def _by_reducing(ufunc: np.ufunc) -> Callable[..., Any]:
    """The function of NumPy that does no more than reduce, such as ``numpy.sum``."""

    def function(recording: Recording, x: Symbol, axis: Any = None, **options: Any) -> Any:
        return ufunc.reduce(x, axis, **options)

    return function


FUNCTIONS |= {"sum": _by_reducing(np.add), "prod": _by_reducing(np.multiply)}
FUNCTIONS |= dict.fromkeys(("max", "amax"), _by_reducing(np.maximum))
FUNCTIONS |= dict.fromkeys(("min", "amin"), _by_reducing(np.minimum))


def _clip(recording: Recording, x: Symbol, low: Any, high: Any, out: Any = None, **options: Any) -> Any:
    # At a bound of 0 the sign of a zero is another one.
    if not (isinstance(low, int | float) and isinstance(high, int | float) and low and high):
        raise UnsupportedError("bounds that may be 0")
    return np.minimum(np.maximum(x, low, **options), high, out=out)


FUNCTIONS["clip"] = _clip


def _axes(x: Symbol, dim: Sequence[int], reduce_all: bool) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if reduce_all else tuple(sorted(axis % x.ndim for axis in dim))


@native("reduce_mean")
def reduce_mean(recording, x, **attrs):
    total = reduce_sum(recording, x, **attrs)
    count = x.size // total.size
    return total if count == 1 else np.true_divide(total, count)


@native("reduce_sum_grad")
def reduce_sum_grad(recording, x, d_out, *, dim, reduce_all):
    axes = _axes(x, dim, reduce_all)
    d = d_out.reshape([1 if i in axes else size for i, size in enumerate(x.shape)])
    if x.dtype not in _FLOATS or d.dtype != x.dtype:
        raise UnsupportedError("another type")
    return _spread(d, x)


@native("reduce_mean_grad")
def reduce_mean_grad(recording, x, d_out, **attrs):
    return reduce_sum_grad(recording, x, np.true_divide(d_out, x.size // max(d_out.size, 1)), **attrs)


def _spread(d: Any, x: Symbol) -> Any:
    if not x.shape:
        raise UnsupportedError("no dimensions")
    return np.positive(d.seen(np.broadcast_to(d.value.layout, x.shape)))


@native("mean")
def mean(recording, x):
    if x.dtype not in _FLOATS:
        raise UnsupportedError("halves")
    return np.true_divide(_total(recording, x), x.size)


@native("mean_grad")
def mean_grad(recording, x, d_out):
    return _spread(np.true_divide(d_out, x.size), x)


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
    if label.size * classes != x.size or classes < 2:
        raise UnsupportedError("other labels")


@native("softmax", most_columns=SHORT_ROW)
def softmax(recording, x, *, axis):
    if (
        x.dtype not in _FLOATS
        or axis % x.ndim != x.ndim - 1
        or x.is_transposed
        or not (x.size and goes_by_columns(x.shape))
    ):
        raise UnsupportedError("another way")
    return np.positive(_softmax_of_columns(recording, _columns(x)).T).reshape(x.shape)


def _softmax_of_columns(recording: Recording, columns: Symbol) -> Any:
    shifted = np.subtract(columns, np.maximum.reduce(columns))
    powers = np.exp(np.maximum(shifted, columns.dtype.type(FLOOR)))
    return np.true_divide(powers, _sum_of_rows(recording, powers))


@native("softmax_grad", most_columns=SHORT_ROW)
def softmax_grad(recording, y, d_y, *, axis):
    classes = y.shape[-1]
    if y.dtype not in _FLOATS or axis % y.ndim != y.ndim - 1 or classes > SHORT_ROW or y.is_transposed:
        raise UnsupportedError("another way")
    product, weights = np.multiply(y, d_y), recording.constant(np.ones(classes), y.dtype)
    total = _row_products(recording, product, weights)
    return np.multiply(np.subtract(d_y, total.reshape(*y.shape[:-1], 1)), y)


def _row_products(recording: Recording, x: Symbol, vector: Symbol) -> Symbol:
    """The product of each row with a vector, as `numpy.ndarray.dot` makes it."""
    return dot(recording, x, vector) if x.ndim < 3 else dots(recording, x, vector)


@native("fused_mean_loss", most_columns=SHORT_ROW)
def fused_mean_loss(recording, x, label, *, ignore_index, slope, from_logits, wanted):
    _check_rows(x, label, ignore_index)
    if from_logits:
        return _mean_loss_of_logits(recording, x, label, ignore_index, slope, wanted)
    # Here, as in `softmax`, the kernel chooses another way, with other bits.
    if not slope or not goes_by_columns(x.shape):
        raise UnsupportedError("another way")
    dtype, columns = x.dtype, _columns(x)
    rows = columns.shape[1]
    y = _softmax_of_columns(recording, columns)
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
    if soft_label or axis not in (-1, logits.ndim - 1):
        raise UnsupportedError("another way")
    columns, classes = _columns(logits), logits.shape[-1]
    rows, dtype = logits.reshape(-1, classes), logits.dtype
    largest = np.maximum.reduce(columns).reshape(-1, 1)
    shifted, match = np.subtract(rows, largest), recording.new((label.size,), dtype)
    recording.label_call("pick", label.reshape(-1), shifted, match, shifted.T)
    powers, weights = np.exp(np.maximum(shifted, dtype.type(FLOOR))), recording.constant(np.ones(classes), dtype)
    total = _row_products(recording, powers.reshape(logits.shape), weights).reshape(-1)
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
