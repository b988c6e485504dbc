"""Recordings of operators that pick elements or rows by number: losses of classes, one-hot rows, lookups.

Where a number is none of a class or of a row, the walk ends early, and the shared kernel raises the error.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.recorders import native, native_loop
from minigraph.kernels.jit.recording import Recording, Symbol
from minigraph.kernels.loss import limit_of_loss, minus_log
from minigraph.types import as_dtype


def _picked(recording: Recording, rows: Symbol, labels: Symbol) -> Symbol:
    """The element of each row that its label picks."""
    match = recording.new((labels.size,), rows.dtype)
    recording.label_call("pick", labels, rows, match, rows.T)
    return match


def _only_at(recording: Recording, labels: Symbol, values: Symbol, classes: int) -> Symbol:
    """Zeros, with a value in each row at its label."""
    result = recording.new((labels.size, classes), values.dtype)
    recording.copy(recording.constant(0, values.dtype), result)
    _picked(recording, result, labels)  # for the check of the labels, before anything is written by them
    recording.label_call("put", labels, values, result, result.T)
    return result


def _check_classes(classes: int, ignore_index: int) -> None:
    if 0 <= ignore_index < classes:
        raise UnsupportedError("rows without a class")


# Losses of probabilities


def _loss_and_match(recording: Recording, x: Symbol, label: Symbol, ignore_index: int) -> tuple[Symbol, Symbol]:
    _check_classes(x.shape[-1], ignore_index)
    if not x.value.layout.flags.c_contiguous or label.size * x.shape[-1] != x.size:
        raise UnsupportedError("another order, or other labels")
    match = _picked(recording, x.reshape(-1, x.shape[-1]), label.reshape(-1))
    return minus_log(np, match, limit_of_loss(x.dtype)).reshape(label.shape), match


@native("cross_entropy")
def cross_entropy(recording, x, label, *, soft_label, ignore_index):
    if soft_label:
        raise UnsupportedError("weights of classes")
    return _loss_and_match(recording, x, label, ignore_index)[0]


@native("cross_entropy2")
def cross_entropy2(recording, x, label, *, ignore_index):
    loss, match = _loss_and_match(recording, x, label, ignore_index)
    return loss, recording.new((*x.shape, 0), x.dtype), match.reshape(*x.shape[:-1], 1)


@native("cross_entropy_grad")
def cross_entropy_grad(recording, x, label, d_loss, *, soft_label, ignore_index):
    if soft_label:
        raise UnsupportedError("weights of classes")
    _, match = _loss_and_match(recording, x, label, ignore_index)
    d_match = np.true_divide(np.negative(d_loss.reshape(-1)), match)
    return _only_at(recording, label.reshape(-1), d_match, x.shape[-1]).reshape(x.shape)


@native("cross_entropy_grad2")
def cross_entropy_grad2(recording, match, label, x_shape, d_loss, *, ignore_index):
    *rows, classes = x_shape.shape[:-1]
    _check_classes(classes, ignore_index)
    if not label.size == match.size == d_loss.size == prod(rows):
        raise UnsupportedError("other labels")
    d_match = np.true_divide(np.negative(d_loss.reshape(-1)), match.reshape(-1))
    return _only_at(recording, label.reshape(-1), d_match, classes).reshape(*rows, classes)


# Elements of rows


def _check_column(x: Symbol, index: Symbol) -> None:
    if index.shape != (x.shape[0], 1) or not x.value.layout.flags.c_contiguous or not x.size:
        raise UnsupportedError("several elements of a row, or another order")


@native("index_sample")
def index_sample(recording, x, index):
    _check_column(x, index)
    return _picked(recording, x, index.reshape(-1)).reshape(index.shape)


@native("index_sample_grad")
def index_sample_grad(recording, x, index, d_out):
    _check_column(x, index)
    d = np.add(d_out.reshape(-1), 0)  # to a 0, as the kernel adds: minus 0 becomes 0
    return _only_at(recording, index.reshape(-1), d, x.shape[1])


# One-hot rows


@native("one_hot_v2")
def one_hot_v2(recording, x, depth_tensor, *, depth, dtype, allow_out_of_range):
    if depth_tensor is not None or allow_out_of_range or depth < 1 or not x.size:
        raise UnsupportedError("another depth, or rows of zeros")
    element = as_dtype(dtype).numpy
    ones = recording.constant(np.ones(x.size), element)
    return _only_at(recording, x.reshape(-1), ones, depth).reshape(*x.shape, depth)


@native("one_hot")
def one_hot(recording, x, depth_tensor, **attrs):
    return one_hot_v2(recording, x.reshape(x.shape[:-1]), depth_tensor, **attrs)


# Rows of a table. Loops and shared kernels give the same bits, so one recording serves both.


def _taken(recording: Recording, table: Symbol, ids: Symbol, shape: Any, padding_idx: int = -1) -> Symbol:
    result = recording.new((*shape, *table.shape[1:]), table.dtype)
    recording.rows_call("take_rows", ids.reshape(-1), table, result, padding_idx)
    return result


def _for_rows(*types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: native_loop(*types)(native(*types)(function))


@_for_rows("lookup_table_v2")
def lookup_table_v2(recording, table, ids, *, padding_idx):
    return _taken(recording, table, ids, ids.shape, padding_idx)


@_for_rows("lookup_table")
def lookup_table(recording, table, ids, *, padding_idx):
    return _taken(recording, table, ids, ids.shape[:-1], padding_idx)


@_for_rows("gather")
def gather(recording, x, index):
    return _taken(recording, x, index, (index.size,))


def _zeros_with(recording: Recording, name: str, table: Symbol, ids: Symbol, d_out: Symbol, padding: int = -1) -> Any:
    if d_out.size != ids.size * prod(table.shape[1:]):
        raise UnsupportedError("other rows")
    result = recording.new(table.shape, table.dtype)
    recording.copy(recording.constant(0, table.dtype), result)
    recording.rows_call(name, ids.reshape(-1), d_out, result, padding)
    return result


@_for_rows("lookup_table_grad", "lookup_table_v2_grad")
def lookup_table_grad(recording, table, ids, d_out, *, padding_idx):
    return _zeros_with(recording, "add_rows", table, ids, d_out, padding_idx)


@_for_rows("gather_grad")
def gather_grad(recording, x, index, d_out, *, overwrite):
    return _zeros_with(recording, "put_rows" if overwrite else "add_rows", x, index, d_out)


def _of_rows(index: Symbol) -> None:
    if index.shape[-1:] != (1,):
        raise UnsupportedError("numbers for several dimensions")


@_for_rows("gather_nd")
def gather_nd(recording, x, index):
    _of_rows(index)
    return _taken(recording, x, index, index.shape[:-1])


@_for_rows("gather_nd_grad")
def gather_nd_grad(recording, x, index, d_out):
    _of_rows(index)
    return _zeros_with(recording, "add_rows", x, index, d_out)
