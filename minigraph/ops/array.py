"""Arrays of tensors, which grow as they are written; a variable of this kind has the type of each of its elements."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import GradContext, OpSpec, fused, op
from minigraph.ops.tensor import require_integers, require_one_element
from minigraph.types import DType, TensorType, VarKind, normalize_axis, require


def _write_to_array_grad(ctx: GradContext) -> Iterator[OpSpec]:
    array = ctx.d_output("Out")
    yield OpSpec(
        "read_from_array",
        {"X": array, "I": ctx.input("I"), "X_W": ctx.input("X")},
        {"Out": ctx.d_input("X"), "Rest": array},
        {},
    )


@op("write_to_array", inputs="X I", outputs="Out", grad=_write_to_array_grad, updates="Out")
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
    yield OpSpec(
        "write_to_array", {"X": ctx.d_output("Out"), "I": ctx.input("I")}, {"Out": ctx.d_input("X")}, {"add": True}
    )


@op("read_from_array", inputs="X I X_W", outputs="Out? Rest?", grad=_read_from_array_grad, arrays="X")
def read_from_array(x: TensorType, i: TensorType, like: TensorType | None) -> tuple[TensorType, TensorType]:
    """``Out = X[I]``.

    With X_W given, Out is zeros of its shape where X holds nothing. Rest is the array without the element: the gradient
    with respect to an array before it was written there.
    """
    _require_index(i)
    require(x.rank > 0 or like is not None, "nothing has written to the array X by then")
    return (x.held_as(VarKind.LOD_TENSOR) if like is None else like), x


@op("lod_array_length", inputs="X", outputs="Out", grad=None, arrays="X")
def lod_array_length(x: TensorType) -> TensorType:
    """``Out``, int64[1], is the number of elements of the array X."""
    return TensorType(DType.INT64, (1,))


@op(
    "tensor_array_to_tensor", inputs="X", outputs="Out OutIndex", arrays="X", grad=fused("X", like={"X": "X"})
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
    require_integers(i, "I")
    require_one_element(i, "I")
