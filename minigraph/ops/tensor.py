"""Making, converting and rearranging tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minigraph.opdef import GradContext, OpSpec, fused, op
from minigraph.types import DType, TensorType, normalize_axis, product, require, same_dim


def _cast_grad(ctx: GradContext) -> Iterator[OpSpec]:
    attrs = {"in_dtype": ctx.attr("out_dtype"), "out_dtype": ctx.attr("in_dtype")}
    yield OpSpec("cast", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, attrs)


@op("cast", inputs="X", outputs="Out", grad=_cast_grad)
def cast(x: TensorType, *, in_dtype: int, out_dtype: int) -> TensorType:
    """``Out`` is X converted to the element type numbered `out_dtype`."""
    return x.with_dtype(DType(out_dtype))


def _assign_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("assign", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {})


@op("assign", inputs="X", outputs="Out", grad=_assign_grad)
def assign(x: TensorType) -> TensorType:
    """``Out`` is a copy of X."""
    return x


def _scale_grad(ctx: GradContext) -> Iterator[OpSpec]:
    inputs = {"X": ctx.d_output("Out")}
    if ctx.input("ScaleTensor"):
        inputs["ScaleTensor"] = ctx.input("ScaleTensor")
    yield OpSpec("scale", inputs, {"Out": ctx.d_input("X")}, {"scale": ctx.attr("scale")})


@op("scale", inputs="X ScaleTensor", outputs="Out", grad=_scale_grad)
def scale(
    x: TensorType,
    scale_tensor: TensorType | None = None,
    *,
    scale: float = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
) -> TensorType:
    """``Out = scale * X + bias``, or ``scale * (X + bias)``; ScaleTensor, of one element, stands in for `scale`."""
    return x


def reshaped(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """`wanted` with each 0 replaced by the dimension at its place and one -1 computed."""
    require(wanted.count(-1) <= 1, f"at most one dimension may be -1, got {list(wanted)}")
    for i, dim in enumerate(wanted):
        require(dim >= -1, f"dimensions must be at least -1, got {list(wanted)}")
        require(dim != 0 or i < len(shape), f"a 0 keeps a dimension of X, but X has only {len(shape)}: {list(wanted)}")
    dims = [shape[i] if dim == 0 else dim for i, dim in enumerate(wanted)]
    size = product(shape)
    if -1 in wanted and size >= 0:
        at = wanted.index(-1)
        rest = product(d for i, d in enumerate(dims) if i != at)
        if rest >= 0:
            require(rest > 0 and size % rest == 0, f"{size} elements do not fill {list(wanted)}")
            dims[at] = size // rest
    require(same_dim(product(dims), size), f"{list(shape)} holds {size} elements, {list(wanted)} does not")
    return tuple(dims)


def _without_leading_zero(x_shape: TensorType) -> TensorType:
    return x_shape.with_shape(x_shape.shape[1:])


_X_FROM_XSHAPE = {"X": ("XShape", _without_leading_zero)}


@op("reshape2", inputs="X Shape ShapeTensor", outputs="Out XShape~", grad=fused("XShape", to="X", like=_X_FROM_XSHAPE))
def reshape2(
    x: TensorType,
    shape_input: TensorType | None = None,
    shape_tensor: list[TensorType] | None = None,
    *,
    shape: list[int] = (),
) -> tuple[TensorType, TensorType]:
    """The elements of X in another shape: 0 keeps a dimension, one -1 is computed.

    Shape, a vector, or ShapeTensor, one element each, stand in for the attribute; what they hold is known only at run
    time. XShape records the shape of X for the gradient.
    """
    if shape_input is not None and not shape:
        out = x.with_shape((-1,) * max(shape_input.shape[0], 1))
    elif shape_input is not None or shape_tensor:
        out = x.with_shape(-1 if dim <= 0 else dim for dim in shape)
    else:
        require(bool(shape), "the shape is missing")
        out = x.with_shape(reshaped(x.shape, tuple(shape)))
    return out, x.with_shape((0, *x.shape))


@op("transpose2", inputs="X", outputs="Out XShape~", grad=fused("XShape", to="X", like=_X_FROM_XSHAPE), backend_attrs={"data_format": "AnyLayout"})
def transpose2(x: TensorType, *, axis: list[int]) -> tuple[TensorType, TensorType]:
    """Dimension i of Out is dimension ``axis[i]`` of X."""
    require(sorted(axis) == list(range(x.rank)), f"axis must hold each of 0 to {x.rank - 1} once, got {list(axis)}")
    return x.with_shape(x.shape[i] for i in axis), x.with_shape((0, *x.shape))


@op("concat", inputs="X AxisTensor", outputs="Out", grad=fused("X", "AxisTensor", to="X"))
def concat(xs: list[TensorType], axis_tensor: TensorType | None = None, *, axis: int = 0) -> TensorType:
    """The tensors of X joined along `axis`; their other dimensions must be equal. AxisTensor stands in for `axis`."""
    first = xs[0]
    for x in xs:
        require(x.dtype is first.dtype and x.rank == first.rank, f"all X must have one dtype and rank, got {first} and {x}")
    if axis_tensor is not None:
        return first.with_shape((-1,) * first.rank)
    at = normalize_axis(axis, first.rank)
    for x in xs:
        fits = all(same_dim(a, b) for i, (a, b) in enumerate(zip(x.shape, first.shape, strict=True)) if i != at)
        require(fits, f"dimensions other than {at} must be equal, got {list(first.shape)} and {list(x.shape)}")
    joined = -1 if any(x.shape[at] == -1 for x in xs) else sum(x.shape[at] for x in xs)
    return first.with_shape((*first.shape[:at], joined, *first.shape[at + 1 :]))


@op("fill_constant", inputs="ValueTensor ShapeTensor ShapeTensorList", outputs="Out", grad=None)
def fill_constant(
    value_tensor: TensorType | None = None,
    shape_tensor: TensorType | None = None,
    shape_tensor_list: list[TensorType] | None = None,
    *,
    dtype: int = 5,
    shape: list[int] = (),
    value: float = 0.0,
    str_value: str = "",
    force_cpu: bool = False,
) -> TensorType:
    """A tensor whose every element is `value`, or `str_value` read as a number, or the one element of ValueTensor.

    ShapeTensor, or the elements of ShapeTensorList, stand in for `shape`.
    """
    if shape_tensor is not None and not shape and shape_tensor.shape[0] >= 0:
        shape = (-1,) * shape_tensor.shape[0]
    require(shape_tensor is not None or shape_tensor_list is not None or -1 not in shape, f"shape {list(shape)} is not known")
    return TensorType(DType(dtype), tuple(shape))


@op("fill_constant_batch_size_like", inputs="Input", outputs="Out", grad=None)
def fill_constant_batch_size_like(
    x: TensorType,
    *,
    shape: list[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    dtype: int = 5,
    value: float = 0.0,
    str_value: str = "",
    force_cpu: bool = False,
) -> TensorType:
    """Like ``fill_constant``, dimension `output_dim_idx` being that of Input at `input_dim_idx`."""
    source, target = normalize_axis(input_dim_idx, x.rank), normalize_axis(output_dim_idx, len(shape))
    return TensorType(DType(dtype), (*shape[:target], x.shape[source], *shape[target + 1 :]))


@op("fill_zeros_like", inputs="X", outputs="Out", grad=None)
def fill_zeros_like(x: TensorType) -> TensorType:
    """Zeros of the type of X."""
    return x


@op("fill_any_like", inputs="X", outputs="Out", grad=None)
def fill_any_like(x: TensorType, *, value: float = 0.0, dtype: int = -1) -> TensorType:
    """A tensor of the shape of X whose every element is `value`, of element type `dtype` (-1: that of X)."""
    return x if dtype == -1 else x.with_dtype(DType(dtype))


@op("assign_value", outputs="Out", grad=None)
def assign_value(
    *,
    shape: list[int],
    dtype: int,
    bool_values: list[int] = (),
    fp32_values: list[float] = (),
    int32_values: list[int] = (),
    int64_values: list[int] = (),
    fp64_values: list[np.float64] = (),
) -> TensorType:
    """The constant whose elements are listed in the attribute for its element type."""
    given = [v for v in (bool_values, fp32_values, int32_values, int64_values, fp64_values) if v]
    count = len(given[0]) if given else 0
    require(len(given) <= 1 and count == product(shape), f"{count} values do not fill {list(shape)}")
    return TensorType(DType(dtype), tuple(shape))


@op("shape", inputs="Input", outputs="Out", grad=None)
def shape(x: TensorType) -> TensorType:
    """The shape of Input, a vector of int32."""
    return TensorType(DType.INT32, (x.rank,))


def _increment_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("scale", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {"scale": 1.0})


@op("increment", inputs="X", outputs="Out", grad=_increment_grad)
def increment(x: TensorType, *, step: float = 1.0) -> TensorType:
    """``Out = X + step``, for a tensor of one element."""
    require(product(x.shape) in (1, -1), f"X must hold one number, got {list(x.shape)}")
    return x
