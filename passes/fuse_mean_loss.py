"""Fuse the mean loss of a classifier and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Values
from minigraph.types import DType


class FuseMeanLoss(Pass):
    """Compute the mean loss of softmaxes, and its gradient by the logits x, as one ``fused_mean_loss``.

    The loss is ``mean(cross_entropy2(softmax(x), label))``, or ``mean(softmax_with_cross_entropy(x, label))`` with hard
    labels: then the new operator has `from_logits`. The operators from x to its gradient work on a few numbers each, so
    that the calls take longer than the arithmetic. Compiled, they are one loop.

    Law: every value keeps its bits, because the kernel calls those of the single operators. The two losses stay apart,
    which differ where a logit lies more than 64 below the largest and where `ignore_index` is a class. The new operator
    stands where the cross entropy stood. Later operators may read the probabilities, but no value between them and the
    loss. float16, where a probability may be 0, and labels that are no column are left alone.
    """

    keeps_roles: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        # Most programs end here, before values are numbered.
        if not any(program.global_block().ops.of_type(type) for type in _LAST):
            return False
        values = Values(program)
        chains = list(_chains(values))
        for chain in chains:
            _fuse(chain, values)
        return bool(chains)


_LAST = ("softmax_grad", "softmax_with_cross_entropy_grad")
"""Operators that make the gradient by the logits."""


class _Slots(NamedTuple):
    """Slots of the logits, the probabilities and the losses of rows, in the operators of one law."""

    x: str
    p: str
    loss: str


_SLOTS = {
    "cross_entropy2": _Slots("X", "Out", "Y"),
    "softmax_with_cross_entropy": _Slots("Logits", "Softmax", "Loss"),
}


class _Chain(NamedTuple):
    """The operators that become one; `seed` makes the incoming gradient of the mean.

    A ``softmax_with_cross_entropy`` is both softmax and loss, and its gradient that of both.
    """

    softmax: Operator
    loss: Operator
    mean: Operator
    seed: Operator
    mean_grad: Operator
    loss_grad: Operator
    softmax_grad: Operator

    @property
    def slots(self) -> _Slots:
        return _SLOTS[self.loss.type]

    @property
    def is_from_logits(self) -> bool:
        return self.softmax is self.loss


def _chains(values: Values) -> Iterator[_Chain]:
    for type in _LAST:
        for last in values.block.ops.of_type(type):
            chain = _chain_before(last, values)
            if chain is not None and _may_be_one(chain, values):
                yield chain


def _chain_before(last: Operator, values: Values) -> _Chain | None:
    """Find the chain that ends with the gradient `last`, by types of operators and who reads whose result."""
    if last.type == "softmax_grad":
        softmax = values.producer(values.input(last, "Out"), "softmax")
        loss_grad = values.producer(values.input(last, "Out@GRAD"), "cross_entropy_grad2")
        loss = loss_grad and values.producer(values.input(loss_grad, "MatchX"), "cross_entropy2")
    else:
        softmax = loss = values.producer(values.input(last, "Softmax"), "softmax_with_cross_entropy")
        loss_grad = last
    if softmax is None or loss_grad is None or loss is None:
        return None
    each = _SLOTS[loss.type].loss
    mean_grad = values.producer(values.input(loss_grad, f"{each}@GRAD"), "mean_grad")
    if mean_grad is None:
        return None
    seed = values.producer(values.input(mean_grad, "Out@GRAD"), "fill_constant")
    means = [op for op in values.readers[values.output(loss, each)] if op is not mean_grad]
    # Who else reads the losses of rows needs them as a value.
    if seed is None or len(means) != 1 or means[0].type != "mean":
        return None
    return _Chain(softmax, loss, means[0], seed, mean_grad, loss_grad, last)


def _belongs_together(chain: _Chain, values: Values) -> bool:
    """Whether the gradients are those of this loss, with hard labels."""
    _, loss, _, _, mean_grad, loss_grad, _ = chain
    if chain.is_from_logits:
        of_one_kind = loss_grad.attr("axis") == loss.attr("axis") and not (
            loss.attr("soft_label") or loss_grad.attr("soft_label")
        )
    else:
        of_one_kind = values.input(loss, "X") == values.output(chain.softmax, chain.slots.p)
    return (
        of_one_kind
        and values.input(loss_grad, "Label") == values.input(loss, "Label")
        and loss_grad.attr("ignore_index") == loss.attr("ignore_index")
        and values.input(mean_grad, "X") == values.output(loss, chain.slots.loss)
    )


def _may_be_one(chain: _Chain, values: Values) -> bool:
    softmax, loss, mean, seed, mean_grad, loss_grad, last = chain
    slots = chain.slots
    p, x, label = values.output(softmax, slots.p), values.input(softmax, slots.x), values.input(loss, "Label")
    shape, dtype = values.block.vars[x[0]].shape or (), values.block.vars[x[0]].dtype
    fits = (
        shape and -1 not in shape and dtype in (DType.FP32, DType.FP64)
        and softmax.attr("axis") in (-1, len(shape) - 1)
        and values.block.vars[label[0]].shape == (*shape[:-1], 1)
        and values.block.vars[seed.outputs["Out"][0]].dtype is dtype
        and not any(seed.inputs.values()) and not seed.attr("str_value")
    )  # fmt: skip
    if not _belongs_together(chain, values) or not fits or not values.is_there(x, loss):
        return False
    inner = [values.output(mean_grad, "X@GRAD"), values.output(seed, "Out")]
    if not chain.is_from_logits:
        inner += [
            values.output(loss, "MatchX"), values.output(loss, "XShape"), values.output(loss_grad, "X@GRAD"),
        ]  # fmt: skip
    if not all(values.is_used_once(value) for value in inner) or values.is_live_out(values.output(loss, slots.loss)):
        return False
    behind = all(op is loss or values.position[op] > values.position[loss] for op in values.readers[p])
    results = [values.output(mean, "Out"), values.output(last, f"{slots.x}@GRAD")]
    # The results move forward: safe as long as nothing reads or writes their names before.
    return behind and all(map(values.is_first, results))


def _fuse(chain: _Chain, values: Values) -> None:
    slots, loss = chain.slots, chain.loss
    p = values.output(chain.softmax, slots.p)
    is_wanted = values.is_live_out(p) or any(op not in chain for op in values.readers[p])
    outputs = {"Loss": chain.mean.outputs["Out"], "Gradient": chain.softmax_grad.outputs[f"{slots.x}@GRAD"]}
    # Without a reader the probabilities need no memory.
    if is_wanted:
        outputs["Out"] = chain.softmax.outputs[slots.p]
    inputs = {"X": chain.softmax.inputs[slots.x], "Label": loss.inputs["Label"]}
    attrs = {"ignore_index": loss.attr("ignore_index"), "slope": chain.seed.attr("value")}
    insert_for(loss, "fused_mean_loss", inputs, outputs, attrs | {"from_logits": chain.is_from_logits})
    for op in dict.fromkeys(chain):
        op.block.remove(op)
