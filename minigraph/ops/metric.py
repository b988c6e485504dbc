"""What is measured about predictions."""

from __future__ import annotations

from minigraph.opdef import fused, op
from minigraph.types import DType, TensorType, merge_shapes, require, same_dim


@op("top_k", inputs="X K", outputs="Out Indices", grad=fused("X", "Indices"))
def top_k(x: TensorType, size: TensorType | None = None, *, k: int = 1) -> tuple[TensorType, TensorType]:
    """The `k` largest elements of each row (the last dimension), in descending order, and where they stand.

    Of equal elements the one with the lower index comes first, NaN before everything. ``K``, one integer, stands in for
    the attribute; the shape of the result is then known only when the program runs.

    Notes
    -----
    Fluid leaves the order of equal elements open.
    """
    require(x.rank >= 1, "X must have at least one dimension")
    require(k >= 1, f"k must be at least 1, got {k}")
    if size is not None:
        require(not size.dtype.is_floating, f"K must be an integer, got {size.dtype}")
        k = -1
    columns = x.shape[-1]
    require(columns == -1 or k <= columns, f"k = {k} but a row of X has only {columns} elements")
    shape = (*x.shape[:-1], k)
    return x.with_shape(shape), TensorType(DType.INT64, shape)


@op("accuracy", inputs="Out Indices Label", outputs="Accuracy Correct Total", grad=None)
def accuracy(values: TensorType, indices: TensorType, label: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    """The share of rows whose label is among the row's ``Indices``, as ``top_k`` gives them; 0 of no rows.

    ``Correct`` is the number of such rows and ``Total`` the number of all. ``Out``, the scores, is not read.
    """
    require(indices.rank == 2, f"Indices must have shape [rows, k], got {list(indices.shape)}")
    require(
        label.rank == 2 and same_dim(label.shape[1], 1),
        f"Label must have shape [rows, 1], got {list(label.shape)}",
        hint="Use layers.reshape or layers.unsqueeze to add the last dimension.",
    )
    require(not indices.dtype.is_floating, f"Indices must be integers, got {indices.dtype}")
    require(not label.dtype.is_floating, f"Label must be integers, got {label.dtype}")
    merge_shapes(indices.shape[:1], label.shape[:1], "the rows of Indices and Label")
    return TensorType(DType.FP32, (1,)), TensorType(DType.INT32, (1,)), TensorType(DType.INT32, (1,))
