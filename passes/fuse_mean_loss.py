"""The mean loss of a classifier and its gradient, as one operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import ReachingDefs, insert_for
from minigraph.types import DType


class FuseMeanLoss(Pass):
    """Compute ``mean(cross_entropy2(softmax(x), label))`` and its gradient by x as one ``fused_mean_loss``.

    The seven operators from the softmax to its gradient go over a few numbers each, so that calling them takes longer
    than what they do; compiled, they are one loop.

    Law: every value keeps its bits, because the kernel calls those of the single operators. The operator stands where
    the cross entropy stood; the probabilities may be used behind it, what lies between them and the loss may not. A
    probability is never 0 as float16 has it, and the labels are a column, or all is left as it is.
    """

    def apply(self, program: Program) -> bool:
        if not program.global_block().ops.of_type("softmax_grad"):
            return False
        values = ReachingDefs(program)
        chains = list(_chains(values))
        for chain in chains:
            _fuse(chain, values)
        return bool(chains)


class _Chain(NamedTuple):
    """The operators that become one; `seed` makes what the derivative of the mean is multiplied with."""

    softmax: Operator
    loss: Operator
    mean: Operator
    seed: Operator
    mean_grad: Operator
    loss_grad: Operator
    softmax_grad: Operator


def _chains(values: ReachingDefs) -> Iterator[_Chain]:
    for last in values.block.ops.of_type("softmax_grad"):
        chain = _chain_before(last, values)
        if chain is not None and _may_be_one(chain, values):
            yield chain


def _chain_before(last: Operator, values: ReachingDefs) -> _Chain | None:
    """The chain that ends with the gradient `last`, as far as single operators read what others make."""
    softmax = values.defining_op(values.input(last, "Out"), "softmax")
    loss_grad = values.defining_op(values.input(last, "Out@GRAD"), "cross_entropy_grad2")
    if softmax is None or loss_grad is None:
        return None
    loss = values.defining_op(values.input(loss_grad, "MatchX"), "cross_entropy2")
    mean_grad = values.defining_op(values.input(loss_grad, "Y@GRAD"), "mean_grad")
    if loss is None or mean_grad is None:
        return None
    seed = values.defining_op(values.input(mean_grad, "Out@GRAD"), "fill_constant")
    means = [op for op in values.readers[values.output(loss, "Y")] if op is not mean_grad]
    if seed is None or len(means) != 1 or means[0].type != "mean":
        return None
    return _Chain(softmax, loss, means[0], seed, mean_grad, loss_grad, last)


def _may_be_one(chain: _Chain, values: ReachingDefs) -> bool:
    softmax, loss, mean, seed, mean_grad, loss_grad, last = chain
    p, x, label = values.output(softmax, "Out"), values.input(softmax, "X"), values.input(loss, "Label")
    shape, dtype = values.block.vars[x[0]].shape or (), values.block.vars[x[0]].dtype
    belongs_together = (
        values.input(loss, "X") == p
        and values.input(loss_grad, "Label") == label
        and loss_grad.attr("ignore_index") == loss.attr("ignore_index")
        and values.input(mean_grad, "X") == values.output(loss, "Y")
    )
    fits = (
        shape and -1 not in shape and dtype in (DType.FP32, DType.FP64)
        and softmax.attr("axis") in (-1, len(shape) - 1)
        and values.block.vars[label[0]].shape == (*shape[:-1], 1)
        and values.block.vars[seed.outputs["Out"][0]].dtype is dtype
        and not any(seed.inputs.values()) and not seed.attr("str_value")
    )  # fmt: skip
    if not belongs_together or not fits or not values.is_there(x, loss):
        return False
    inner = [
        values.output(loss, "MatchX"), values.output(loss, "XShape"), values.output(mean_grad, "X@GRAD"),
        values.output(loss_grad, "X@GRAD"), values.output(seed, "Out"),
    ]  # fmt: skip
    if not all(values.is_used_once(value) for value in inner) or values.is_live_out(values.output(loss, "Y")):
        return False
    behind = all(op is loss or values.position[op] > values.position[loss] for op in values.readers[p])
    results = [values.output(mean, "Out"), values.output(last, "X@GRAD")]
    # They are written earlier than before, under names that nobody uses for something else until then.
    return behind and all(number == 1 and not values.readers[name, 0] for name, number in results)


def _fuse(chain: _Chain, values: ReachingDefs) -> None:
    p = values.output(chain.softmax, "Out")
    is_wanted = values.is_live_out(p) or any(op not in chain for op in values.readers[p])
    outputs = {"Loss": chain.mean.outputs["Out"], "Gradient": chain.softmax_grad.outputs["X@GRAD"]}
    if is_wanted:
        outputs["Out"] = chain.softmax.outputs["Out"]
    inputs = {"X": chain.softmax.inputs["X"], "Label": chain.loss.inputs["Label"]}
    attrs = {"ignore_index": chain.loss.attr("ignore_index"), "slope": chain.seed.attr("value")}
    insert_for(chain.loss, "fused_mean_loss", inputs, outputs, attrs)
    for op in chain:
        op.block.remove(op)
