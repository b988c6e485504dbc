"""Operators on selected rows only. Other operators accept selected rows in the slots that their ``rows`` names."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.types import TensorType, require


def _require_rows(x: TensorType) -> None:
    require(x.is_rows, "X must be selected rows, got a dense tensor", hint="Look the rows up with is_sparse=True.")


@op("merge_selected_rows", inputs="X", outputs="Out", rows="X", grad=None)
def merge_selected_rows(x: TensorType) -> TensorType:
    """X with each row number once, in ascending order: rows of one number are added up."""
    _require_rows(x)
    return x


@op("get_tensor_from_selected_rows", inputs="X", outputs="Out", rows="X", grad=None)
def get_tensor_from_selected_rows(x: TensorType) -> TensorType:
    """The values of the rows as a dense tensor, without their numbers."""
    _require_rows(x)
    return x.with_shape((-1, *x.shape[1:]))
