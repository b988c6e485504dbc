"""Select elements of tensors by index; add gradients at these indices.

Indices are checked: one out of range is an error. Gradients of one index are added in their order, float16 in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver, shaped, unshared, without_gaps
from minigraph.kernels.cuda.rows import combine_rows as combine_on_gpu
from minigraph.kernels.registry import kernel, specialize
from minigraph.kernels.reshaping import numbers_from
from minigraph.kernels.tensor import copied, number_in
from minigraph.support.slice_rules import span, strided_span
from minigraph.types import as_dtype


def _taken(x, axes, parts) -> tuple[slice, ...]:
    index = [slice(None)] * len(x.shape)
    for axis, part in zip(axes, parts, strict=True):
        index[axis] = part
    return tuple(index)


def _numbers(parts, vector, numbers, infer_flags) -> list[int]:
    """Bounds of a slice on one side; a list of tensors must agree with known attributes."""
    found = numbers_from(parts, vector, numbers)
    if parts and numbers and infer_flags:
        for number, promised, flag in zip(found, numbers, infer_flags, strict=True):
            if flag != -1 and number != promised:
                raise ExecutionError(f"a tensor bounds the slice with {number} where the attribute says {promised}")
    return found


def _spans(x, starts_tensor, ends_tensor, starts_list, ends_list, axes, starts, ends, infer_flags) -> tuple[slice, ...]:
    """Index of the slice in `x`."""
    first = _numbers(starts_list, starts_tensor, starts, infer_flags)
    last = _numbers(ends_list, ends_tensor, ends, infer_flags)
    return _taken(x, axes, [span(x.shape[a], i, j) for a, i, j in zip(axes, first, last, strict=True)])


def _strided_spans(x, tensors, lists, axes, numbers, infer_flags) -> tuple[slice, ...]:
    given = [_numbers(*each, infer_flags) for each in zip(lists, tensors, numbers, strict=True)]
    return _taken(x, axes, [strided_span(x.shape[each[0]], *each[1:]) for each in zip(axes, *given, strict=True)])


def _decreased(x, decrease_axis) -> Any:
    """`x` without these dimensions; if none is left, of shape [1]."""
    gone = tuple({axis % x.ndim for axis in decrease_axis})
    return x.reshape(1) if gone and len(gone) == x.ndim else x.squeeze(gone)


def _spread(xp, x, index, d_out) -> Any:
    """Zeros like `x`, with the gradient of ``x[index]`` in its place."""
    d_x = xp.zeros(x.shape, x.dtype)
    place = d_x[index]  # a view, because the index has slices only
    place[...] = d_out.reshape(place.shape)
    return d_x


@kernel("slice", view="x")
def slice_(
    xp, x, starts_tensor, ends_tensor, starts_list, ends_list, *, axes, starts, ends, infer_flags, decrease_axis
):  # fmt: skip
    index = _spans(x, starts_tensor, ends_tensor, starts_list, ends_list, axes, starts, ends, infer_flags)
    return _decreased(without_gaps(xp, x[index]), decrease_axis)


@kernel("slice_grad")
def slice_grad(
    xp, x, starts_tensor, ends_tensor, starts_list, ends_list, d_out, *, axes, starts, ends, infer_flags
):  # fmt: skip
    index = _spans(x, starts_tensor, ends_tensor, starts_list, ends_list, axes, starts, ends, infer_flags)
    return _spread(xp, x, index, d_out)


@specialize("slice")
def _planned_slice(
    xp, x, starts_tensor, ends_tensor, starts_list, ends_list, *, axes, starts, ends, infer_flags, decrease_axis
):  # fmt: skip
    """Offer the index, worked out beforehand."""
    if not (starts_tensor is ends_tensor is None) or starts_list or ends_list:
        return None
    index = _spans(x, None, None, None, None, axes, starts, ends, infer_flags)

    def take(x, *_):
        part = without_gaps(xp, x[index])
        return _decreased(part, decrease_axis) if decrease_axis else part

    return take


@specialize("slice_grad")
def _planned_slice_grad(
    xp, x, starts_tensor, ends_tensor, starts_list, ends_list, d_out, *, axes, starts, ends, infer_flags
):  # fmt: skip
    if not (starts_tensor is ends_tensor is None) or starts_list or ends_list:
        return None
    index = _spans(x, None, None, None, None, axes, starts, ends, infer_flags)
    return lambda x, _starts, _ends, _starts_list, _ends_list, d_out: _spread(xp, x, index, d_out)


@kernel("strided_slice", view="x")
def strided_slice(
    xp, x, starts_tensor, ends_tensor, strides_tensor, starts_list, ends_list, strides_list,
    *, axes, starts, ends, strides, infer_flags, decrease_axis,
):  # fmt: skip
    tensors, lists = (starts_tensor, ends_tensor, strides_tensor), (starts_list, ends_list, strides_list)
    index = _strided_spans(x, tensors, lists, axes, (starts, ends, strides), infer_flags)
    return _decreased(without_gaps(xp, x[index]), decrease_axis)


@kernel("strided_slice_grad")
def strided_slice_grad(
    xp, x, starts_tensor, ends_tensor, strides_tensor, starts_list, ends_list, strides_list, d_out,
    *, axes, starts, ends, strides, infer_flags,
):  # fmt: skip
    tensors, lists = (starts_tensor, ends_tensor, strides_tensor), (starts_list, ends_list, strides_list)
    return _spread(xp, x, _strided_spans(x, tensors, lists, axes, (starts, ends, strides), infer_flags), d_out)


@kernel("reverse", view="x")
def reverse(xp, x, *, axis):
    return xp.flip(x, tuple({each % x.ndim for each in axis}))


# Numbers of elements


def require_inside(xp, numbers, size, what) -> None:
    """Raise unless all `numbers` are in [0, size)."""
    wrong = (numbers < 0) | (numbers >= size)
    if wrong.any():
        where = int(xp.flatnonzero(wrong)[0])
        raise ExecutionError(f"{what} must be in [0, {size}), but element {where} is {int(numbers.reshape(-1)[where])}")


def added_rows(xp, like, numbers, rows) -> Any:
    """Zeros like `like`, with ``rows[i]`` added to row ``numbers[i]``, in linear time."""
    wide = np.int64 if like.dtype.kind in "iu" else np.float32 if like.dtype == np.float16 else like.dtype
    total = xp.zeros(like.shape, wide)
    combine_rows(xp, "add", total, numbers, rows.astype(wide, copy=False))
    return total.astype(like.dtype, copy=False)


def combine_rows(xp, operation, total, numbers, rows) -> None:
    """Combine ``rows[i]`` with row ``numbers[i]`` of `total`, in place; on the CPU for each i in turn.

    `operation` is ``"add"``, ``"maximum"`` or ``"minimum"``.
    """
    width = math.prod(total.shape[1:])
    if hasattr(xp, "RawModule"):
        combine_on_gpu(xp, operation, total, numbers, rows)
    elif width > 1 and total.flags.c_contiguous:
        # By element, which NumPy combines with a vector at several times the speed of rows, in the same order.
        places = numbers.astype(np.intp).reshape(-1, 1) * width + np.arange(width)
        getattr(np, operation).at(total.reshape(-1), places.reshape(-1), rows.reshape(-1))
    else:
        getattr(np, operation).at(total, numbers, rows)


def taken(xp, x, numbers, out=None) -> Any:
    """``x[numbers]`` for numbers in range, written to `out` if it shares no memory with them."""
    if xp is not np:
        return x[numbers]
    # "raise" would write to a copy of `out` first.
    buffer = shaped(unshared(np, out, x, numbers), numbers.shape + x.shape[1:])
    return x.take(numbers, axis=0, out=buffer, mode="clip")


def set_rows(xp, x, numbers, rows) -> None:
    """Write ``rows[i]`` to row ``numbers[i]`` of `x`; of several for one row the last counts."""
    if xp is np:
        x[numbers] = rows
        return
    # On a GPU the order of writes is open, so the last ones are looked up first.
    last = xp.zeros(len(x), np.int32)
    xp.maximum.at(last, numbers, xp.arange(1, len(numbers) + 1, dtype=np.int32))
    (touched,) = xp.nonzero(last)
    x[touched] = rows[last[touched] - 1]


def _row_numbers(xp, x, index) -> Any:
    numbers = index.reshape(-1)
    require_inside(xp, numbers, len(x), "Index")
    return numbers


@kernel("gather")
def gather(xp, x, index, *, out=None):
    return deliver(xp, x[_row_numbers(xp, x, index)], out)


@kernel("gather_grad")
def gather_grad(xp, x, index, d_out, *, overwrite):
    numbers = _row_numbers(xp, x, index)
    if not overwrite:
        return added_rows(xp, x, numbers, d_out)
    d_x = xp.zeros(x.shape, x.dtype)
    set_rows(xp, d_x, numbers, d_out)
    return d_x


@kernel("gather_nd")
def gather_nd(xp, x, index):
    rows, numbers = flat_rows(xp, x, index)
    return rows[numbers].reshape(index.shape[:-1] + x.shape[index.shape[-1] :])


@kernel("gather_nd_grad")
def gather_nd_grad(xp, x, index, d_out):
    rows, numbers = flat_rows(xp, x, index)
    return added_rows(xp, rows, numbers, d_out.reshape(len(numbers), rows.shape[1])).reshape(x.shape)


def flat_rows(xp, x, index) -> tuple[Any, Any]:
    """`x` as a matrix with a row for each place that `index` can name, and the numbers of the rows it does name."""
    depth = index.shape[-1]
    numbers = xp.zeros(index.shape[:-1], np.int64)
    for i, dim in enumerate(x.shape[:depth]):
        require_inside(xp, index[..., i], dim, f"Index[..., {i}]")
        numbers = numbers * dim + index[..., i]
    return x.reshape(math.prod(x.shape[:depth]), math.prod(x.shape[depth:])), numbers.reshape(-1)


@kernel("scatter")
def scatter(xp, x, ids, updates, *, overwrite, out=None):
    require_inside(xp, ids, len(x), "Ids")
    result = copied(xp, x, unshared(xp, out, ids, updates))
    if overwrite:
        set_rows(xp, result, ids, updates)
    else:
        result[ids] = added_rows(xp, x, ids, updates)[ids]
    return deliver(xp, result, out)


@kernel("scatter_grad")
def scatter_grad(xp, ids, updates, d_out, *, wanted):
    return d_out.copy() if wanted[0] else None, d_out[ids] if wanted[1] else None


@kernel("one_hot")
def one_hot(xp, x, depth_tensor, *, depth, dtype, allow_out_of_range):
    return one_hot_v2(xp, x.reshape(x.shape[:-1]), depth_tensor, depth=depth, dtype=dtype,
                      allow_out_of_range=allow_out_of_range)  # fmt: skip


@kernel("one_hot_v2")
def one_hot_v2(xp, x, depth_tensor, *, depth, dtype, allow_out_of_range):
    depth = depth if depth_tensor is None else number_in(depth_tensor)
    if depth < 1:
        raise ExecutionError(f"depth must be positive, got {depth}")
    if not allow_out_of_range:
        require_inside(xp, x, depth, "X")
    element = as_dtype(dtype).numpy
    return (x[..., None] == xp.arange(depth, dtype=np.int64)).astype(element)


@kernel("where")
def where(xp, condition, x, y, *, out=None):
    return deliver(xp, xp.where(condition, x, y), out)


@kernel("where_grad")
def where_grad(xp, condition, x, y, d_out, *, wanted):
    zero = d_out.dtype.type(0)
    d_x = xp.where(condition, d_out, zero) if wanted[0] else None
    return d_x, xp.where(condition, zero, d_out) if wanted[1] else None


@kernel("where_index")
def where_index(xp, condition):
    return xp.stack(xp.nonzero(condition), -1)
