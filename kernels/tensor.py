"""Create, convert and rearrange tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.cuda.launching import is_recording
from minigraph.kernels.registry import for_all_sizes, kernel, specialize
from minigraph.support.shape_rules import constant_of, reshaped
from minigraph.types import as_dtype

_SMALL = 4096
"""Maximum elements of a constant that is kept ready and copied."""


def copied(xp, x, out=None) -> Any:
    """A copy of `x`, in `out` if there is one."""
    if out is None:
        return x.copy()
    xp.copyto(out, x, casting="unsafe")
    return out


def times(xp, x, factor, out=None) -> Any:
    """`x` times a Python number; float16 in float32, so that the factor is not rounded first."""
    if x.dtype == np.float16:
        return deliver(xp, (x.astype(np.float32) * factor).astype(np.float16), out)
    return xp.multiply(x, factor, out=out)


def number_in(tensor) -> Any:
    """The one element of `tensor` as a Python number."""
    return tensor.reshape(()).item()


def given_shape(shape, shape_tensor, shape_tensor_list) -> tuple[int, ...]:
    """The shape that the elements of a tensor, or else a list of numbers, or else an attribute ask for."""
    if shape_tensor is not None:
        dims = tuple(shape_tensor.reshape(-1).tolist())
    elif shape_tensor_list:
        dims = tuple(map(number_in, shape_tensor_list))
    else:
        return tuple(shape)
    if any(dim < 0 for dim in dims):
        raise ExecutionError(f"a shape must not be negative, got {list(dims)}")
    return dims


@kernel("cast")
def cast(xp, x, *, out_dtype, out=None):
    dtype = as_dtype(out_dtype).numpy
    if dtype.kind == "u" and x.dtype.kind == "f":
        # Processors and GPUs differ in what a negative number becomes: through int32 it wraps around on all of them.
        x = x.astype(np.int32)
    if out is None:
        return x.astype(dtype)
    return copied(xp, x, out)


@kernel("assign")
def assign(xp, x, *, out=None):
    if isinstance(x, list):  # an array of tensors
        return list(x)
    return copied(xp, x, out)


@kernel("scale")
def scale(xp, x, scale_tensor, *, scale, bias, bias_after_scale, out=None):
    if x.dtype == np.float16:
        factor = scale if scale_tensor is None else scale_tensor.astype(np.float32).reshape(())
        wide = x.astype(np.float32)
        if not bias_after_scale:
            wide = wide + bias
        wide = wide * factor
        if bias and bias_after_scale:  # to add 0 would make 0.0 of -0.0
            wide = wide + bias
        return deliver(xp, wide.astype(np.float16), out)
    factor, offset = in_type(x.dtype, scale), in_type(x.dtype, bias)
    if scale_tensor is not None:
        factor = scale_tensor.reshape(())
    if not bias_after_scale:
        # `out` may be the memory of the factor, which is read after the sum is written.
        total = xp.add(x, offset, out=out if scale_tensor is None else None)
        return xp.multiply(total, factor, out=total if out is None else out)
    product = xp.multiply(x, factor, out=out)
    return xp.add(product, offset, out=product) if bias else product


def in_type(dtype, number) -> Any:
    """`number` as C converts it to `dtype`: cut toward zero for integers, which wrap around."""
    return np.int64(int(number)).astype(dtype) if dtype.kind in "iu" else dtype.type(number)


@kernel("reshape2", view="x")
def reshape2(xp, x, shape_vector, shape_tensor, *, shape):
    if shape_tensor:
        shape = [number_in(part) for part in shape_tensor]
    elif shape_vector is not None:
        shape = shape_vector.tolist()
    return x.reshape(reshaped(x.shape, shape)), shape_only(xp, x)


@kernel("transpose2", view="x")
def transpose2(xp, x, *, axis):
    return x.transpose(axis), shape_only(xp, x)


def shape_only(xp, x) -> Any:
    """An array without elements that holds the shape of `x`, for the gradient."""
    return xp.empty((0, *x.shape), x.dtype)


def joined(xp, arrays, axis, out=None) -> Any:
    """Arrays behind each other along a dimension, counted from the front; in `out` if it is given.

    While a CUDA graph is recorded each is copied by itself: for more than eight CuPy would send a table of addresses.
    """
    if not is_recording():
        return xp.concatenate(arrays, axis, out=out)
    whole = out
    if whole is None:
        first = arrays[0].shape
        size = sum(each.shape[axis] for each in arrays)
        whole = xp.empty((*first[:axis], size, *first[axis + 1 :]), np.result_type(*(each.dtype for each in arrays)))
    start = 0
    for each in arrays:
        end = start + each.shape[axis]
        whole[(slice(None),) * axis + (slice(start, end),)] = each
        start = end
    return whole


@kernel("concat")
def concat(xp, xs, axis_tensor, *, axis, out=None):
    whole = joined(xp, xs, axis_from(axis, axis_tensor, xs[0].ndim), unshared(xp, out, *xs))
    return deliver(xp, whole, out)


def axis_from(axis, axis_tensor, rank) -> int:
    """The axis that a tensor, or else an attribute gives, counted from the front."""
    at = axis if axis_tensor is None else number_in(axis_tensor)
    if not -rank <= at < rank:
        raise ExecutionError(f"AxisTensor must be in [{-rank}, {rank}), got {at}")
    return at % rank


@kernel("fill_constant")
def fill_constant(
    xp, value_tensor, shape_tensor, shape_tensor_list, *, dtype, shape, value, str_value, out=None
):  # fmt: skip
    element = as_dtype(dtype)
    number = constant_of(element, value, str_value) if value_tensor is None else value_tensor.reshape(())
    return _filled(xp, given_shape(shape, shape_tensor, shape_tensor_list), number, element.numpy, out)


def like_batch(x, shape, input_dim_idx, output_dim_idx) -> tuple[int, ...]:
    """`shape` with one dimension replaced by a dimension of `x`."""
    return (*shape[:output_dim_idx], x.shape[input_dim_idx], *shape[output_dim_idx + 1 :])


@kernel("fill_constant_batch_size_like")
def fill_constant_batch_size_like(
    xp, x, *, shape, input_dim_idx, output_dim_idx, dtype, value, str_value, out=None
):  # fmt: skip
    dims = like_batch(x, shape, input_dim_idx, output_dim_idx)
    element = as_dtype(dtype)
    return _filled(xp, dims, constant_of(element, value, str_value), element.numpy, out)


@kernel("fill_zeros_like")
def fill_zeros_like(xp, x, *, out=None):
    if isinstance(x, list):  # an array of tensors
        return [None if each is None else fill_zeros_like(xp, each) for each in x]
    return _filled(xp, x.shape, 0, x.dtype, out)


@kernel("fill_any_like")
def fill_any_like(xp, x, *, value, dtype, out=None):
    element = as_dtype(x.dtype if dtype == -1 else dtype)
    return _filled(xp, x.shape, constant_of(element, value), element.numpy, out)


def _filled(xp, shape, number, dtype, out) -> Any:
    if out is None:
        out = xp.empty(shape, dtype)
    xp.copyto(out, number, casting="unsafe")
    return out


@kernel("assign_value")
def assign_value(xp, *, shape, dtype, bool_values, fp32_values, int32_values, int64_values, fp64_values):
    # Inference has checked that at most one of them has values.
    values = bool_values or fp32_values or int32_values or int64_values or fp64_values
    return xp.array(values, as_dtype(dtype).numpy).reshape(shape)


@kernel("shape")
def shape(xp, x):
    return xp.array(x.shape, np.int32)


@kernel("size")
def size(xp, x):
    return xp.array([x.size], np.int64)


@kernel("increment")
def increment(xp, x, *, step, out=None):
    return xp.add(x, in_type(x.dtype, step), out=out)


@kernel("reshape2_grad", view="d_out")
def reshape2_grad(xp, x_shape, d_out):
    return d_out.reshape(x_shape.shape[1:])


@kernel("reshape2_grad_grad", view="dd_x")
def reshape2_grad_grad(xp, d_out, dd_x):
    return dd_x.reshape(d_out.shape)


@kernel("transpose2_grad", view="d_out")
def transpose2_grad(xp, x_shape, d_out, *, axis):
    return d_out.transpose(inverse(axis))


def inverse(permutation) -> tuple[int, ...]:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


@kernel("concat_grad")
def concat_grad(xp, xs, axis_tensor, d_out, *, axis, wanted):
    at = axis_from(axis, axis_tensor, d_out.ndim)
    pieces: list[Any] = []
    start = 0
    for x, is_wanted in zip(xs, wanted[0], strict=True):
        end = start + x.shape[at]
        pieces.append(d_out[(slice(None),) * at + (slice(start, end),)].copy() if is_wanted else None)
        start = end
    return pieces


@specialize("scale", any_size=True)
def _quicker_scale(xp, x, scale_tensor, *, scale, bias, bias_after_scale):
    """One or two calls, with the numbers as arrays, which NumPy need not convert."""
    if xp is not np or scale_tensor is not None or x.dtype == np.float16:
        return None
    multiply, add = np.multiply, np.add
    factor, offset = np.asarray(in_type(x.dtype, scale)), np.asarray(in_type(x.dtype, bias))
    if not bias and bias_after_scale:  # adding 0 before the product makes 0.0 of -0.0
        return for_all_sizes(lambda x, _=None, out=None: multiply(x, factor, out))

    def scale_and_shift(x, _=None, out=None):
        product = multiply(x, factor, out)
        return add(product, offset, product)

    def shift_and_scale(x, _=None, out=None):
        total = add(x, offset, out)
        return multiply(total, factor, total)

    return for_all_sizes(scale_and_shift if bias_after_scale else shift_and_scale)


@specialize("increment")
def _quicker_increment(xp, x, *, step):
    if xp is not np:
        return None
    add, by = np.add, np.asarray(in_type(x.dtype, step))
    return lambda x, out=None: add(x, by, out)


@specialize("fill_constant")
def _quicker_constant(
    xp, value_tensor, shape_tensor, shape_tensor_list, *, dtype, shape, value, str_value
):  # fmt: skip
    """Copy a constant that is computed in advance."""
    if value_tensor is not None or shape_tensor is not None or shape_tensor_list or math.prod(shape) > _SMALL:
        return None
    return _copies_of(
        xp, fill_constant(xp, None, None, None, dtype=dtype, shape=shape, value=value, str_value=str_value)
    )


@specialize("assign_value")
def _ready_value(xp, *, shape, dtype, **values):
    """Copy a constant that is computed in advance, so that its numbers are converted once."""
    return _copies_of(xp, assign_value(xp, shape=shape, dtype=dtype, **values))


def _copies_of(xp, ready) -> Any:
    copy, copyto = ready.copy, xp.copyto

    def constant(_value=None, _shape=None, _shapes=None, out=None):
        if out is None:
            return copy()
        copyto(out, ready)
        return out

    return constant


@specialize("reshape2")
def _quicker_reshape(xp, x, shape_vector, shape_tensor, *, shape):
    if shape_vector is not None or shape_tensor:
        return None
    dims, x_shape = reshaped(x.shape, shape), xp.empty((0, *x.shape), x.dtype)
    return lambda x, _shape=None, _shapes=None: (x.reshape(dims), x_shape)


@specialize("transpose2")
def _quicker_transpose(xp, x, *, axis):
    x_shape = xp.empty((0, *x.shape), x.dtype)
    return lambda x: (x.transpose(axis), x_shape)


@specialize("reshape2_grad")
def _quicker_reshape_back(xp, x_shape, d_out):
    dims = x_shape.shape[1:]
    return lambda x_shape, d_out: d_out.reshape(dims)


@specialize("transpose2_grad")
def _quicker_transpose_back(xp, x_shape, d_out, *, axis):
    back = inverse(axis)
    return lambda x_shape, d_out: d_out.transpose(back)
