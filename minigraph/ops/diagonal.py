"""Diagonals of matrices, and what lies on one side of them."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import DType, TensorType, as_dtype, normalize_axis, require, require_number


@op("eye", outputs="Out", grad=None)
def eye(*, num_rows: int, num_columns: int = -1, dtype: int = 5) -> TensorType:
    """``Out`` is a matrix with ones on its diagonal and zeros beside it; as many columns as rows if that is -1."""
    require(num_rows >= 0 and num_columns >= -1, f"{num_rows} rows and {num_columns} columns make no matrix")
    element = as_dtype(dtype)
    require(element is not DType.BOOL, "dtype must be that of numbers, got bool")
    return TensorType(element, (num_rows, num_rows if num_columns == -1 else num_columns))


@op("diag", inputs="Diagonal", outputs="Out", grad=None)
def diag(diagonal: TensorType) -> TensorType:
    """``Out`` is the square matrix with the vector Diagonal on its diagonal and zeros beside it."""
    require_number(diagonal, "Diagonal")
    require(diagonal.rank == 1, f"Diagonal must be a vector, got {diagonal}")
    return diagonal.with_shape(diagonal.shape * 2)


def diagonal_dims(rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    """The two dimensions of matrices, counted from the front.

    Raises
    ------
    OpError
        If there is no such dimension, or both are one.
    """
    rows, columns = normalize_axis(dim1, rank, "dim1"), normalize_axis(dim2, rank, "dim2")
    require(rows != columns, f"dim1={dim1} and dim2={dim2} must not be one dimension")
    return rows, columns


@op("diag_embed", inputs="Input", outputs="Out", grad=None)
def diag_embed(x: TensorType, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorType:
    """``Out`` holds a matrix for each vector along the last dimension of Input, which is on its diagonal.

    The rows and columns of the matrices are the dimensions `dim1` and `dim2` of Out; `offset` moves the diagonal up,
    or down where it is negative.
    """
    require_number(x, "Input")
    require(x.rank >= 1, "Input must have dimensions")
    rows, columns = diagonal_dims(x.rank + 1, dim1, dim2)
    size = -1 if x.shape[-1] == -1 else x.shape[-1] + abs(offset)
    dims = list(x.shape[:-1])
    for place in sorted((rows, columns)):
        dims.insert(place, size)
    return x.with_shape(dims)


@op("trace", inputs="Input", outputs="Out", grad=fused("Input", linear=True, lod=False))
def trace(x: TensorType, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorType:
    """The sums over the diagonals of the matrices whose rows and columns are the dimensions `dim1` and `dim2` of Input.

    `offset` moves the diagonal up, or down where it is negative; a diagonal outside of the matrix adds up to 0.
    """
    require_number(x, "Input")
    require(x.rank >= 2, f"Input must have at least 2 dimensions, got {x}")
    gone = diagonal_dims(x.rank, dim1, dim2)
    return x.with_shape([size for i, size in enumerate(x.shape) if i not in gone] or [1])


@op("tril_triu", inputs="X", outputs="Out", lod="X", grad=fused("X", linear=True, lod=False))
def tril_triu(x: TensorType, *, diagonal: int = 0, lower: bool) -> TensorType:
    """X with zeros above the diagonal of each matrix, or below it unless `lower`; `diagonal` moves that up."""
    require_number(x)
    require(x.rank >= 2, f"X must hold matrices, with at least 2 dimensions, got {x}")
    return x
