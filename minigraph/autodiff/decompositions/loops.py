"""Gradients of loops: loops over the kept values of the runs, the last one first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.blocks import Gradients, is_array, number, outer_reads
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.ir.effects import outer_names
from minigraph.opdef import GRAD_SUFFIX, SUB_BLOCK
from minigraph.types import DType


@rewritten_as("while_grad")
def _while(g: Rewriting) -> Mapping[str, Any]:
    """Let the forward loop count its runs, and append a loop that goes from the last run to the first.

    Gradients of variables that the forward loop overwrites are passed from run to run. Gradients of variables that it
    only reads are added up.
    """
    gradients = Gradients(g, "StepScopes")
    body = gradients.body
    count = gradients.start("fill_constant", shape=[1], dtype=int(DType.INT64), value=0.0, str_value="0")
    arrays = gradients.keep(count)
    gradients.append("increment", {"X": count}, {"Out": count})
    gradients.complete_slots("X")

    incoming = dict(zip(g.attr("original_output_grad"), g.op.inputs["Out" + GRAD_SUFFIX], strict=True))
    flowing, sums = _first_gradients(gradients, incoming)
    index = g.emit("increment", X=count, step=-1.0, stop_gradient=True)
    first = number(g.block, 0)
    goes_on = g.emit("greater_equal", X=index, Y=first, stop_gradient=True)

    gradients.read_back(arrays, index)
    with body.inserting_before(body.ops.first):
        for name, var in flowing.items():
            body.append_op("assign", {"X": var}, {"Out": gradients.found[name]})
    for name, var in flowing.items():
        # A variable is overwritten by every run, so nothing flows to its earlier value unless the block says so.
        value = gradients.found[name] if name in gradients.written else body.emit("fill_zeros_like", X=var)
        body.append_op("assign", {"X": value}, {"Out": var})
    for name, var in sums.items():
        body.append_op("assign", {"X": body.emit("elementwise_add", X=var, Y=gradients.found[name])}, {"Out": var})
    body.append_op("increment", {"X": index}, {"Out": index}, {"step": -1.0})
    body.append_op("greater_equal", {"X": index, "Y": first}, {"Out": goes_on})
    outputs = [goes_on.name, *(name for name in outer_names(body)[1] if name != goes_on.name)]
    g.block.append_op(
        "while", {"X": [name for name in outer_reads(body) if name != goes_on.name], "Condition": goes_on},
        {"Out": outputs, "StepScopes": gradients.scopes()}, {SUB_BLOCK: body.idx},
    )  # fmt: skip
    return gradients.results("X", {**flowing, **sums})


def _first_gradients(
    gradients: Gradients, incoming: Mapping[str, str]
) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """Gradients that flow into the last run, and zeros for sums, by the names of gradients in the block."""
    g = gradients.g
    changed = set(outer_names(gradients.forward)[1])
    sources = {source + GRAD_SUFFIX: g.var(source) for source, _ in gradients.wanted("X")}
    flowing = {name: g.emit("assign", X=g.var(given)) for name, given in incoming.items() if name in gradients.found}
    sums: dict[str, Variable] = {}
    for name, source in sources.items():
        if name not in flowing:
            place = flowing if source.name in changed or is_array(source) else sums
            place[name] = gradients.zeros(source)
    return flowing, sums
