"""Arrays of tensors, which grow as they are written; a variable of this kind has the type of each of its elements.

Elements may be arrays themselves: gradients of gradients keep what a loop inside of a loop has kept. The type is then
that of the tensors in these.
"""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_one_integer
from minigraph.types import DType, TensorType, VarKind, as_dtype, normalize_axis


@op("empty_array", inputs="", outputs="Out", grad=None)
def empty_array(*, dtype: int = 5) -> TensorType:
    """``Out`` is an array without elements, for tensors of the element type with the number `dtype`."""
    return TensorType(as_dtype(dtype), (), VarKind.LOD_TENSOR_ARRAY)


def _write_to_array_grad(ctx: GradContext) -> Iterator[OpSpec]:
    array = ctx.d_output("Out")
    inputs, outputs = {"X": array, "I": ctx.input("I"), "X_W": ctx.input("X")}, {"Out": ctx.d_input("X")}
    if ctx.attr("add"):
        yield OpSpec("read_from_array", inputs, outputs, {})
        yield OpSpec("assign", {"X": array}, {"Out": array}, {})  # what was there before has the same gradient
    else:
        yield OpSpec("read_from_array", inputs, {**outputs, "Rest": array}, {})


@op("write_to_array", inputs="X I", outputs="Out", arrays="X", grad=_write_to_array_grad, updates="Out")
def write_to_array(x: TensorType, i: TensorType, *, add: bool = False) -> TensorType:
    """``Out[I] = X``; the array Out grows as far as needed, and keeps its other elements.

    With `add`, X is added to what Out holds there, if it holds something: gradients are collected so.

    Notes
    -----
    The gradient of X is what the gradient of Out holds at I, zero if that is nothing.
    """
    _require_index(i)
    return x.held_as(VarKind.LOD_TENSOR_ARRAY)


def _read_from_array_grad(ctx: GradContext) -> Iterator[OpSpec]:
    d_rest, index, array = ctx.d_output("Rest"), ctx.input("I"), ctx.d_input("X")
    if d_rest:
        yield OpSpec("read_from_array", {"X": d_rest, "I": index}, {"Rest": array}, {})
    if ctx.output("Out"):
        yield OpSpec("write_to_array", {"X": ctx.d_output("Out"), "I": index}, {"Out": array}, {"add": True})


@op("read_from_array", inputs="X I X_W", outputs="Out? Rest?", grad=_read_from_array_grad, arrays="X X_W")
def read_from_array(
    x: TensorType, i: TensorType, like: TensorType | None, *, is_array: bool = False
) -> tuple[TensorType, TensorType]:
    """``Out = X[I]``, with `is_array` an array itself.

    With X_W given, Out is zeros of its shape where X holds nothing. Rest is the array without the element: the gradient
    with respect to an array before it was written there.
    """
    _require_index(i)
    return (x.held_as(VarKind.LOD_TENSOR_ARRAY if is_array else VarKind.LOD_TENSOR) if like is None else like), x


@op("lod_array_length", inputs="X", outputs="Out", grad=None, arrays="X")
def lod_array_length(x: TensorType) -> TensorType:
    """``Out``, int64[1], is the number of elements of the array X."""
    return TensorType(DType.INT64, (1,))


def _joined_again(ctx: GradContext) -> Iterator[OpSpec]:
    """The gradient of the gradient of joining: what flows in is joined, where it is missing zeros."""
    zeros, flowing = ctx.temporary(), ctx.temporary()
    yield OpSpec("fill_zeros_like", {"X": ctx.input("X")}, {"Out": [zeros]}, {})
    yield OpSpec("sum", {"X": [zeros, *ctx.d_output("X@GRAD")]}, {"Out": [flowing]}, {})
    outputs = {"Out": ctx.d_input("Out@GRAD"), "OutIndex": [ctx.temporary()]}
    yield OpSpec("tensor_array_to_tensor", {"X": [flowing]}, outputs, dict(ctx.op.attrs))


@op(
    "tensor_array_to_tensor", inputs="X", outputs="Out OutIndex", arrays="X",
    grad=fused("X", like={"X": "X"}, grad=_joined_again),
)  # fmt: skip
def tensor_array_to_tensor(x: TensorType, *, axis: int = 0, use_stack: bool = False) -> tuple[TensorType, TensorType]:
    """``Out`` is the elements of the array X joined along `axis`, or with `use_stack` along a new one.

    OutIndex, int32, holds the length of each element along `axis`, 1 where it has no such dimension.
    """
    axis = normalize_axis(axis, x.rank + use_stack)
    shape = list(x.shape)
    shape[axis : axis + (not use_stack)] = [-1]
    return x.with_shape(shape), TensorType(DType.INT32, (-1,))


def _require_index(i: TensorType) -> None:
    require_one_integer(i, "I")
