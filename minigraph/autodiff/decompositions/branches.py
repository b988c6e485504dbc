"""Gradients of branches: branches that are taken when the forward one was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.blocks import Gradients, is_array, outer_reads
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.ir.effects import outer_names
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.types import DType


@rewritten_as("conditional_block_grad")
def _conditional_block(g: Rewriting) -> Mapping[str, Any]:
    """Let the forward branch note that it was taken, and save its values as the first elements of arrays.

    If the branch was not taken, the gradient of a variable that it overwrites passes through unchanged, and other
    gradients are zero.
    """
    gradients = Gradients(g, "Scope")
    forward, body = gradients.forward, gradients.body
    taken = gradients.start("fill_constant", shape=[1], dtype=int(DType.BOOL), value=0.0)
    zero = gradients.start("fill_constant", shape=[1], dtype=int(DType.INT64), value=0.0, str_value="0")
    arrays = gradients.keep(zero)
    gradients.append("fill_constant", {}, {"Out": taken}, shape=[1], dtype=int(DType.BOOL), value=1.0)
    gradients.complete_slots("Input")

    outs = zip(g.op.inputs["Out"], g.op.inputs["Out" + GRAD_SUFFIX], strict=True)
    incoming = {name + GRAD_SUFFIX: d_out for name, d_out in outs if d_out != EMPTY}
    changed = set(outer_names(forward)[1])
    results = {}
    for source, name in gradients.wanted("Input"):
        results[source + GRAD_SUFFIX] = result = g.var(name)
        # Written before the branch, which replaces it if it is taken.
        start = _unless_taken(gradients, g.var(source), incoming.get(source + GRAD_SUFFIX), source in changed)
        if start is not None and start is not result:
            g.block.append_op("assign", {"X": start}, {"Out": result})

    gradients.read_back(arrays, zero)
    with body.inserting_before(body.ops.first):
        for name, d_out in incoming.items():
            if name in gradients.found:
                body.append_op("assign", {"X": d_out}, {"Out": gradients.found[name]})
    for name, result in results.items():
        value = gradients.found[name]
        if name not in gradients.written:
            value = body.emit("fill_zeros_like", X=value)
        body.append_op("assign", {"X": value}, {"Out": result})
    with g.block.program.role_guard(g.op.role, g.op.role_vars):
        g.block.append_op(
            "conditional_block",
            {"Cond": taken, "Input": outer_reads(body)},
            {"Out": outer_names(body)[1], "Scope": gradients.scopes()},
            {SUB_BLOCK: body.idx, "is_scalar_condition": True},
        )
    return gradients.results("Input", results)


def _unless_taken(gradients: Gradients, source: Variable, d_out: str | None, is_changed: bool) -> Variable | None:
    """The gradient of `source` if the branch is not taken; None if `source` may have no value then."""
    if is_changed and d_out is not None:
        return gradients.g.var(d_out)
    writers = gradients.g.writers(source.name)
    if -1 in (source.shape or ()) and not is_array(source) and writers and writers[0].type in _MAY_LEAVE_OUT:
        return None
    return gradients.zeros(source)


_MAY_LEAVE_OUT = ("conditional_block", "conditional_block_grad", "select_output")
"""Operators that may leave their outputs without a value."""
