"""Picking along one dimension, adding where indices say, moving elements around, and finding distinct ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, emit, layer
from minigraph.layers.indexing import slice, where
from minigraph.layers.nn import check_integers
from minigraph.layers.tensor import Shape, fill_constant, reshape
from minigraph.support.arguments import INTEGERS
from minigraph.types import as_dtype

__all__ = [
    "flip", "index_sample", "index_select", "multiplex", "nonzero", "roll", "scatter_nd", "scatter_nd_add", "unique",
    "unique_with_counts",
]  # fmt: skip


@layer
def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """The slices of `input` along dimension `dim` that the vector `index` names."""
    return emit("index_select", X=input, Index=check_integers(index, "index_select: index"), dim=dim)


@layer
def index_sample(x: Variable, index: Variable) -> Variable:
    """``x[i, index[i, j]]``, for matrices with as many rows."""
    return emit("index_sample", X=x, Index=check_integers(index, "index_sample: index"))


@layer
def multiplex(inputs: Sequence[Variable], index: Variable) -> Variable:
    """Row i of the tensor among `inputs` that ``index[i]`` names, for each row; `index` is int32[rows, 1]."""
    return emit("multiplex", X=list(inputs), Ids=check_integers(index, "multiplex: index"))


@layer
def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """`ref` plus ``updates[i]`` at the place ``index[i, 0], index[i, 1], ...``; several for one place add up."""
    return emit("scatter_nd_add", name, X=ref, Index=check_integers(index, "scatter_nd_add: index"), Updates=updates)


@layer
def scatter_nd(index: Variable, updates: Variable, shape: Shape, name: str | None = None) -> Variable:
    """`scatter_nd_add` to zeros of this shape."""
    zeros = fill_constant(shape, check_variable(updates, "scatter_nd: updates").dtype, 0.0)
    return scatter_nd_add(zeros, index, updates, name)


@layer
def flip(input: Variable, dims: int | Sequence[int], name: str | None = None) -> Variable:
    """`input` with the elements along each dimension of `dims` in reverse order."""
    return emit("flip", name, X=input, dims=[dims] if isinstance(dims, INTEGERS) else list(dims))


@layer
def roll(input: Variable, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Variable:
    """`input` moved by `shifts` places along `dims`; what leaves at one end enters at the other.

    With `dims` None the elements move as if they stood in one row.
    """
    shape = check_variable(input, "roll: input").shape or ()
    by = [shifts] if isinstance(shifts, INTEGERS) else list(shifts)
    # As one column: the operator moves along a dimension, and needs one to move along.
    x = reshape(input, [-1, 1]) if dims is None else input
    along = [0] if dims is None else [dims] if isinstance(dims, INTEGERS) else list(dims)
    if len(by) != len(along):
        raise ProgramError(f"roll: there are {len(by)} shifts for {len(along)} dims")
    # In place: the result of the operator has no other reader.
    return reshape(emit("roll", X=x, shifts=by, dims=along), shape, inplace=True)


@layer
def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """The different elements of a vector in the order of their first places, and where each element went.

    Examples
    --------
    >>> import numpy as np
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     elements, index = fluid.layers.unique(fluid.dygraph.to_variable(np.array([3, 1, 3, 2])))
    ...     elements.numpy(), index.numpy()
    (array([3, 1, 2]), array([0, 1, 0, 2], dtype=int32))
    """
    out, index = LayerHelper("unique").emit_all("unique", X=x, dtype=int(as_dtype(dtype)))
    return out, index


@layer
def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """`unique`, and how often each of its elements stands in `x`."""
    helper = LayerHelper("unique_with_counts")
    out, index, count = helper.emit_all("unique_with_counts", X=x, dtype=int(as_dtype(dtype)))
    return out, index, count


@layer
def nonzero(input: Variable, as_tuple: bool = False) -> Variable | tuple[Variable, ...]:
    """The places where `input` is not 0, in order: int64[-1, dimensions], or with `as_tuple` each column by itself."""
    places = where(input)
    if not as_tuple:
        return places
    rank = len(input.shape or ())
    return tuple(slice(places, axes=[1], starts=[i], ends=[i + 1]) for i in range(rank))
