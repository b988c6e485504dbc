"""Indices of extremes, and sorting."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import as_index_dtype
from minigraph.types import DType, TensorType, normalize_axis, require, require_number


def _extreme(x: TensorType, axis: int, keepdims: bool, dtype: int) -> TensorType:
    require_number(x)
    at = normalize_axis(axis, x.rank)
    require(x.shape[at] != 0, f"X {list(x.shape)} has no elements along dimension {at}")
    index = DType.INT64 if dtype == -1 else as_index_dtype(dtype)
    shape = (*x.shape[:at], 1, *x.shape[at + 1 :]) if keepdims else (*x.shape[:at], *x.shape[at + 1 :])
    return TensorType(index, shape or (1,))


@op("arg_max", inputs="X", outputs="Out", grad=None)
def arg_max(x: TensorType, *, axis: int, keepdims: bool = False, dtype: int = -1) -> TensorType:
    """The index along `axis` of the largest element, the first of several; NaN counts as the largest.

    `keepdims` leaves the dimension in the shape as 1. `dtype` (fluid's number) is int64 or int32, -1 meaning int64.

    Notes
    -----
    The result for a vector has shape [1], in fluid none.
    """
    return _extreme(x, axis, keepdims, dtype)


@op("arg_min", inputs="X", outputs="Out", grad=None)
def arg_min(x: TensorType, *, axis: int, keepdims: bool = False, dtype: int = -1) -> TensorType:
    """The index along `axis` of the smallest element, the first of several; NaN counts as the smallest.

    Options as of ``arg_max``.
    """
    return _extreme(x, axis, keepdims, dtype)


@op("argsort", inputs="X", outputs="Out Indices", lod="X", grad=fused("X", "Indices"))
def argsort(x: TensorType, *, axis: int = -1, descending: bool = False) -> tuple[TensorType, TensorType]:
    """The elements of X in order along `axis`, and their indices in X.

    Equal elements keep their order, and NaN counts as the largest; fluid promises neither.
    """
    require_number(x)
    normalize_axis(axis, x.rank)
    return x, TensorType(DType.INT64, x.shape)
