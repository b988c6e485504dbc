"""Tensors in other shapes: dimensions of size 1 come and go, pieces are cut apart, joined, repeated and padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_one_integer, shape_from, shape_of_x
from minigraph.support.shape_rules import split_lengths, unsqueezed
from minigraph.types import TensorType, merge_shapes, normalize_axis, product, require, require_same_dtype, same_dim

_NONE: Any = ()
_LIKE_X = {"X": ("XShape", shape_of_x)}


def _with_x_shape(x: TensorType, shape: Sequence[int]) -> tuple[TensorType, TensorType]:
    """X in another shape, and XShape."""
    return x.with_shape(shape), x.with_shape((0, *x.shape))


@op(
    "squeeze2", inputs="X", outputs="Out XShape~", lod={"Out": "rows X", "XShape": "X"},
    grad=fused("XShape", like=_LIKE_X),
)  # fmt: skip
def squeeze2(x: TensorType, *, axes: list[int] = _NONE) -> tuple[TensorType, TensorType]:
    """``Out`` is X without the dimensions `axes`, which have size 1; without `axes`, without all that have.

    XShape, without elements, keeps the shape of X for the gradient.
    """
    gone = {normalize_axis(axis, x.rank, "each of axes") for axis in axes}
    for axis in sorted(gone):
        require(
            same_dim(x.shape[axis], 1),
            f"dimension {axis} of X has {x.shape[axis]} elements, only one of size 1 can be left out",
        )
    if not axes:
        gone = {i for i, dim in enumerate(x.shape) if dim == 1}
    return _with_x_shape(x, [dim for i, dim in enumerate(x.shape) if i not in gone])


@op(
    "unsqueeze2", inputs="X AxesTensor AxesTensorList", outputs="Out XShape~", lod={"XShape": "X"},
    grad=fused("XShape", like=_LIKE_X),
)  # fmt: skip
def unsqueeze2(
    x: TensorType,
    axes_tensor: TensorType | None,
    axes_tensor_list: list[TensorType] | None,
    *,
    axes: list[int] = _NONE,
) -> tuple[TensorType, TensorType]:
    """``Out`` is X with dimensions of size 1 inserted at `axes`, one after the other.

    If `axes` is empty, AxesTensorList (a number each) or else AxesTensor (a vector) takes its place. XShape, without
    elements, keeps the shape of X for the gradient.
    """
    if axes or (axes_tensor is None and not axes_tensor_list):
        return _with_x_shape(x, unsqueezed(x.shape, axes))
    vector = None if axes_tensor_list else axes_tensor
    added = shape_from((), vector, axes_tensor_list, "AxesTensor", "AxesTensorList")
    return _with_x_shape(x, (-1,) * (x.rank + len(added)))


@op(
    "flatten2", inputs="X", outputs="Out XShape~", lod={"Out": "rows X", "XShape": "X"},
    grad=fused("XShape", like=_LIKE_X),
)  # fmt: skip
def flatten2(x: TensorType, *, axis: int = 1) -> tuple[TensorType, TensorType]:
    """``Out`` is X as a matrix: the dimensions before `axis` count its rows, the others its columns.

    XShape, without elements, keeps the shape of X for the gradient.
    """
    require(0 <= axis <= x.rank, f"axis must be in [0, {x.rank}], got {axis}")
    return _with_x_shape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


def _split_grad(ctx: GradContext) -> Iterator[OpSpec]:
    inputs = {"X": ctx.d_output("Out")}
    if ctx.input("AxisTensor"):
        inputs["AxisTensor"] = ctx.input("AxisTensor")
    yield OpSpec("concat", inputs, {"Out": ctx.d_input("X")}, {"axis": ctx.attr("axis")})


@op("split", inputs="X AxisTensor SectionsTensorList", outputs="Out*", lod="rows X", grad=_split_grad)
def split(
    x: TensorType,
    axis_tensor: TensorType | None,
    sections_tensor_list: list[TensorType] | None,
    *,
    sections: list[int] = _NONE,
    num: int = 0,
    axis: int = 0,
) -> list[TensorType]:
    """``Out`` is X cut along `axis` into `num` equal pieces, or if that is 0 into pieces as long as `sections` says.

    One of the sections may be -1, for what is left over. AxisTensor, of one element, takes the place of `axis`, and
    SectionsTensorList, a number each, that of `sections`.
    """
    for part in sections_tensor_list or ():
        require_one_integer(part, "SectionsTensorList")
    if axis_tensor is not None:
        require_one_integer(axis_tensor, "AxisTensor")
    require(num >= 0, f"num must not be negative, got {num}")
    count = num or len(sections_tensor_list or sections)
    require(count > 0, "neither num nor sections says how to split X")
    if axis_tensor is not None:
        return [x.with_shape((-1,) * x.rank)] * count
    axis = normalize_axis(axis, x.rank)
    if num or not sections_tensor_list:
        lengths = split_lengths(x.shape[axis], num, sections)
    else:
        lengths = [-1] * count
    return [x.with_shape((*x.shape[:axis], length, *x.shape[axis + 1 :])) for length in lengths]


def _unstacked(y: TensorType, *, axis: int) -> list[TensorType]:
    axis = normalize_axis(axis, y.rank)
    return [y.with_shape(y.shape[:axis] + y.shape[axis + 1 :])] * y.shape[axis]


def _stacked(xs: Sequence[TensorType], axis: int) -> TensorType:
    shape = xs[0].shape
    for i, x in enumerate(xs[1:], start=1):
        shape = merge_shapes(shape, x.shape, f"X[0] and X[{i}]")
    axis = normalize_axis(axis, len(shape) + 1)
    return xs[0].with_shape((*shape[:axis], len(xs), *shape[axis:]))


@op("stack", inputs="X", outputs="Y", lod="X", grad=fused(to="X", infer=_unstacked, lod=False))
def stack(xs: list[TensorType], *, axis: int = 0) -> TensorType:
    """``Y`` is the tensors of X, which have one shape, beside each other along a new dimension `axis`."""
    require(bool(xs), "X is missing")
    require_same_dtype("X", *xs)
    return _stacked(xs, axis)


@op(
    "unstack",
    inputs="X",
    outputs="Y*",
    grad=fused(to="X", infer=lambda d_ys, *, axis, num: _stacked(d_ys, axis), linear=True, lod=False),
)
def unstack(x: TensorType, *, axis: int = 0, num: int) -> list[TensorType]:
    """``Y`` is the `num` slices of X along dimension `axis`, which has as many elements, without that dimension."""
    axis = normalize_axis(axis, x.rank)
    require(num > 0, f"num must be positive, got {num}")
    require(same_dim(x.shape[axis], num), f"num is {num} but dimension {axis} of X has {x.shape[axis]} elements")
    return [x.with_shape(x.shape[:axis] + x.shape[axis + 1 :])] * num


@op(
    "expand", inputs="X ExpandTimes expand_times_tensor", outputs="Out",
    lod="rows X", grad=fused("X", "ExpandTimes", "expand_times_tensor", to="X", linear=True, lod=False),
)  # fmt: skip
def expand(
    x: TensorType,
    times_vector: TensorType | None,
    times_tensor: list[TensorType] | None,
    *,
    expand_times: list[int] = _NONE,
) -> TensorType:
    """``Out`` is X repeated along dimension i ``expand_times[i]`` times.

    ExpandTimes (a vector) or else expand_times_tensor (a number each) takes the place of `expand_times` at run time.
    """
    if times_vector is not None or times_tensor:
        given = shape_from(
            expand_times or (-1,) * x.rank, times_vector, times_tensor, "ExpandTimes", "expand_times_tensor"
        )
        require(len(given) == x.rank, f"X has {x.rank} dimensions but there are {len(given)} expand_times")
        return x.with_shape((-1,) * x.rank)
    require(len(expand_times) == x.rank, f"X has {x.rank} dimensions but expand_times is {list(expand_times)}")
    require(min(expand_times, default=1) > 0, f"expand_times must be positive, got {list(expand_times)}")
    return x.with_shape(product(pair) for pair in zip(x.shape, expand_times, strict=True))


@op(
    "expand_as",
    inputs="X target_tensor",
    outputs="Out",
    grad=fused("X", "target_tensor", to="X", linear=True, lod=False),
)
def expand_as(x: TensorType, target: TensorType) -> TensorType:
    """``Out`` is X repeated to the shape of target_tensor, whose dimensions are multiples of those of X."""
    require_same_dtype("X and target_tensor", x, target)
    require(x.rank == target.rank, f"X and target_tensor must have as many dimensions, got {x} and {target}")
    for i, (have, want) in enumerate(zip(x.shape, target.shape, strict=True)):
        fits = -1 in (have, want) or have == want or (have > 0 and want > 0 and want % have == 0)
        require(fits, f"dimension {i} of target_tensor, {want}, is no multiple of that of X, {have}")
    return target


def _unpadded(d_out: TensorType, *, paddings: Sequence[int], pad_value: float) -> TensorType:
    around = map(sum, zip(paddings[::2], paddings[1::2], strict=True))
    return d_out.with_shape(-1 if dim == -1 else dim - pad for dim, pad in zip(d_out.shape, around, strict=True))


@op(
    "pad",
    inputs="X",
    outputs="Out",
    lod="rows X",
    grad=fused(to="X", infer=_unpadded, linear={"pad_value": 0.0}, lod=False),
)
def pad(x: TensorType, *, paddings: list[int], pad_value: float = 0.0) -> TensorType:
    """``Out`` is X with ``paddings[2 * i]`` elements `pad_value` before it and ``paddings[2 * i + 1]`` after.

    This holds for each dimension i. For integers `pad_value` is cut toward zero.
    """
    require(len(paddings) == 2 * x.rank, f"paddings must be two for each of {x.rank} dimensions, got {list(paddings)}")
    require(min(paddings, default=0) >= 0, f"paddings must not be negative, got {list(paddings)}")
    require(
        x.dtype.is_floating or abs(pad_value) < 2**63,
        f"pad_value={pad_value:g} is no integer, as the elements of X are",
    )
    around = map(sum, zip(paddings[::2], paddings[1::2], strict=True))
    return x.with_shape(-1 if dim == -1 else dim + more for dim, more in zip(x.shape, around, strict=True))
