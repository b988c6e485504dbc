"""Rows of a table, looked up by number."""

from __future__ import annotations

from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType, VarKind, require, same_dim

_BACKEND_ATTRS = {"grad_inplace": False, "trainer_id": 0}


def _looked_up(table: TensorType, ids: TensorType) -> None:
    require(table.rank == 2, f"W must have 2 dimensions, got {table}")
    require(ids.dtype.numpy.kind in "iu", f"Ids must hold integers, got {ids.dtype}", hint="Convert with layers.cast.")


def _table_gradient(table: TensorType, ids: TensorType, d_out: TensorType, *, is_sparse: bool, **_: Any) -> TensorType:
    return table.held_as(VarKind.SELECTED_ROWS if is_sparse else VarKind.LOD_TENSOR)


@op(
    "lookup_table",
    inputs="W Ids",
    outputs="Out",
    lod="Ids",
    grad=fused("W", "Ids", to="W", linear=True, infer=_table_gradient, lod=False),
    backend_attrs=_BACKEND_ATTRS,
)
def lookup_table(
    table: TensorType,
    ids: TensorType,
    *,
    is_sparse: bool = False,
    is_distributed: bool = False,
    remote_prefetch: bool = False,
    padding_idx: int = -1,
) -> TensorType:
    """``Out[i, ...] = W[Ids[i, ..., 0]]``: a row of W for each id; the last dimension of Ids is 1.

    The id `padding_idx`, unless that is -1, stands for a row of zeros, and W gets no gradient from it. Any other id
    must be that of a row of W. With `is_sparse` the gradient of W is selected rows, what flows into each id, and as in
    fluid padding is no exception. `is_distributed` and `remote_prefetch` change nothing.
    """
    _looked_up(table, ids)
    require(
        ids.rank >= 1 and same_dim(ids.shape[-1], 1),
        f"the last dimension of Ids must be 1, got {ids}",
        hint="Take lookup_table_v2 (fluid.embedding) for ids without it.",
    )
    return table.with_shape((*ids.shape[:-1], table.shape[1]))


@op(
    "lookup_table_v2",
    inputs="W Ids",
    outputs="Out",
    lod="Ids",
    grad=fused("W", "Ids", to="W", linear=True, infer=_table_gradient, lod=False),
    backend_attrs=_BACKEND_ATTRS,
)
def lookup_table_v2(
    table: TensorType,
    ids: TensorType,
    *,
    is_sparse: bool = False,
    is_distributed: bool = False,
    remote_prefetch: bool = False,
    padding_idx: int = -1,
) -> TensorType:
    """``Out[i, ...] = W[Ids[i, ...]]``: ``lookup_table`` for Ids of any shape."""
    _looked_up(table, ids)
    return table.with_shape((*ids.shape, table.shape[1]))
