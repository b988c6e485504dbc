"""Sequences of different lengths: convolutions over the rows of each."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType, require, require_floating, require_same_dtype, same_dim


@op(
    "sequence_conv", inputs="X PaddingData Filter", outputs="Out", grad=fused("X", "Filter", to="X Filter"), lod="X",
    lengths="X", backend_attrs={"paddingTrainable": False},
)  # fmt: skip
def sequence_conv(
    x: TensorType,
    padding: TensorType | None,
    filter: TensorType,
    *,
    contextLength: int,
    contextStart: int = 0,
    contextStride: int = 1,
) -> TensorType:
    """``Out``: for each row a product of Filter with the rows around it, side by side, zeros beyond the sequence.

    The rows are the `contextLength` from `contextStart` after the row itself. Filter is
    ``[contextLength * width, filters]``.
    """
    require_floating(x)
    require_same_dtype("X and Filter", x, filter)
    require(padding is None, "PaddingData must not be given: rows beyond the sequence are zeros")
    require(contextStride == 1, f"contextStride must be 1, got {contextStride}")
    require(contextLength > 0, f"contextLength must be positive, got {contextLength}")
    require(x.rank == 2 and filter.rank == 2, f"X and Filter must be matrices, got {x} and {filter}")
    width = -1 if x.shape[1] == -1 else x.shape[1] * contextLength
    require(
        same_dim(filter.shape[0], width),
        f"Filter must have contextLength * width = {contextLength} * {x.shape[1]} rows, got {filter}",
    )
    return x.with_shape((x.shape[0], filter.shape[1]))
