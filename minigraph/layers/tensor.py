"""Making, converting and rearranging tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigraph.errors import WrongTypeError
from minigraph.initializer import Initializer, NumpyArrayInitializer
from minigraph.ir import Parameter, Variable
from minigraph.layer_helper import (
    LayerHelper,
    check_floating,
    check_variable,
    constant,
    create_state,
    emit,
    input_or_attr,
    layer,
)
from minigraph.param_attr import ParamAttr
from minigraph.support.arguments import INTEGERS, as_float
from minigraph.support.public import refuse_unknown_names
from minigraph.types import DType, TensorType, as_dtype
from minigraph.unique_name import generate

__all__ = [
    "assign", "cast", "concat", "create_global_var", "create_parameter", "create_tensor", "fill_constant",
    "fill_constant_batch_size_like", "increment", "ones", "rank", "reshape", "shape", "size", "topk", "transpose",
    "zeros",
]  # fmt: skip

Shape = Sequence[int | Variable] | Variable


@layer
def cast(x: Variable, dtype: Any) -> Variable:
    """`x` converted to `dtype`."""
    check_variable(x, "cast: x")
    return emit("cast", X=x, in_dtype=int(x.dtype), out_dtype=int(as_dtype(dtype)))


@layer
def assign(input: Variable | np.ndarray[Any, Any], output: Variable | None = None) -> Variable:
    """A copy of a variable, or an array as a constant of the program; written to `output` if given."""
    helper = LayerHelper("assign")
    if isinstance(input, np.ndarray):
        result = helper.temporary() if output is None else output
        # For its type only: the initializer asks a variable for shape and dtype, and `result` has none yet.
        var = Variable(helper.block, result.name, None)
        var.tensor_type = TensorType(as_dtype(input.dtype), input.shape)
        op_type, attrs = NumpyArrayInitializer(input).op_for(var, helper.block)
        helper.append(op_type, {}, {"Out": result}, attrs)
        return result
    return helper.emit("assign", X=check_variable(input, "assign: input"), into=output)


@layer
def concat(input: Sequence[Variable] | Variable, axis: int | Variable = 0, name: str | None = None) -> Variable:
    """Variables joined along `axis`; their other dimensions must be equal."""
    xs = list(input) if isinstance(input, list | tuple) else [input]
    return emit("concat", name, X=xs, **input_or_attr(axis, "AxisTensor", "axis"))


@layer
def reshape(
    x: Variable,
    shape: Shape,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """The elements of `x` in another shape: 0 keeps a dimension, one -1 is computed.

    `actual_shape`, when given, holds the shape at run time. `inplace` writes to `x` itself,
    unless that is persistable or fed.
    """
    helper = LayerHelper("reshape2", name)
    given = shape_given(shape, "Shape", "ShapeTensor", numbers_of(helper, "int32"))
    if actual_shape is not None and "ShapeTensor" not in given:
        given["Shape"] = actual_shape
    # A fed or persistable variable must have its shape again in the next run.
    into = x if inplace and not (x.persistable or x.is_data) else None
    return helper.activation(helper.emit("reshape2", X=x, into=into, **given), act)


@layer
def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Dimension i of the result is dimension ``perm[i]`` of `x`."""
    return LayerHelper("transpose", name).emit("transpose2", X=x, axis=perm)


@layer
def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """The `k` largest entries along the last dimension, and their indices (int64)."""
    helper = LayerHelper("top_k", name)
    found = helper.emit_all("top_k", X=check_floating(input, "topk: input"), **input_or_attr(k, "K", "k"))
    return constant(found[0]), constant(found[1])


@layer
def fill_constant(
    shape: Shape, dtype: Any, value: float | Variable, force_cpu: bool = False, out: Variable | None = None
) -> Variable:
    """A tensor of this shape whose every element is `value`."""
    helper = LayerHelper("fill_constant")  # takes its number before the numbers of the shape become variables
    given, element = shape_given(shape), as_dtype(dtype)
    if isinstance(value, Variable):
        given["ValueTensor"] = value
    else:
        # As text, because the attribute `value` is a float32, which holds neither large integers nor all float64.
        given |= {"value": as_float(value), "str_value": _number_text(value, element)}
    return constant(helper.emit("fill_constant", into=out, **given, dtype=int(element), force_cpu=force_cpu))


