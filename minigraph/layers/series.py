"""Tensors made of numbers: ranges, grids, masks of lengths, constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, constant, emit, input_or_attr, layer
from minigraph.layers.nn import check_integers
from minigraph.layers.tensor import Shape, cast, fill_constant
from minigraph.types import as_dtype

__all__ = ["arange", "full", "full_like", "linspace", "meshgrid", "ones_like", "range", "sequence_mask", "zeros_like"]


def _number(value: float | Variable, dtype: Any) -> Variable:
    """`value` as a tensor of shape [1] of this element type."""
    if not isinstance(value, Variable):
        return fill_constant([1], dtype, value)
    return value if value.dtype is as_dtype(dtype) else cast(value, dtype)


@layer
def range(start: float | Variable, end: float | Variable, step: float | Variable, dtype: Any) -> Variable:
    """The numbers from `start` up to but not including `end`, `step` apart; the three may be Variables too."""
    return constant(emit("range", Start=_number(start, dtype), End=_number(end, dtype), Step=_number(step, dtype)))


@layer
def arange(
    start: float | Variable,
    end: float | Variable,
    step: float | Variable = 1,
    dtype: Any = None,
    name: str | None = None,
) -> Variable:
    """`range` with the step 1 and float32 by default."""
    return range(start, end, step, "float32" if dtype is None else dtype)


@layer
def linspace(start: float | Variable, stop: float | Variable, num: int | Variable, dtype: Any) -> Variable:
    """`num` numbers from `start` to `stop` at equal distances, float32 or float64."""
    return emit("linspace", Start=_number(start, dtype), Stop=_number(stop, dtype), Num=_number(num, "int32"))


@layer
def meshgrid(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """Each of several vectors along a dimension of its own, repeated along the others."""
    if not isinstance(input, list | tuple):
        raise WrongTypeError(f"meshgrid: input must be a list of Variables, got {input!r:.60}")
    return LayerHelper("meshgrid", name).emit_list("meshgrid", len(input), X=input)


@layer
def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """A row for each length in `x`: as many ones, then zeros up to `maxlen` (None: the largest length)."""
    check_variable(x, "sequence_mask: x")
    if isinstance(maxlen, Variable):
        check_integers(maxlen, "sequence_mask: maxlen")
    length = input_or_attr(-1 if maxlen is None else maxlen, "MaxLenTensor", "maxlen")
    return constant(emit("sequence_mask", name, X=x, **length, out_dtype=int(as_dtype(dtype))))


@layer
def full(
    shape: Shape,
    fill_value: float | Variable,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor of this shape whose every element is `fill_value`, float32 by default; `device` changes nothing."""
    helper = LayerHelper("full", name)
    result = helper.temporary() if out is None else out
    fill_constant(shape, "float32" if dtype is None else dtype, fill_value, out=result)
    result.stop_gradient = bool(stop_gradient)
    return result


@layer
def full_like(
    input: Variable,
    fill_value: float,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor of the shape of `input`, and of its element type unless given, whose every element is `fill_value`."""
    element = check_variable(input, "full_like: input").dtype if dtype is None else as_dtype(dtype)
    helper = LayerHelper("full_like", name)
    result = helper.emit("fill_any_like", X=input, into=out, value=float(fill_value), dtype=int(element))
    result.stop_gradient = bool(stop_gradient)
    return result


@layer
def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones of the shape and element type of `x`."""
    return LayerHelper("ones_like").emit("fill_any_like", X=x, into=out, value=1.0)


@layer
def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros of the shape and element type of `x`."""
    return constant(LayerHelper("zeros_like").emit("fill_zeros_like", X=x, into=out))
