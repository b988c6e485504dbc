"""Diagonals of matrices, and what lies on one side of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, constant, emit, layer
from minigraph.layers.reshaping import stack
from minigraph.layers.tensor import assign
from minigraph.types import as_dtype

__all__ = ["diag", "diag_embed", "eye", "trace", "tril", "triu"]


@layer
def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: Sequence[int] | None = None, dtype: Any = "float32"
) -> Variable:
    """A matrix with ones on its diagonal and zeros beside it, square by default; a batch of them in `batch_shape`."""
    columns = num_rows if num_columns is None else num_columns
    result = emit("eye", num_rows=num_rows, num_columns=columns, dtype=int(as_dtype(dtype)))
    for size in reversed(batch_shape or ()):
        if size < 1:
            raise ProgramError(f"eye: batch_shape must be positive, got {list(batch_shape or ())}")
        result = stack([result] * size, axis=0)
    return constant(result)


@layer
def diag(diagonal: Variable | np.ndarray[Any, Any]) -> Variable:
    """The square matrix with a vector on its diagonal and zeros beside it; no gradient flows through."""
    if isinstance(diagonal, np.ndarray):
        diagonal = assign(diagonal)
    return constant(emit("diag", Diagonal=diagonal))


@layer
def diag_embed(
    input: Variable | np.ndarray[Any, Any], offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Variable:  # fmt: skip
    """A matrix for each vector along the last dimension of `input`, with that on its diagonal; no gradient flows.

    `offset` moves the diagonal up, or down where it is negative. `dim1` and `dim2` are where the rows and columns of
    the matrices come in the result.
    """
    if isinstance(input, np.ndarray):
        input = assign(input)
    return constant(emit("diag_embed", Input=input, offset=offset, dim1=dim1, dim2=dim2))


@layer
def trace(
    input: Variable, offset: int = 0, dim1: int = 0, dim2: int = 1, out: Variable | None = None, name: str | None = None
) -> Variable:
    """The sums over the diagonals of the matrices along dimensions `dim1` and `dim2`, into `out` if given."""
    return emit("trace", name, Input=input, into=out, offset=offset, dim1=dim1, dim2=dim2)


@layer
def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Matrices with zeros above their diagonal; `diagonal` moves that up, or down where it is negative."""
    return _triangle("tril", input, diagonal, name)


@layer
def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Matrices with zeros below their diagonal; `diagonal` moves that up, or down where it is negative."""
    return _triangle("triu", input, diagonal, name)


def _triangle(what: str, x: Variable, diagonal: int, name: str | None) -> Variable:
    helper = LayerHelper(what, name)
    result = helper.block.create_var(name=helper.name)
    return helper.emit("tril_triu", X=x, into=result, diagonal=diagonal, lower=what == "tril")
