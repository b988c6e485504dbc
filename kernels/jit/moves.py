"""Recordings of operators that move elements. Operators that compute are recorded in `minigraph.kernels.jit.native`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.offers import offer
from minigraph.kernels.jit.recorders import MOST_VIEWED, native, native_loop
from minigraph.kernels.jit.recording import FUNCTIONS, Recording, Symbol
from minigraph.kernels.tensor import inverse
from minigraph.support.shape_rules import split_lengths
from minigraph.support.slice_rules import span


def _given(*tensors: Any) -> None:
    """Refuse tensors in the place of attributes."""
    if any(isinstance(x, Symbol) or x for x in tensors):
        raise UnsupportedError("what tensors say")


def _pieces(recording: Recording, x: Symbol, axis: int, lengths: Sequence[int], wanted: Sequence[bool]) -> list[Any]:
    """Copies of consecutive parts of `x` along a dimension, where they are wanted."""
    ends = np.cumsum(lengths).tolist()
    index = [(slice(None),) * axis + (slice(end - length, end),) for end, length in zip(ends, lengths, strict=True)]
    return [recording.copied(x[at]) if is_wanted else None for at, is_wanted in zip(index, wanted, strict=True)]


@native("split")
def split(recording, x, axis_tensor, sections_tensor_list, *, sections, num, axis):
    _given(axis_tensor, sections_tensor_list)
    lengths = split_lengths(x.shape[axis % x.ndim], num, sections)
    return (_pieces(recording, x, axis % x.ndim, lengths, [True] * len(lengths)),)


def _concatenated(recording: Recording, xs: Sequence[Symbol], axis: int = 0) -> Symbol:
    if any(not isinstance(x, Symbol) or not x.ndim for x in xs):
        raise UnsupportedError("known arrays, or numbers")
    axis %= xs[0].ndim
    lengths = [x.shape[axis] for x in xs]
    shape = [*xs[0].shape[:axis], sum(lengths), *xs[0].shape[axis + 1 :]]
    result, start = recording.new(shape, xs[0].dtype), 0
    for x, length in zip(xs, lengths, strict=True):
        if length:
            recording.copy(x, result[(slice(None),) * axis + (slice(start, start + length),)])
        start += length
    return result


@native("concat")
def concat(recording, xs, axis_tensor, *, axis):
    _given(axis_tensor)
    return _concatenated(recording, xs, axis)


@native("concat_grad")
def concat_grad(recording, xs, axis_tensor, d_out, *, axis, wanted):
    _given(axis_tensor)
    axis %= d_out.ndim
    return (_pieces(recording, d_out, axis, [x.shape[axis] for x in xs], wanted[0]),)


def _stacked(recording: Recording, xs: Sequence[Symbol], axis: int = 0) -> Symbol:
    if any(not isinstance(x, Symbol) for x in xs):
        raise UnsupportedError("known arrays")
    axis %= xs[0].ndim + 1
    result = recording.new((*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]), xs[0].dtype)
    for i, x in enumerate(xs):
        recording.copy(x, result[(slice(None),) * axis + (i,)])
    return result


@native("stack")
def stack(recording, xs, *, axis):
    return _stacked(recording, xs, axis)


@native("unstack_grad")
def unstack_grad(recording, d_ys, *, axis):
    return _stacked(recording, d_ys, axis)


def _unstacked(recording: Recording, x: Symbol, axis: int, wanted: Sequence[bool]) -> list[Any]:
    before = (slice(None),) * (axis % x.ndim)
    return [recording.copied(x[(*before, i)]) if is_wanted else None for i, is_wanted in enumerate(wanted)]


@native("unstack")
def unstack(recording, x, *, axis, num):
    return (_unstacked(recording, x, axis, [True] * x.shape[axis]),)


@native("stack_grad")
def stack_grad(recording, d_y, *, axis, wanted):
    return (_unstacked(recording, d_y, axis, wanted[0]),)


@native("slice_grad")
def slice_grad(
    recording, x, starts_tensor, ends_tensor, starts_list, ends_list, d_out, *, axes, starts, ends, infer_flags
):  # fmt: skip
    _given(starts_tensor, ends_tensor, starts_list, ends_list)
    index = [slice(None)] * x.ndim
    for axis, start, end in zip(axes, starts, ends, strict=True):
        index[axis] = span(x.shape[axis], start, end)
    result = recording.new(x.shape, x.dtype)
    recording.copy(recording.constant(0, x.dtype), result)
    place = result[tuple(index)]
    recording.copy(d_out.reshape(place.shape), place)
    return result


@native("expand")
def expand(recording, x, times_vector, times_tensor, *, expand_times):
    _given(times_vector, times_tensor)
    pairs = list(zip(expand_times, x.shape, strict=True))
    result = recording.new([n * size for n, size in pairs], x.dtype)
    apart = result.reshape([size for pair in pairs for size in pair])
    recording.copy(x.reshape([size for _, dim in pairs for size in (1, dim)]), apart)
    return result


# Transposes: that of a matrix is a view, which products read as quickly as the matrix


@native("transpose2", replaces_loops=False)
def transpose2(recording, x, *, axis):
    if tuple(axis) != (1, 0):
        raise UnsupportedError("no matrix")
    return x.T, recording.new((0, *x.shape), x.dtype)


@native_loop("transpose2")
def transpose2_of_short(recording, x, *, axis):
    return recording.copied(x.transpose(axis)), recording.new((0, *x.shape), x.dtype)


@native_loop("transpose2_grad")
def transpose2_grad_of_short(recording, x_shape, d_out, *, axis):
    return recording.copied(d_out.transpose(inverse(axis)))


@offer("transpose2")
def copied_transpose(xp, x, *, axis):
    x_shape = np.empty((0, *x.shape), x.dtype)
    return (lambda x: (x.transpose(axis).copy(), x_shape)) if _is_copied(x) else None


@offer("transpose2_grad")
def copied_transpose_back(xp, x_shape, d_out, *, axis):
    back = inverse(axis)
    return (lambda x_shape, d_out: d_out.transpose(back).copy()) if _is_copied(d_out) else None


def _is_copied(x: Any) -> bool:
    """Whether a transpose is copied, which lets the operators around it belong to one table."""
    return len(x.shape) > 2 and prod(x.shape) <= MOST_VIEWED


FUNCTIONS |= {
    "where": Recording.where,
    "concatenate": _concatenated,
    "stack": _stacked,
    "empty_like": lambda recording, x: recording.new(x.shape, x.dtype),
    "ones_like": lambda recording, x, dtype=None: recording.constant(np.ones(x.shape), dtype or x.dtype),
    "zeros_like": lambda recording, x, dtype=None: recording.constant(np.zeros(x.shape), dtype or x.dtype),
}
