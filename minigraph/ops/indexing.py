"""Picking elements of tensors: by ranges, by their numbers, by conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_bool, require_integers, require_one_integer
from minigraph.support.slice_rules import count, span, strided_span
from minigraph.types import (
    DType,
    TensorType,
    as_dtype,
    merge_shapes,
    normalize_axis,
    require,
    require_same_dtype,
    same_dim,
    same_shape,
)

_NONE: Any = ()


def _bounds(
    name: str,
    numbers: Sequence[int],
    vector: TensorType | None,
    parts: Sequence[TensorType] | None,
    axes: Sequence[int],
    infer_flags: Sequence[int],
) -> list[int | None]:
    """The known bounds of a slice on one side, None where a bound is unknown."""
    slot = f"{name.capitalize()}Tensor"
    flags = infer_flags or [-1 if parts or vector is not None else 1] * len(axes)
    if parts:
        require(len(parts) == len(axes), f"axes has {len(axes)} numbers but {slot}List {len(parts)}")
        for part in parts:
            require_one_integer(part, f"{slot}List")
        if not numbers:
            return [None] * len(axes)
    elif vector is not None:
        require_integers(vector, slot)
        fits = vector.rank == 1 and same_dim(vector.shape[0], len(axes))
        require(fits, f"{slot} must be a vector of {len(axes)} numbers, got {vector}")
        return [None] * len(axes)
    require(len(numbers) == len(axes), f"axes has {len(axes)} numbers but {name} is {list(numbers)}")
    return [number if flag != -1 else None for number, flag in zip(numbers, flags, strict=True)]


def _check_axes(
    x: TensorType, axes: Sequence[int], infer_flags: Sequence[int], decrease_axis: Sequence[int]
) -> list[int]:
    """`axes` counted from the front."""
    found = [normalize_axis(axis, x.rank, "each of axes") for axis in axes]
    require(len(set(found)) == len(found), f"axes names a dimension twice: {list(axes)}")
    require(not infer_flags or len(infer_flags) == len(axes), f"infer_flags must be one for each of axes {list(axes)}")
    for axis in decrease_axis:
        require(normalize_axis(axis, x.rank, "each of decrease_axis") in found, f"decrease_axis {axis} is not sliced")
    return found


def _decreased(x: TensorType, dims: Sequence[int], decrease_axis: Sequence[int]) -> TensorType:
    """A tensor of `dims` without the dimensions `decrease_axis`; if none is left, of shape [1]."""
    gone = {axis % x.rank for axis in decrease_axis}
    for axis in sorted(gone):
        require(same_dim(dims[axis], 1), f"decrease_axis: dimension {axis} has {dims[axis]} elements, not one")
    kept = [dim for i, dim in enumerate(dims) if i not in gone]
    return x.with_shape(kept if kept or not gone else [1])


@op(
    "slice", inputs="Input StartsTensor EndsTensor StartsTensorList EndsTensorList", outputs="Out",
    lod="rows Input",
    grad=fused("Input", "StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList", linear=True, lod=False),
)  # fmt: skip
def slice(
    x: TensorType,
    starts_tensor: TensorType | None,
    ends_tensor: TensorType | None,
    starts_list: list[TensorType] | None,
    ends_list: list[TensorType] | None,
    *,
    axes: list[int],
    starts: list[int] = _NONE,
    ends: list[int] = _NONE,
    infer_flags: list[int] = _NONE,
    decrease_axis: list[int] = _NONE,
) -> TensorType:
    """``Out`` is the elements of Input from ``starts[i]`` up to but not including ``ends[i]`` along ``axes[i]``.

    Negative numbers count from the back, and what lies outside of Input is left out; at least one element must be
    left. StartsTensorList (a number each) or else StartsTensor (a vector) takes the place of `starts`, and likewise of
    `ends`. Dimensions in `decrease_axis`, of which one element is taken, are left out; if none is left, the shape is
    [1].

    An `infer_flags` of -1 says that nothing is known of that dimension before the program runs; one of 1, that the
    numbers in a list of tensors are those in the attribute.
    """
    along = _check_axes(x, axes, infer_flags, decrease_axis)
    known_starts = _bounds("starts", starts, starts_tensor, starts_list, axes, infer_flags)
    known_ends = _bounds("ends", ends, ends_tensor, ends_list, axes, infer_flags)
    dims = list(x.shape)
    for axis, start, end in zip(along, known_starts, known_ends, strict=True):
        length = dims[axis]
        if length == -1 or start is None or end is None:
            dims[axis] = -1
        else:
            dims[axis] = count(span(length, start, end), length)
    return _decreased(x, dims, decrease_axis)


@op(
    "strided_slice",
    inputs="Input StartsTensor EndsTensor StridesTensor StartsTensorList EndsTensorList StridesTensorList",
    outputs="Out",
    grad=fused(
        "Input", "StartsTensor", "EndsTensor", "StridesTensor", "StartsTensorList", "EndsTensorList",
        "StridesTensorList", linear=True,
    ),
)  # fmt: skip
def strided_slice(
    x: TensorType,
    starts_tensor: TensorType | None,
    ends_tensor: TensorType | None,
    strides_tensor: TensorType | None,
    starts_list: list[TensorType] | None,
    ends_list: list[TensorType] | None,
    strides_list: list[TensorType] | None,
    *,
    axes: list[int],
    starts: list[int] = _NONE,
    ends: list[int] = _NONE,
    strides: list[int] = _NONE,
    infer_flags: list[int] = _NONE,
    decrease_axis: list[int] = _NONE,
) -> TensorType:
    """``Out`` is every ``strides[i]``-th element of Input from ``starts[i]`` towards ``ends[i]`` along ``axes[i]``.

    All else is as for ``slice``.

    Notes
    -----
    A negative stride -s takes every s-th element from ``ends[i] + 1`` up to ``starts[i]`` and reverses them, as in
    fluid: from 4 to 0 by -2 these are elements 3 and 1. An end of -1 means the place before the first element there.
    Subscripts, such as ``x[4:0:-2]``, follow Python's rule.
    """
    along = _check_axes(x, axes, infer_flags, decrease_axis)
    known_starts = _bounds("starts", starts, starts_tensor, starts_list, axes, infer_flags)
    known_ends = _bounds("ends", ends, ends_tensor, ends_list, axes, infer_flags)
    known_strides = _bounds("strides", strides, strides_tensor, strides_list, axes, infer_flags)
    dims = list(x.shape)
    for axis, start, end, stride in zip(along, known_starts, known_ends, known_strides, strict=True):
        length = dims[axis]
        if length == -1 or start is None or end is None or stride is None:
            dims[axis] = -1
        else:
            dims[axis] = count(strided_span(length, start, end, stride), length)
    return _decreased(x, dims, decrease_axis)


def _reverse_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("reverse", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {"axis": ctx.attr("axis")})


@op("reverse", inputs="X", outputs="Out", grad=_reverse_grad)
def reverse(x: TensorType, *, axis: list[int]) -> TensorType:
    """``Out`` is X with the elements along each dimension of `axis` in reverse order."""
    for each in axis:
        normalize_axis(each, x.rank)
    return x


@op("gather", inputs="X Index", outputs="Out", grad=fused("X", "Index", to="X", linear=True))
def gather(x: TensorType, index: TensorType, *, overwrite: bool = True) -> TensorType:
    """``Out[i] = X[Index[i]]``; Index is a vector, or a matrix of one column.

    Notes
    -----
    `overwrite` is about the gradient where Index names a row of X more than once: the row gets the sum of what flows
    into its copies, or, if `overwrite`, only what flows into the last one, as in fluid.
    """
    require_integers(index, "Index")
    require(x.rank >= 1, f"X must have dimensions, got {x}")
    is_vector = index.rank == 1 or (index.rank == 2 and same_dim(index.shape[1], 1))
    require(is_vector, f"Index must be a vector or have one column, got {index}", hint="Use gather_nd, or flatten it.")
    return x.with_shape((index.shape[0], *x.shape[1:]))


@op("gather_nd", inputs="X Index", outputs="Out", lod="X", grad=fused("X", "Index", to="X", linear=True))
def gather_nd(x: TensorType, index: TensorType) -> TensorType:
    """``Out[i] = X[Index[i, 0], Index[i, 1], ...]`` for each place i in the dimensions of Index but the last.

    The last dimension of Index says how many of the first dimensions of X are indexed.
    """
    require_integers(index, "Index")
    require(index.rank >= 2, f"Index must have at least 2 dimensions, got {index}")
    depth = index.shape[-1]
    require(depth != -1, f"the last dimension of Index must be known, got {index}")
    require(depth <= x.rank, f"Index names {depth} dimensions but X has {x.rank}")
    return x.with_shape((*index.shape[:-1], *x.shape[depth:]))


@op("scatter", inputs="X Ids Updates", outputs="Out", grad=fused("Ids", "Updates", to="X Updates", lod=False))
def scatter(x: TensorType, ids: TensorType, updates: TensorType, *, overwrite: bool = True) -> TensorType:
    """``Out`` is X with ``Out[Ids[i]] = Updates[i]``; of several for one row the last counts.

    Without `overwrite` such a row is the sum of its updates, without what X holds there.

    Notes
    -----
    The gradient is fluid's: that of X is that of Out, also in rows which were replaced, and that of ``Updates[i]`` is
    that of ``Out[Ids[i]]``, also where another update counts.
    """
    require_integers(ids, "Ids")
    require_same_dtype("X and Updates", x, updates)
    require(ids.rank == 1, f"Ids must be a vector, got {ids}")
    require(
        x.rank >= 1 and updates.rank == x.rank and same_shape(updates.shape[1:], x.shape[1:]),
        f"Updates must hold rows like those of X, got {updates} for {x}",
    )
    require(same_dim(updates.shape[0], ids.shape[0]), f"Updates has {updates.shape[0]} rows but Ids is {ids}")
    return x


def _one_hot(
    shape: Sequence[int], x: TensorType, depth_tensor: TensorType | None, depth: int, dtype: int
) -> TensorType:
    require_integers(x, "X")
    if depth_tensor is not None:
        require_one_integer(depth_tensor, "depth_tensor")
        depth = -1
    else:
        require(depth > 0, f"depth must be positive, got {depth}")
    return TensorType(as_dtype(dtype), (*shape, depth))


@op("one_hot", inputs="X depth_tensor", outputs="Out", lod="X", grad=None)
def one_hot(
    x: TensorType,
    depth_tensor: TensorType | None,
    *,
    depth: int = -1,
    dtype: int = 5,
    allow_out_of_range: bool = False,
) -> TensorType:
    """``Out[..., j] = 1`` where X, whose last dimension is 1, is j, else 0; j counts up to `depth`.

    depth_tensor, of one element, takes the place of `depth`. With `allow_out_of_range` numbers that are not in
    [0, depth) give zeros only, else they are an error. `dtype` is the number of the element type of Out.
    """
    require(x.rank >= 2 and same_dim(x.shape[-1], 1), f"the last of at least 2 dimensions of X must be 1, got {x}")
    return _one_hot(x.shape[:-1], x, depth_tensor, depth, dtype)


@op("one_hot_v2", inputs="X depth_tensor", outputs="Out", lod="X", grad=None)
def one_hot_v2(
    x: TensorType,
    depth_tensor: TensorType | None,
    *,
    depth: int = -1,
    dtype: int = 5,
    allow_out_of_range: bool = False,
) -> TensorType:
    """``one_hot`` for X of any shape, to which Out adds a dimension."""
    return _one_hot(x.shape, x, depth_tensor, depth, dtype)


@op(
    "where",
    inputs="Condition X Y",
    outputs="Out",
    lod="X",
    grad=fused("Condition", "X", "Y", to="X Y", linear=True, lod=False),
)
def where(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    """``Out`` is X where Condition holds, and Y elsewhere; all have one shape."""
    require_bool(condition, "Condition")
    require_same_dtype("X and Y", x, y)
    shape = merge_shapes(x.shape, y.shape, "X and Y")
    return x.with_shape(merge_shapes(shape, condition.shape, "X and Condition"))


@op("where_index", inputs="Condition", outputs="Out", grad=None)
def where_index(condition: TensorType) -> TensorType:
    """``Out`` is the indices of the elements of Condition that are not 0, a row of int64 each, in order.

    How many there are is known only when the program runs.
    """
    require(condition.rank >= 1, f"Condition must have dimensions, got {condition}")
    return TensorType(DType.INT64, (-1, condition.rank))
