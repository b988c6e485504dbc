"""Making, converting and rearranging tensors."""

from __future__ import annotations

import math

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel, specialize
from minigraph.types import DType


@kernel("cast")
def cast(xp, x, *, out_dtype):
    return x.astype(DType(out_dtype).numpy)


@kernel("assign")
def assign(xp, x):
    return x.copy()


@kernel("scale")
def scale(xp, x, scale_tensor, *, scale, bias, bias_after_scale, out=None):
    # Integers are scaled in their own type: the factor is cut to an integer first, as in fluid.
    number = x.dtype.type
    factor = number(scale) if scale_tensor is None else scale_tensor.reshape(()).astype(x.dtype)
    if bias_after_scale:
        result = xp.multiply(x, factor, out=out)
        return result if bias == 0 else xp.add(result, number(bias), out=result)
    return xp.multiply(xp.add(x, number(bias)), factor, out=out)


@specialize("scale")
def scale_specialized(xp, x, scale_tensor, *, scale, bias, bias_after_scale):
    if scale_tensor is not None or x.dtype.kind != "f" or not bias_after_scale:
        return None
    factor, offset = xp.asarray(scale, x.dtype), xp.asarray(bias, x.dtype)
    multiply, add = xp.multiply, xp.add
    if bias == 0:
        return lambda x, _: multiply(x, factor)

    def scale_and_shift(x, _):
        result = multiply(x, factor)
        return add(result, offset, result)

    return scale_and_shift


@kernel("reshape2", view=True)
def reshape2(xp, x, shape_input, shape_tensor, *, shape):
    if shape_tensor is not None:
        shape = [int(part.reshape(())) for part in shape_tensor]
    elif shape_input is not None:
        shape = [int(dim) for dim in shape_input]
    dims = [x.shape[i] if dim == 0 else dim for i, dim in enumerate(shape)]
    if -1 in dims and x.size == 0:
        at = dims.index(-1)
        rest = math.prod(d for i, d in enumerate(dims) if i != at)
        dims[at] = 0 if rest else 0
    return x.reshape(dims), xp.zeros((0, *x.shape), x.dtype)


@kernel("reshape2_grad")
def reshape2_grad(xp, x_shape, d_out):
    return d_out.reshape(x_shape.shape[1:]).copy()


@kernel("transpose2", view=True)
def transpose2(xp, x, *, axis):
    return x.transpose(axis), xp.zeros((0, *x.shape), x.dtype)


@kernel("transpose2_grad")
def transpose2_grad(xp, x_shape, d_out, *, axis):
    inverse = sorted(range(len(axis)), key=axis.__getitem__)
    return xp.ascontiguousarray(d_out.transpose(inverse))


@kernel("concat")
def concat(xp, xs, axis_tensor, *, axis):
    return xp.concatenate(xs, axis=_axis(axis_tensor, axis))


@kernel("concat_grad")
def concat_grad(xp, xs, axis_tensor, d_out, *, axis, wanted):
    at = _axis(axis_tensor, axis) % d_out.ndim
    grads, start = [], 0
    for x, is_wanted in zip(xs, wanted[0], strict=True):
        end = start + x.shape[at]
        piece = (slice(None),) * at + (slice(start, end),)
        grads.append(d_out[piece].copy() if is_wanted else None)
        start = end
    return grads


def _axis(axis_tensor, axis):
    return axis if axis_tensor is None else int(axis_tensor.reshape(()))


@kernel("fill_constant")
def fill_constant(xp, value_tensor, shape_tensor, shape_tensor_list, *, dtype, shape, value, str_value):
    if shape_tensor_list is not None:
        shape = [int(part.reshape(())) for part in shape_tensor_list]
    elif shape_tensor is not None:
        shape = [int(dim) for dim in shape_tensor]
    element = DType(dtype).numpy
    if value_tensor is not None:
        return xp.broadcast_to(value_tensor.reshape(()).astype(element), tuple(shape)).copy()
    return xp.full(tuple(shape), _number(value, str_value, element), element)


@kernel("fill_constant_batch_size_like")
def fill_constant_batch_size_like(xp, x, *, shape, input_dim_idx, output_dim_idx, dtype, value, str_value):
    dims = list(shape)
    dims[output_dim_idx] = x.shape[input_dim_idx]
    element = DType(dtype).numpy
    return xp.full(tuple(dims), _number(value, str_value, element), element)


def _number(value, text, element):
    """The number that `text` spells, or `value` if there is no text."""
    if not text:
        return value
    if text.strip("+-").lower() in ("inf", "infinity", "nan"):
        # As an op desc of fluid means it, whose reader of numbers stops before the word; layers give `value` instead.
        return 0
    try:
        # Through int for integers: a float would not hold all of int64.
        return int(text) if element.kind in "iu" and text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise ExecutionError(f"str_value must spell a number, got {text!r}") from None


@kernel("fill_zeros_like")
def fill_zeros_like(xp, x):
    return xp.zeros(x.shape, x.dtype)


@kernel("fill_any_like")
def fill_any_like(xp, x, *, value, dtype):
    return xp.full(x.shape, value, x.dtype if dtype == -1 else DType(dtype).numpy)


@kernel("assign_value")
def assign_value(xp, *, shape, dtype, bool_values, fp32_values, int32_values, int64_values, fp64_values):
    values = bool_values or fp32_values or int32_values or int64_values or fp64_values
    return xp.asarray(values, DType(dtype).numpy).reshape(shape)


@kernel("shape")
def shape(xp, x):
    return xp.asarray(x.shape, "int32")


@kernel("increment")
def increment(xp, x, *, step, out=None):
    return xp.add(x, x.dtype.type(step), out=out)
