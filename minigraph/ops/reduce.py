"""Sums, means and extremes over dimensions or over a list of tensors; those over all dimensions have shape [1]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_bool
from minigraph.types import (
    DType,
    TensorType,
    VarKind,
    as_dtype,
    merge_shapes,
    normalize_axis,
    require,
    require_floating,
    require_number,
    require_same_dtype,
)

_FIRST = [0]


@op("mean", inputs="X", outputs="Out", grad=fused("X"))
def mean(x: TensorType) -> TensorType:
    """Mean of all elements, of shape [1]; NaN when there are none."""
    require_floating(x)
    return x.with_shape((1,))


def _reduced(
    x: TensorType, dim: Sequence[int], keep_dim: bool, reduce_all: bool, in_dtype: int, out_dtype: int
) -> TensorType:
    require(
        in_dtype in (-1, int(x.dtype)),
        f"in_dtype is {in_dtype} but X is {x.dtype}",
        hint=f"Leave it at -1, or give {int(x.dtype)}; to compute in another type set out_dtype.",
    )
    axes = set(range(x.rank)) if reduce_all else {normalize_axis(axis, x.rank, "dim") for axis in dim}
    require(
        reduce_all or len(dim) > 0, "dim names no dimension", hint="Set reduce_all=True to reduce over all of them."
    )
    require(reduce_all or len(axes) == len(dim), f"dim = {list(dim)} names a dimension twice")
    if keep_dim:
        shape = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    else:
        shape = tuple(size for i, size in enumerate(x.shape) if i not in axes)
    return TensorType(x.dtype if out_dtype == -1 else as_dtype(out_dtype), shape or (1,))


def _of_numbers(
    x: TensorType, *, dim: list[int] = _FIRST, keep_dim: bool = False, reduce_all: bool = False,
    in_dtype: int = -1, out_dtype: int = -1,
) -> TensorType:  # fmt: skip
    require_number(x)
    return _reduced(x, dim, keep_dim, reduce_all, in_dtype, out_dtype)


def _of_booleans(
    x: TensorType, *, dim: list[int] = _FIRST, keep_dim: bool = False, reduce_all: bool = False,
    in_dtype: int = -1, out_dtype: int = -1,
) -> TensorType:  # fmt: skip
    require_bool(x, "X")
    require(out_dtype in (-1, int(DType.BOOL)), f"the result is bool, out_dtype cannot be {out_dtype}")
    return _reduced(x, dim, keep_dim, reduce_all, in_dtype, out_dtype)


op(
    "reduce_sum", inputs="X", outputs="Out", lod="rows X", grad=fused("X", linear=True),
    doc="""Sum over the dimensions `dim`, or over all.

    `keep_dim` leaves them in the shape as 1. `out_dtype` is the type (fluid's number) that X is converted to first.
    """,
)(_of_numbers)  # fmt: skip
op(
    "reduce_mean", inputs="X", outputs="Out", lod="rows X", grad=fused("X", linear=True),
    doc="Mean over the dimensions `dim`, or over all; of integers rounded toward zero. Options as of ``reduce_sum``.",
)(_of_numbers)  # fmt: skip
op(
    "reduce_max", inputs="X", outputs="Out", lod="rows X", grad=fused("X", "Out"),
    doc="""Maximum over the dimensions `dim`, or over all; of nothing the lowest number. Options as of ``reduce_sum``.

    NaN wins. Every element that attains the maximum gets the full gradient.
    """,
)(_of_numbers)  # fmt: skip
op(
    "reduce_min", inputs="X", outputs="Out", lod="rows X", grad=fused("X", "Out"),
    doc="""Minimum over the dimensions `dim`, or over all; of nothing the highest number. Options as of ``reduce_sum``.

    NaN wins. Every element that attains the minimum gets the full gradient.
    """,
)(_of_numbers)  # fmt: skip
op(
    "reduce_prod", inputs="X", outputs="Out", lod="rows X", grad=fused("X", "Out"),
    doc="""Product over the dimensions `dim`, or over all; of nothing 1. Options as of ``reduce_sum``.

    The gradient of an element is the product of the others, also where one of them is 0 (fluid: NaN).
    """,
)(_of_numbers)  # fmt: skip
op(
    "reduce_all", inputs="X", outputs="Out", lod="rows X", grad=None,
    doc="Whether all booleans over the dimensions `dim`, or over all, are true; of nothing True.",
)(_of_booleans)  # fmt: skip
op(
    "reduce_any", inputs="X", outputs="Out", lod="rows X", grad=None,
    doc="Whether any boolean over the dimensions `dim`, or over all, is true; of nothing False.",
)(_of_booleans)  # fmt: skip


def _cumsum_grad(ctx: GradContext) -> Iterator[OpSpec]:
    attrs = {"axis": ctx.attr("axis"), "exclusive": ctx.attr("exclusive"), "reverse": not ctx.attr("reverse")}
    yield OpSpec("cumsum", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, attrs)


@op("cumsum", inputs="X", outputs="Out", lod="X", grad=_cumsum_grad)
def cumsum(x: TensorType, *, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> TensorType:
    """Sums of the elements along `axis` up to each one.

    `exclusive` leaves the element itself out, `reverse` begins at the end.
    """
    require_number(x)
    normalize_axis(axis, x.rank)
    return x


def _sum_grad(ctx: GradContext) -> Iterator[OpSpec]:
    for d_x in ctx.d_input("X"):
        if ctx.holds_array("X"):
            yield OpSpec("assign", {"X": ctx.d_output("Out")}, {"Out": [d_x]}, {})
            continue
        yield OpSpec("scale", {"X": ctx.d_output("Out")}, {"Out": [d_x]}, {"scale": 1.0})


@op("sum", inputs="X", outputs="Out", rows="X", arrays="X", lod="X", grad=_sum_grad)
def sum(xs: list[TensorType]) -> TensorType:
    """Sum of the tensors in X, which have one shape and one element type.

    If all are selected rows it is all their rows, one tensor's after the other's, else dense. Of arrays of tensors it
    is the array of sums at each index.
    """
    require(len(xs) > 0, "X holds no tensor")
    require_same_dtype("X", *xs)
    if xs[0].is_array:
        # An array to which nothing has been written has the shape ().
        ranks = {x.rank for x in xs} - {0}
        require(all(x.is_array for x in xs) and len(ranks) <= 1, "X holds arrays and what fits none of them")
        shapes = [x.shape for x in xs if x.shape]
        dims = (sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True))
        return xs[0].with_shape(dims).held_as(VarKind.LOD_TENSOR_ARRAY)
    require(not any(x.is_array for x in xs), "X holds tensors and arrays of tensors")
    shape = xs[0].shape
    for x in xs[1:]:
        shape = merge_shapes(shape, x.shape, "X")
    return TensorType(xs[0].dtype, shape, xs[0].kind if all(x.is_rows for x in xs) else VarKind.LOD_TENSOR)


@op("squared_l2_norm", inputs="X", outputs="Out", rows="X", grad=fused("X", lod=False))
def squared_l2_norm(x: TensorType) -> TensorType:
    """Sum of the squares of all elements, of shape [1]."""
    require_floating(x)
    return x.with_shape((1,))