@layer
def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """Fill a tensor with a number; its dimension `output_dim_idx` is dimension `input_dim_idx` of `input`."""
    element = as_dtype(dtype)
    result = emit(
        "fill_constant_batch_size_like", Input=input, shape=shape, dtype=int(element), value=as_float(value),
        input_dim_idx=input_dim_idx, output_dim_idx=output_dim_idx, force_cpu=force_cpu,
        str_value=_number_text(value, element),
    )  # fmt: skip
    return constant(result)


@layer
def ones(shape: Shape, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones."""
    return fill_constant(shape, dtype, 1.0, force_cpu)


@layer
def zeros(shape: Shape, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of zeros."""
    return fill_constant(shape, dtype, 0.0, force_cpu)


@layer
def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """``x + value`` of a tensor with one element, written back to `x` unless `in_place` is False."""
    return emit("increment", X=x, into=x if in_place else None, step=as_float(value))


@layer
def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """A variable for other layers to write to."""
    helper = LayerHelper("create_tensor", name)
    return helper.block.create_var(name=helper.name, dtype=dtype, persistable=persistable)


@layer
def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: ParamAttr | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Parameter:
    """A parameter outside any layer."""
    helper = LayerHelper("create_parameter", name)
    param = helper.parameter(attr or ParamAttr(name=name), shape, dtype, is_bias, default_initializer)
    assert param is not None
    return param


@layer
def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """A variable of the global block that starts as `value`."""
    options: dict[str, Any] = {"persistable": persistable, "force_cpu": force_cpu, "stop_gradient": True}
    return create_state(name or generate("_generated_var"), shape, dtype, value, **options)


def _number_text(value: Any, element: DType) -> str:
    """`value` as the attribute ``str_value`` spells it, which knows no infinity or NaN: those are left to ``value``."""
    number = as_float(value)
    if not math.isfinite(number):
        return ""
    if element.is_floating or element is DType.BOOL:  # a half is True
        return str(number)
    # An integer itself, because a float does not hold large ones.
    return str(int(value) if isinstance(value, INTEGERS) else int(number))


def shape_given(
    shape: Shape,
    whole: str = "ShapeTensor",
    parts: str = "ShapeTensorList",
    numbers: Callable[[int], Variable] | None = None,
) -> dict[str, Any]:
    """Inputs and attributes that give an operator its shape: numbers, a Variable, or a list of both.

    `numbers` makes a Variable of a number that stands beside some. As in fluid that is a temporary of the layer for
    some operators; for the others it is a constant by itself, and Variables are converted to int32.
    """
    if isinstance(shape, Variable):
        return {whole: shape if numbers else _as_int32(shape)}
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    if not isinstance(shape, list | tuple):
        raise WrongTypeError(f"shape must be a list or a Variable, got {shape!r:.80}")
    # A known shape as an attribute: passes and kernels need no value of a run for it.
    if not any(isinstance(dim, Variable) for dim in shape):
        return {"shape": shape}
    convert, make = (lambda dim: dim, numbers) if numbers else (_as_int32, lambda dim: fill_constant([1], "int32", dim))
    pieces = [convert(dim) if isinstance(dim, Variable) else make(dim) for dim in shape]
    return {parts: pieces, "shape": [-1 if isinstance(dim, Variable) else dim for dim in shape]}


def _as_int32(x: Variable) -> Variable:
    # The operators read shapes as int32.
    return cast(x, "int32") if x.dtype is DType.INT64 else x


def numbers_of(helper: LayerHelper, dtype: str) -> Callable[[int], Variable]:
    """Return a function that makes a number a temporary of the layer."""
    # On the processor, which computes the shape.
    return lambda number: fill_constant([1], dtype, number, force_cpu=True, out=helper.temporary())


@layer
def shape(input: Variable) -> Variable:
    """The shape of `input` when the program runs, a vector of int32."""
    return emit("shape", Input=input)


@layer
def size(input: Variable) -> Variable:
    """Number of elements of `input`, int64[1]."""
    return emit("size", Input=input)


@layer
def rank(input: Variable) -> Variable:
    """Number of dimensions of `input`, a constant int32[1]."""
    return assign(np.array([len(check_variable(input, "rank: input").shape or ())], "int32"))


refuse_unknown_names(__name__, others="minigraph.layers")
