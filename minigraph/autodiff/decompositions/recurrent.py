"""Gradients of one step of recurrent cells, with the gates computed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.ops.recurrent import ACTIVATIONS


@rewritten_as("lstm_unit_grad")
def _lstm_unit(g: Rewriting) -> Mapping[str, Any]:
    x, before, d_cell, d_out = g["X"], g["C_prev"], g["C@GRAD"], g["H@GRAD"]
    i, f, o, c = _pieces(g, x, 4)
    i, o, c = g.emit("sigmoid", X=i), g.emit("sigmoid", X=o), g.emit("tanh", X=c)
    f = g.emit("sigmoid", X=g.scale(f, 1.0, g.attr("forget_bias")))
    squashed = g.emit("tanh", X=g.add(g.mul(f, before), g.mul(i, c)))
    d_cell = g.add(d_cell, _slope(g, "tanh", squashed, g.mul(d_out, o)))
    parts = [
        _slope(g, "sigmoid", i, g.mul(d_cell, c)), _slope(g, "sigmoid", f, g.mul(d_cell, before)),
        _slope(g, "sigmoid", o, g.mul(d_out, squashed)), _slope(g, "tanh", c, g.mul(d_cell, i)),
    ]  # fmt: skip
    return {"X@GRAD": g.concat(parts, 1), "C_prev@GRAD": g.mul(d_cell, f)}


@rewritten_as("gru_unit_grad")
def _gru_unit(g: Rewriting) -> Mapping[str, Any]:
    before, weight, bias, d = g["HiddenPrev"], g["Weight"], g.given("Bias"), g["Hidden@GRAD"]
    size = (weight.shape or ())[0]
    flat = g.like(weight, (3 * size * size,))
    for_gates = g.like(g.piece(flat, 0, 0, 2 * size * size), (size, 2 * size))
    for_candidate = g.like(g.piece(flat, 0, 2 * size * size, 3 * size * size), (size, size))
    of_gates, of_candidate = ACTIVATIONS[g.attr("gate_activation")], ACTIVATIONS[g.attr("activation")]
    total = g["Input"] if bias is None else g.add(g["Input"], bias)
    gates = g.add(g.piece(total, 1, 0, 2 * size), g.matmul(before, for_gates))
    gates = _activated(g, of_gates, gates)
    update, reset = _pieces(g, gates, 2)
    kept = g.mul(reset, before)
    candidate = g.add(g.piece(total, 1, 2 * size, 3 * size), g.matmul(kept, for_candidate))
    candidate = _activated(g, of_candidate, candidate)

    rest = g.scale(update, -1.0, 1.0)
    to_before, to_candidate = (update, rest) if g.attr("origin_mode") else (rest, update)
    ahead = g.sub(before, candidate) if g.attr("origin_mode") else g.sub(candidate, before)
    d_candidate = _slope(g, of_candidate, candidate, g.mul(d, to_candidate))
    d_kept = g.matmul(d_candidate, for_candidate, transpose_Y=True)
    d_gates = _slope(g, of_gates, gates, g.concat([g.mul(d, ahead), g.mul(d_kept, before)], 1))
    d_before = g.add(g.mul(d, to_before), g.mul(d_kept, reset))
    d_before = g.add(d_before, g.matmul(d_gates, for_gates, transpose_Y=True))
    d_total = g.concat([d_gates, d_candidate], 1)
    results: dict[str, Any] = {"Input@GRAD": d_total, "HiddenPrev@GRAD": d_before}
    results["Bias@GRAD"] = None if bias is None else g.sum(d_total, [0], keep=True)
    d_weights = [g.matmul(before, d_gates, transpose_X=True), g.matmul(kept, d_candidate, transpose_X=True)]
    flat = g.concat([g.like(each, (-1,)) for each in d_weights], 0)
    results["Weight@GRAD"] = g.like(flat, weight.shape or ())
    return results


def _pieces(g: Rewriting, x: Variable, count: int) -> list[Variable]:
    """`x` cut along its columns into equal pieces."""
    pieces = [g.block.create_var() for _ in range(count)]
    g.block.append_op("split", {"X": x}, {"Out": pieces}, {"num": count, "axis": 1})
    return pieces


def _activated(g: Rewriting, name: str, x: Variable) -> Variable:
    return x if name == "identity" else g.emit(name, X=x)


def _slope(g: Rewriting, name: str, result: Variable, d: Variable) -> Variable:
    """The gradient of an activation, from its result."""
    if name == "identity":
        return d
    if name == "relu":
        return g.mul(d, g.mask(g.compare("greater_than", result, 0.0), result))
    # 1 - y ** 2 for tanh, (1 - y) * y for sigmoid.
    falling = g.scale(g.square(result) if name == "tanh" else result, -1.0, 1.0)
    return g.mul(d, falling if name == "tanh" else g.mul(falling, result))
