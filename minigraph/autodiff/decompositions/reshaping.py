"""Gradients of operators that rearrange elements and are not declared linear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as


@rewritten_as("squeeze2_grad", "unsqueeze2_grad", "flatten2_grad")
def _reshape(g: Rewriting) -> Mapping[str, Any]:
    shape = (g["XShape"].shape or ())[1:]
    if 0 in shape or sum(size < 0 for size in shape) <= 1:
        return {"X@GRAD": g.like(g["Out@GRAD"], shape)}
    sizes = g.piece(g.emit("shape", Input=g["XShape"]), 0, 1, len(shape) + 1)
    return {"X@GRAD": g.emit("reshape2", X=g["Out@GRAD"], Shape=sizes, shape=list(shape))}


@rewritten_as("transpose2_grad")
def _transpose(g: Rewriting) -> Mapping[str, Any]:
    axis = list(g.attr("axis"))
    return {"X@GRAD": g.transpose(g["Out@GRAD"], [axis.index(i) for i in range(len(axis))])}


@rewritten_as("pad_constant_like_grad")
def _pad_constant_like(g: Rewriting) -> Mapping[str, Any]:
    shape = g["Y"].shape or ()
    if 0 in shape:  # slices are not empty
        return {"Y@GRAD": g.zeros(g["Y"])}
    attrs: dict[str, Any] = {"axes": list(range(len(shape))), "starts": [0] * len(shape), "ends": list(shape)}
    if -1 in shape:
        attrs |= {"EndsTensor": g.emit("shape", Input=g["Y"]), "infer_flags": [-1] * len(shape)}
    return {"Y@GRAD": g.emit("slice", Input=g["Out@GRAD"], **attrs)}


@rewritten_as("stack_grad")
def _stack(g: Rewriting) -> Mapping[str, Any]:
    d_y, count = g["Y@GRAD"], len(g.op.outputs["X@GRAD"])
    pieces = [g.block.create_var() for _ in range(count)]
    g.block.append_op("unstack", {"X": d_y}, {"Y": pieces}, {"axis": g.attr("axis"), "num": count})
    return {"X@GRAD": pieces}
