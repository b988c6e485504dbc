"""Making, converting and rearranging tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import DoubleGrad, fused
from minigraph.support.shape_rules import constant_of, reshaped
from minigraph.types import (
    DType,
    TensorType,
    as_dtype,
    merge_shapes,
    normalize_axis,
    product,
    require,
    require_same_dtype,
)

_NONE: Any = ()
_ANY_LAYOUT = {"data_format": "AnyLayout"}


def require_one_element(x: TensorType, slot: str) -> None:
    """Raise unless `x` can hold exactly one number."""
    require(product(x.shape) in (1, -1), f"{slot} must hold one number, got {x}")


def require_integers(x: TensorType, slot: str) -> None:
    """Raise unless `x` holds integers."""
    require(x.dtype.numpy.kind in "iu", f"{slot} must hold integers, got {x.dtype}")


def require_bool(x: TensorType, slot: str) -> None:
    """Raise unless `x` holds booleans."""
    require(x.dtype is DType.BOOL, f"{slot} must be bool, got {x.dtype}", hint="Compare it with something first.")


def as_index_dtype(dtype: int) -> DType:
    """The element type numbered `dtype`, which must be one of indices."""
    index = as_dtype(dtype)
    require(index in (DType.INT32, DType.INT64), f"dtype must be int32 or int64, got {index}")
    return index


def batch_shape(x: TensorType, shape: Sequence[int], input_dim_idx: int, output_dim_idx: int) -> tuple[int, ...]:
    """`shape` with dimension `input_dim_idx` of `x` as its dimension `output_dim_idx`."""
    require(0 <= input_dim_idx < x.rank, f"input_dim_idx must be in [0, {x.rank}), got {input_dim_idx}")
    require(0 <= output_dim_idx < len(shape), f"output_dim_idx must be in [0, {len(shape)}), got {output_dim_idx}")
    before, behind = shape[:output_dim_idx], shape[output_dim_idx + 1 :]
    fits = min((0, *before, *behind)) == 0
    require(fits, f"shape must not be negative but at {output_dim_idx}, got {list(shape)}")
    return (*before, x.shape[input_dim_idx], *behind)


def require_one_integer(x: TensorType, slot: str) -> None:
    """Raise unless `x` can hold exactly one integer."""
    require_integers(x, slot)
    require_one_element(x, slot)


def shape_from(
    shape: Sequence[int], whole: TensorType | None, parts: Sequence[TensorType] | None, whole_slot: str, parts_slot: str
) -> tuple[int, ...]:
    """The known part of a shape that an attribute gives, or at run time the elements of `whole`, or numbers `parts`.

    Beside a tensor the attribute is a promise, with -1 where it makes none.
    """
    for slot, tensors in ((whole_slot, [whole] if whole else []), (parts_slot, parts or [])):
        for tensor in tensors:
            require_integers(tensor, slot)
    rank = len(shape)
    if whole is not None:
        given = product(whole.shape)
        require(rank > 0 or given != -1, f"{whole_slot} must have a known number of elements, got {whole}")
        rank = rank if given == -1 else given
    elif parts:
        for part in parts:
            require_one_element(part, parts_slot)
        rank = len(parts)
    return tuple(dim if dim > 0 else -1 for dim in shape) if rank == len(shape) else (-1,) * rank


def constant_shape(
    shape: Sequence[int], shape_tensor: TensorType | None, shape_tensor_list: Sequence[TensorType] | None
) -> tuple[int, ...]:
    """The known part of the shape of a tensor that an operator makes."""
    if shape_tensor is not None or shape_tensor_list:
        return shape_from(shape, shape_tensor, shape_tensor_list, "ShapeTensor", "ShapeTensorList")
    require(len(shape) > 0, "shape is empty", hint="Give [1] for one number.")
    require(
        all(dim >= 0 for dim in shape),
        f"shape must not be negative, got {list(shape)}",
        hint="Give ShapeTensor or ShapeTensorList for a dimension that only a run knows.",
    )
    return tuple(shape)


def _cast_back(ctx: GradContext) -> Iterator[OpSpec]:
    attrs = {"in_dtype": ctx.attr("out_dtype"), "out_dtype": ctx.attr("in_dtype")}
    yield OpSpec("cast", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, attrs)


@op("cast", inputs="X", outputs="Out", lod="X", grad=_cast_back)
def cast(x: TensorType, *, in_dtype: int, out_dtype: int) -> TensorType:
    """``Out = X`` converted to the element type numbered `out_dtype`; `in_dtype` is that of X.

    Numbers are cut toward zero for integer types, and anything but 0 is True. What a number beyond the range of an
    integer type becomes depends on the machine.
    """
    require(
        as_dtype(in_dtype) is x.dtype,
        f"in_dtype is {as_dtype(in_dtype)} but X is {x.dtype}",
        hint=f"Give in_dtype={int(x.dtype)}.",
    )
    return x.with_dtype(as_dtype(out_dtype))


def _assign_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("assign", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {})


@op("assign", inputs="X", outputs="Out", rows="X", arrays="X", lod="X", grad=_assign_grad)
def assign(x: TensorType | None) -> TensorType:
    """``Out = X``, a copy."""
    if x is None:
        require(False, "X is missing")
    assert x is not None
    return x


def _scale_grad(ctx: GradContext) -> Iterator[OpSpec]:
    inputs = {"X": ctx.d_output("Out")}
    if ctx.input("ScaleTensor"):
        inputs["ScaleTensor"] = ctx.input("ScaleTensor")
    yield OpSpec("scale", inputs, {"Out": ctx.d_input("X")}, {"scale": ctx.attr("scale")})


@op("scale", inputs="X ScaleTensor", outputs="Out", rows="X", lod="X", grad=_scale_grad)
def scale(
    x: TensorType,
    scale_tensor: TensorType | None,
    *,
    scale: float = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
) -> TensorType:
    """``Out = scale * X + bias``, or ``scale * (X + bias)`` unless `bias_after_scale`.

    ScaleTensor, of one element, takes the place of `scale`.

    Notes
    -----
    Integers stay integers: `scale` and `bias` are cut toward zero first, as in fluid, so that 0.5 counts as 0.
    """
    require(x.dtype is not DType.BOOL, "X must be a number, got bool", hint="Convert it with layers.cast.")
    if scale_tensor is not None:
        require_same_dtype("X and ScaleTensor", x, scale_tensor)
        require_one_element(scale_tensor, "ScaleTensor")
    require(not (x.is_rows and bias), "selected rows cannot be shifted: all other rows are 0")
    if not x.dtype.is_floating:
        fits = all(abs(number) < 2**63 for number in (scale, bias))
        require(fits, f"scale={scale:g} and bias={bias:g} are not both integers", hint="Convert X with layers.cast.")
    return x


def shape_of_x(x_shape: TensorType) -> TensorType:
    """The type of X, whose shape XShape keeps."""
    return x_shape.with_shape(x_shape.shape[1:])


_LIKE_X = {"X": ("XShape", shape_of_x)}


@op(
    "reshape2",
    inputs="X Shape ShapeTensor",
    outputs="Out XShape~",
    lod={"Out": "rows X", "XShape": "X"},
    grad=fused("XShape", like=_LIKE_X, grad=DoubleGrad()),
)
def reshape2(
    x: TensorType, shape_vector: TensorType | None, shape_tensor: list[TensorType] | None, *, shape: list[int] = _NONE
) -> tuple[TensorType, TensorType]:
    """``Out`` has the elements of X in another shape: 0 keeps the dimension at its place, one -1 is what is left over.

    ShapeTensor (a number each) or else Shape (a vector) takes the place of `shape` at run time; `shape` then only says
    what is known of it before. XShape, without elements, keeps the shape of X for the gradient.
    """
    if shape_vector is None and not shape_tensor:
        out = reshaped(x.shape, shape)
    elif shape_tensor:
        out = shape_from(shape, None, shape_tensor, "Shape", "ShapeTensor")
    else:
        out = shape_from(shape, shape_vector, None, "Shape", "ShapeTensor")
    return x.with_shape(out), x.with_shape((0, *x.shape))


@op(
    "transpose2", inputs="X", outputs="Out XShape~", lod={"XShape": "X"},
    grad=fused("XShape", like=_LIKE_X), backend_attrs=_ANY_LAYOUT,
)  # fmt: skip
def transpose2(x: TensorType, *, axis: list[int]) -> tuple[TensorType, TensorType]:
    """``Out`` has dimension ``axis[i]`` of X as its dimension i.

    XShape, without elements, keeps the shape of X for the gradient.
    """
    require(
        sorted(axis) == list(range(x.rank)),
        f"axis must name each of the {x.rank} dimensions of X once, got {list(axis)}",
        hint=f"Give the numbers 0 to {x.rank - 1} in another order.",
    )
    return x.with_shape(x.shape[i] for i in axis), x.with_shape((0, *x.shape))


@op("concat", inputs="X AxisTensor", outputs="Out", lod="X", grad=fused("X", "AxisTensor", to="X", linear=True))
def concat(xs: list[TensorType], axis_tensor: TensorType | None, *, axis: int = 0) -> TensorType:
    """``Out`` is the tensors of X one after the other along `axis`; their other dimensions are equal.

    AxisTensor, of one element, takes the place of `axis`.
    """
    require(bool(xs), "X is missing")
    require_same_dtype("X", *xs)
    first = xs[0]
    ranks = [x.rank for x in xs]
    require(len(set(ranks)) == 1, f"all X must have as many dimensions, got {ranks}")
    if axis_tensor is not None:
        require_one_integer(axis_tensor, "AxisTensor")
        return first.with_shape((-1,) * first.rank)
    axis = normalize_axis(axis, first.rank)
    sizes = [x.shape[axis] for x in xs]
    others = _without(first.shape, axis)
    for i, x in enumerate(xs):
        others = merge_shapes(others, _without(x.shape, axis), f"X[0] and X[{i}], apart from dimension {axis},")
    joined = -1 if -1 in sizes else sum(sizes)
    return first.with_shape((*others[:axis], joined, *others[axis:]))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


@op("fill_constant", inputs="ValueTensor ShapeTensor ShapeTensorList", outputs="Out", grad=None)
def fill_constant(
    value_tensor: TensorType | None,
    shape_tensor: TensorType | None,
    shape_tensor_list: list[TensorType] | None,
    *,
    dtype: int = 5,
    shape: list[int] = _NONE,
    value: float = 0.0,
    str_value: str = "",
    force_cpu: bool = False,
) -> TensorType:
    """``Out`` is full of one number: that in ValueTensor, or the one `str_value` spells, or `value`.

    Its shape is ShapeTensor (a vector), or ShapeTensorList (a number each), or `shape`. `force_cpu` changes nothing:
    the tensor lives where the program runs.

    Notes
    -----
    `value` is a float32, so larger integers and float64 have to be spelled.
    """
    out = TensorType(as_dtype(dtype), constant_shape(shape, shape_tensor, shape_tensor_list))
    if value_tensor is not None:
        require_one_element(value_tensor, "ValueTensor")
        require_same_dtype("ValueTensor and Out", value_tensor, out)
    else:
        constant_of(out.dtype, value, str_value)
    return out


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
    """``Out`` is full of `value`, in the shape `shape`, where dimension `output_dim_idx` is `input_dim_idx` of Input.

    `str_value` and `force_cpu` are those of ``fill_constant``.
    """
    element = as_dtype(dtype)
    constant_of(element, value, str_value)
    return TensorType(element, batch_shape(x, shape, input_dim_idx, output_dim_idx))


@op("fill_zeros_like", inputs="X", outputs="Out", arrays="X", lod="X", grad=None)
def fill_zeros_like(x: TensorType) -> TensorType:
    """``Out = 0``, of the type of X; for an array zeros like each of its elements."""
    return x


@op("fill_any_like", inputs="X", outputs="Out", lod="X", grad=None)
def fill_any_like(x: TensorType, *, value: float = 0.0, dtype: int = -1) -> TensorType:
    """``Out = value`` in the shape of X; `dtype` is the number of its element type, -1 for that of X."""
    out = x if dtype == -1 else x.with_dtype(as_dtype(dtype))
    if out.dtype is DType.BOOL:
        require(0 <= value <= 1, f"{value:g} does not fit bool")
    constant_of(out.dtype, value)
    return out


VALUES_OF = {
    DType.BOOL: "bool_values", DType.FP32: "fp32_values", DType.INT32: "int32_values", DType.INT64: "int64_values",
    DType.FP64: "fp64_values",
}  # fmt: skip


@op("assign_value", outputs="Out", grad=None)
def assign_value(
    *,
    shape: list[int],
    dtype: int,
    bool_values: list[int] = _NONE,
    fp32_values: list[float] = _NONE,
    int32_values: list[int] = _NONE,
    int64_values: list[int] = _NONE,
    fp64_values: list[np.float64] = _NONE,
) -> TensorType:
    """``Out`` is a constant; the attribute for its element type holds the elements, row by row.

    Notes
    -----
    Fluid 1.8 has no `fp64_values`; later releases do.
    """
    element = as_dtype(dtype)
    given: dict[str, Sequence[Any]] = {
        "bool_values": bool_values, "fp32_values": fp32_values, "int32_values": int32_values,
        "int64_values": int64_values, "fp64_values": fp64_values,
    }  # fmt: skip
    known = ", ".join(map(str, VALUES_OF))
    require(element in VALUES_OF, f"there are no values of type {element}", hint=f"Use one of {known}.")
    name = VALUES_OF[element]
    wrong = [other for other, values in given.items() if values and other != name]
    require(not wrong, f"values of type {element} belong in {name}, found some in {', '.join(wrong)}")
    require(min(shape, default=0) >= 0, f"shape must have dimensions of at least 0, got {list(shape)}")
    count = len(given[name])
    require(math.prod(shape) == count, f"shape {list(shape)} has {math.prod(shape)} elements but {name} has {count}")
    if element is DType.INT32:
        require(all(-(2**31) <= v < 2**31 for v in int32_values), "int32_values holds a number that does not fit int32")
    return TensorType(element, tuple(shape))


@op("shape", inputs="Input", outputs="Out", grad=None)
def shape(x: TensorType) -> TensorType:
    """``Out`` is the shape of Input, a vector of int32."""
    return TensorType(DType.INT32, (x.rank,))


@op("size", inputs="Input", outputs="Out", grad=None)
def size(x: TensorType) -> TensorType:
    """``Out`` is the number of elements of Input, int64[1]."""
    return TensorType(DType.INT64, (1,))


def _increment_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("scale", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {})


@op("increment", inputs="X", outputs="Out", lod="X", grad=_increment_grad)
def increment(x: TensorType, *, step: float = 1.0) -> TensorType:
    """``Out = X + step``, of one element; often Out is X. For integers `step` is cut toward zero.

    Notes
    -----
    The gradient of Out is that of X. Fluid instead appends an operator that takes `step` off X again, which serves its
    loops, and stops the gradient where Out is not X.
    """
    require(x.dtype is not DType.BOOL, "X must be a number, got bool")
    require_one_element(x, "X")
    require(x.dtype.is_floating or abs(step) < 2**63, f"step={step:g} is no integer")
    return x
