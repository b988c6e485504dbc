"""Gradients of matrix products, which are matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable


@rewritten_as("matmul_grad")
def _matmul(g: Rewriting) -> Mapping[str, Any]:
    x, y, d = g["X"], g["Y"], g["Out@GRAD"]
    t_x, t_y = g.attr("transpose_X"), g.attr("transpose_Y")
    a, b, d = _as_batches(g, x, y, d if g.attr("alpha") == 1.0 else g.scale(d, g.attr("alpha")))
    results: dict[str, Any] = {"X@GRAD": None, "Y@GRAD": None}
    if g.wants("X@GRAD"):
        made = g.matmul(b, d, transpose_X=t_y, transpose_Y=True) if t_x else g.matmul(d, b, transpose_Y=not t_y)
        results["X@GRAD"] = g.like(_without_batch(g, made, a), x.shape or ())
    if g.wants("Y@GRAD"):
        made = g.matmul(d, a, transpose_X=True, transpose_Y=t_x) if t_y else g.matmul(a, d, transpose_X=not t_x)
        results["Y@GRAD"] = g.like(_without_batch(g, made, b), y.shape or ())
    return results


def _as_batches(g: Rewriting, x: Variable, y: Variable, d: Variable) -> tuple[Variable, Variable, Variable]:
    """Operands and result of a product as matrices or batches of them: vectors are rows on the left, columns else."""
    a = g.like(x, (1, *x.shape)) if x.shape is not None and len(x.shape) == 1 else x
    b = g.like(y, (*y.shape, 1)) if y.shape is not None and len(y.shape) == 1 else y
    a_shape, b_shape = a.shape or (), b.shape or ()
    batch = a_shape[:-2] or b_shape[:-2]
    if len(a_shape) > 2 and len(b_shape) > 2:  # as many matrices, perhaps in other batch dimensions
        b = g.like(b, (*batch, *b_shape[-2:]))
    rows = a_shape[-1 if g.attr("transpose_X") else -2]
    columns = b_shape[-2 if g.attr("transpose_Y") else -1]
    return a, b, g.like(d, (*batch, rows, columns))


def _without_batch(g: Rewriting, made: Variable, operand: Variable) -> Variable:
    extra = len(made.shape or ()) - len(operand.shape or ())
    return g.sum(made, range(extra)) if extra > 0 else made
