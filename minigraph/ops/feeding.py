"""Operators by which models say what they are fed and what is fetched; a run is given these, and leaves them out."""

from __future__ import annotations

from minigraph.opdef import DECLARED, op
from minigraph.types import FIXED_TYPES, TensorType, VarKind


@op("feed", inputs="X", outputs="Out", grad=None, arrays="X")
def feed(x: TensorType, *, col: int = 0) -> TensorType:
    """Number `col` of what is fed."""
    return DECLARED


@op("fetch", inputs="X", outputs="Out", grad=None)
def fetch(x: TensorType, *, col: int = 0) -> TensorType:
    """X, which is number `col` of what is fetched."""
    return FIXED_TYPES[VarKind.FETCH_LIST]
