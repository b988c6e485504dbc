"""Indices of extremes, and sorting."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, layer

__all__ = ["argmax", "argmin", "argsort"]


@layer
def argmax(x: Variable, axis: int = 0) -> Variable:
    """The index (int64) of the largest element along `axis`, the first of several."""
    return _extreme("arg_max", check_variable(x, "argmax: x"), axis)


@layer
def argmin(x: Variable, axis: int = 0) -> Variable:
    """The index (int64) of the smallest element along `axis`, the first of several."""
    return _extreme("arg_min", check_variable(x, "argmin: x"), axis)


def _extreme(op_type: str, x: Variable, axis: int) -> Variable:
    index = LayerHelper(op_type).unary(op_type, {"X": x}, axis=axis)
    index.stop_gradient = True
    return index


@layer
def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """The elements in order along `axis`, and where they stood (int64); no gradient flows to either."""
    inputs = {"X": check_variable(input, "argsort: input")}
    helper = LayerHelper("argsort", name)
    out, indices = helper.several("argsort", inputs, "Out Indices", axis=axis, descending=descending)
    out.stop_gradient = indices.stop_gradient = True
    return out, indices
