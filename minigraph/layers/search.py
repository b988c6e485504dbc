"""Indices of extremes, and sorting."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, constant, emit, layer

__all__ = ["argmax", "argmin", "argsort"]


@layer
def argmax(x: Variable, axis: int = 0) -> Variable:
    """The index (int64) of the largest element along `axis`, the first of several."""
    return constant(emit("arg_max", X=x, axis=axis))


@layer
def argmin(x: Variable, axis: int = 0) -> Variable:
    """The index (int64) of the smallest element along `axis`, the first of several."""
    return constant(emit("arg_min", X=x, axis=axis))


@layer
def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """The elements in order along `axis`, and where they stood (int64); no gradient flows to either."""
    out, indices = LayerHelper("argsort", name).emit_all("argsort", X=input, axis=axis, descending=descending)
    return constant(out), constant(indices)
