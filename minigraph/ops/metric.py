"""Measures of predictions."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import DType, TensorType, merge_shapes, product, require, require_floating, same_dim


@op("top_k", inputs="X K", outputs="Out Indices", lod="X", grad=fused("X", "Indices", lod=False))
def top_k(x: TensorType, size: TensorType | None = None, *, k: int = 1) -> tuple[TensorType, TensorType]:
    """The `k` largest elements of each row (the last dimension), in descending order, and their indices.

    NaN comes before everything. ``K``, one integer, stands in for the attribute; the shape of the result is then known
    only when the program runs.

    Notes
    -----
    Of equal elements the one with the lower index comes first if `k` is 1, on a GPU, and in rows with NaN. Otherwise
    they come in the order in which fluid has them on a CPU, where indices were recorded.
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


@op("accuracy", inputs="Out Indices Label", outputs="Accuracy Correct Total", lod={"Accuracy": "Out"}, grad=None)
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


@op("auc", inputs="Predict Label StatPos StatNeg", outputs="AUC StatPosOut StatNegOut", grad=None)
def auc(
    predict: TensorType,
    label: TensorType,
    positives: TensorType,
    negatives: TensorType,
    *,
    curve: str = "ROC",
    num_thresholds: int = 4095,
    slide_steps: int = 1,
) -> tuple[TensorType, TensorType, TensorType]:
    """The area under the curve of true over false positives of a classifier into two, float64[1].

    Predict holds the probabilities of class 1 in its last column; Label, int32 or int64[rows, 1] or [rows], the
    classes. StatPos and StatNeg count the rows of each class by probability, in ``num_thresholds + 1`` buckets, and are
    returned with the new rows. With `slide_steps` 0 they hold all rows so far; otherwise those of each of so many last
    steps, their sum, and the number of the step, so that the area is that of the last steps.

    References
    ----------
    T. Fawcett, An introduction to ROC analysis, Pattern Recognition Letters 27, 2006.
    """
    require_floating(predict, "Predict")
    require(curve == "ROC", f"curve must be ROC, got {curve!r}")
    require(num_thresholds > 0 and slide_steps >= 0, f"got num_thresholds={num_thresholds}, slide_steps={slide_steps}")
    require(predict.rank == 2, f"Predict must be a matrix, got {predict}")
    require(label.dtype in (DType.INT32, DType.INT64), f"Label must be int32 or int64, got {label.dtype}")
    is_column = label.rank == 1 or (label.rank == 2 and same_dim(label.shape[1], 1))
    require(is_column, f"Label must have shape [rows, 1] or [rows], got {label}")
    merge_shapes(predict.shape[:1], label.shape[:1], "the rows of Predict and Label")
    buckets = num_thresholds + 1
    size = (slide_steps + 1) * buckets + 1
    for slot, counts in (("StatPos", positives), ("StatNeg", negatives)):
        require(counts.dtype is DType.INT64, f"{slot} must be int64, got {counts.dtype}")
        found = product(counts.shape)
        # Without steps there is no number of the step at the end; fluid's layer leaves room for one nevertheless.
        fits = same_dim(found, size) or (slide_steps == 0 and same_dim(found, buckets))
        require(fits, f"{slot} must have {size if slide_steps else buckets} elements, got {counts}")
    return TensorType(DType.FP64, (1,)), positives, negatives
