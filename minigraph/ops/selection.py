"""Picking along one dimension, adding where indices say, and moving elements around."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import as_index_dtype, require_integers
from minigraph.types import (
    DType,
    TensorType,
    merge_shapes,
    normalize_axis,
    require,
    require_number,
    require_same_dtype,
    same_dim,
    same_shape,
)


@op("index_select", inputs="X Index", outputs="Out", lod="X", grad=fused("X", "Index", to="X", linear=True, lod=False))
def index_select(x: TensorType, index: TensorType, *, dim: int = 0) -> TensorType:
    """``Out`` is the slices of X along dimension `dim` that Index, a vector, names.

    A slice that is named more than once gets the sum of the gradients of its copies.
    """
    require_integers(index, "Index")
    require(index.rank == 1, f"Index must be a vector, got {index}")
    at = normalize_axis(dim, x.rank, "dim")
    return x.with_shape((*x.shape[:at], index.shape[0], *x.shape[at + 1 :]))


@op(
    "index_sample",
    inputs="X Index",
    outputs="Out",
    lod="Index",
    grad=fused("X", "Index", to="X", linear=True, lod=False),
)
def index_sample(x: TensorType, index: TensorType) -> TensorType:
    """``Out[i, j] = X[i, Index[i, j]]``, for matrices with as many rows."""
    require_integers(index, "Index")
    require(x.rank == index.rank == 2, f"X and Index must be matrices, got {x} and {index}")
    require(same_dim(x.shape[0], index.shape[0]), f"X has {x.shape[0]} rows but Index has {index.shape[0]}")
    return x.with_shape((x.shape[0] if x.shape[0] != -1 else index.shape[0], index.shape[1]))


@op("multiplex", inputs="Ids X", outputs="Out", grad=fused("Ids", "X", to="X", linear=True, lod=False))
def multiplex(ids: TensorType, xs: list[TensorType]) -> TensorType:
    """``Out[i] = X[Ids[i]][i]``: row i comes from the tensor of X that Ids, int32[rows, 1], names."""
    require(ids.dtype is DType.INT32, f"Ids must be int32, got {ids.dtype}", hint="Convert it with layers.cast.")
    require(ids.rank == 2 and same_dim(ids.shape[1], 1), f"Ids must have shape [rows, 1], got {list(ids.shape)}")
    require(len(xs) >= 2, f"X must be at least 2 tensors to choose from, got {len(xs)}")
    require_same_dtype("X", *xs)
    shape = xs[0].shape
    for i, x in enumerate(xs):
        require(x.rank >= 2, f"X must have at least 2 dimensions, got {x}")
        shape = merge_shapes(shape, x.shape, f"X[0] and X[{i}]")
    require(same_dim(ids.shape[0], shape[0]), f"Ids has {ids.shape[0]} rows but X has {shape[0]}")
    return xs[0].with_shape(shape)


@op(
    "scatter_nd_add",
    inputs="X Index Updates",
    outputs="Out",
    lod="X",
    grad=fused("Index", "Updates", to="X Updates", lod=False),
)
def scatter_nd_add(x: TensorType, index: TensorType, updates: TensorType) -> TensorType:
    """``Out`` is X plus ``Updates[i]`` at ``Index[i, 0], Index[i, 1], ...``, for each place i in Index.

    A place is one in all dimensions of Index but the last. Several updates of one place add up.
    """
    require_integers(index, "Index")
    require_same_dtype("X and Updates", x, updates)
    require_number(x)
    require(index.rank >= 2, f"Index must have at least 2 dimensions, got {index}")
    depth = index.shape[-1]
    require(depth != -1, f"the last dimension of Index must be known, got {index}")
    require(depth <= x.rank, f"Index names {depth} dimensions but X has {x.rank}")
    expected = (*index.shape[:-1], *x.shape[depth:])
    require(same_shape(updates.shape, expected), f"Updates must have shape {list(expected)}, got {updates}")
    return x


def _flip_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("flip", {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, {"dims": ctx.attr("dims")})


@op("flip", inputs="X", outputs="Out", lod="X", grad=_flip_grad)
def flip(x: TensorType, *, dims: list[int]) -> TensorType:
    """``Out`` is X with the elements along each dimension of `dims` in reverse order."""
    seen = [normalize_axis(each, x.rank, "each of dims") for each in dims]
    require(len(set(seen)) == len(seen), f"dims names a dimension twice: {list(dims)}")
    return x


@op("roll", inputs="X", outputs="Out", lod="X", grad=fused("X", linear=True, lod=False))
def roll(x: TensorType, *, shifts: list[int] = (), dims: list[int] = ()) -> TensorType:  # type: ignore[assignment]
    """``Out`` is X moved by ``shifts[i]`` places along ``dims[i]``; what leaves at one end enters at the other."""
    require(len(shifts) == len(dims), f"shifts and dims must be as many, got {list(shifts)} and {list(dims)}")
    for each in dims:
        normalize_axis(each, x.rank, "each of dims")
    return x


def _distinct(x: TensorType, dtype: int) -> tuple[TensorType, TensorType, TensorType]:
    require_number(x)
    require(x.rank == 1, f"X must be a vector, got {x}")
    index = as_index_dtype(dtype)
    return x.with_shape((-1,)), TensorType(index, x.shape), TensorType(index, (-1,))


@op("unique", inputs="X", outputs="Out Index", grad=None)
def unique(x: TensorType, *, dtype: int = 2) -> tuple[TensorType, TensorType]:
    """``Out`` is the distinct elements of the vector X in the order of their first occurrence; ``X = Out[Index]``.

    How many there are is known only when the program runs. `dtype` is that of Index.
    """
    return _distinct(x, dtype)[:2]


@op("unique_with_counts", inputs="X", outputs="Out Index Count", grad=None)
def unique_with_counts(x: TensorType, *, dtype: int = 2) -> tuple[TensorType, TensorType, TensorType]:
    """``unique``, and Count, the number of occurrences in X of each element of Out."""
    return _distinct(x, dtype)
