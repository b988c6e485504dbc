"""Fuse the mean loss of a classifier and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import ReachingDefs, insert_for
from minigraph.types import DType


class FuseMeanLoss(Pass):
    """Compute ``mean(cross_entropy2(softmax(x), label))`` and its gradient by x as one ``fused_mean_loss``.

    The seven operators from the softmax to its gradient work on a few numbers each, so that the calls take longer than
    the arithmetic. Compiled, they are one loop.

    Law: every value keeps its bits, because the kernel calls those of the single operators. The new operator stands
    where the cross entropy stood. Later operators may read the probabilities, but no value between them and the loss.
    float16, where a probability may be 0, and labels that are no column are left alone.
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
    """The operators that become one; `seed` makes the incoming gradient of the mean."""

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
    """Find the chain that ends with the gradient `last`, by types of operators and who reads whose result."""
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
    # The results move forward: safe as long as nothing reads or writes their names before.
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
