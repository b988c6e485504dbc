"""Turn cross entropies that are written out into the operators that compute them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.values import Value, Values
from minigraph.types import DType


class FindCrossEntropy(Pass):
    """Turn ``-sum(log_p * one_hot(label))`` over the classes, and its gradient, into a cross entropy of the labels.

    The logarithms of the probabilities are ``log(softmax(x))``, which becomes ``cross_entropy2`` of the softmax, or
    ``log_softmax(x)`` or ``x - log(sum(exp(x)))``, which become ``softmax_with_cross_entropy``. The gradient, if there
    is one, becomes that of the new operator. Labels have one column, as the loss does.

    Law: nothing else changes, and loss and gradient by rounding only, as long as they are finite; where exponentials
    overflow or all of them underflow, the new ones are right. The label -2147483648 counts as one that is ignored;
    other labels that are no class are an error as before. float16 and classes of unknown number are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    def apply(self, program: Program) -> bool:
        if not any(program.global_block().ops.of_type("one_hot")):
            return False
        values = Values(program)
        losses = [_loss(op, values) for op in program.global_block().ops.of_type("one_hot")]
        found = [loss for loss in losses if loss is not None and _may_be_one(loss, values)]
        for loss in found:
            _replace(loss, values)
        return bool(found)


_NO_LABEL = -(1 << 31)
"""Value of `ignore_index` that is no class."""


class _Types(NamedTuple):
    """A cross entropy: its type and that of its gradient, and the slots of its input and its results.

    Beside the loss, it makes what its gradient reads.
    """

    type: str
    gradient: str
    x: str
    loss: str
    kept: tuple[str, ...]


_OF_LOGITS = _Types("softmax_with_cross_entropy", "softmax_with_cross_entropy_grad", "Logits", "Loss", ("Softmax",))
_OF_PROBABILITIES = _Types("cross_entropy2", "cross_entropy_grad2", "X", "Y", ("XShape", "MatchX"))


class _Backward(NamedTuple):
    """Operators from the gradient of the loss, `incoming`, to that of the logarithms; `last` reads theirs."""

    incoming: Value
    ops: tuple[Operator, ...]
    last: Operator


class _Loss(NamedTuple):
    """A loss that is written out.

    Attributes
    ----------
    hot, last : Operator
        The first operator that picks, and the one that makes the loss.
    label, x : Value
        Labels, and the logits or, if the loss is of probabilities, these.
    of_logits : bool
    ops : tuple of Operator
        The operators that go, besides `last` and the last one of `backward`.
    """

    hot: Operator
    last: Operator
    label: Value
    x: Value
    of_logits: bool
    ops: tuple[Operator, ...]
    backward: _Backward | None


def _loss(hot: Operator, values: Values) -> _Loss | None:
    """Return the loss that picks its terms by the ``one_hot`` operator `hot`."""
    # There, labels that are no class are rows of zeros; a cross entropy would refuse them.
    if hot.attr("allow_out_of_range") or any(hot.inputs.get("depth_tensor", ())):
        return None
    picks = [op for op in _readers(values, hot) if op.type == "elementwise_mul"]
    pick = picks[0] if len(picks) == 1 else None
    total = pick and _only(values, pick, "reduce_sum", "reduce_sum_grad")
    last = total and _only(values, total, "scale")
    if pick is None or total is None or last is None:
        return None
    operands = [values.input(pick, slot) for slot in "XY"]
    weights = values.output(hot, "Out")
    shape = _shape(values, operands[0])
    if weights not in operands or operands[0] == operands[1] or not _is_last_axis(total, len(shape)):
        return None
    if (last.attr("scale"), last.attr("bias")) != (-1, 0) or any(last.inputs.get("ScaleTensor", ())):
        return None
    log_p = operands[1 - operands.index(weights)]
    backward = _backward(pick, "XY"[operands.index(log_p)], values)
    loss = _Loss(hot, last, values.input(hot, "X"), log_p, True, (hot, pick, total), backward)
    return _of_logarithms(log_p, values, loss)


def _readers(values: Values, op: Operator, slot: str = "Out") -> list[Operator]:
    return values.readers[values.output(op, slot)]


def _only(values: Values, op: Operator, type: str, *others: str) -> Operator | None:
    """Return the one reader of the result of `op` that is of this type; None if there are readers of further types."""
    readers = _readers(values, op)
    found = [each for each in readers if each.type == type]
    return found[0] if len(found) == 1 and all(each.type in (type, *others) for each in readers) else None


def _shape(values: Values, value: Value) -> tuple[int, ...]:
    found = values.type_of(value)
    return () if found is None else found.shape


def _is_last_axis(total: Operator, rank: int) -> bool:
    """Whether a sum is taken over the last dimension, which stays."""
    dim = [axis % rank for axis in total.attr("dim")] if rank else []
    return bool(total.attr("keep_dim")) and not total.attr("reduce_all") and dim == [rank - 1]


def _backward(pick: Operator, slot: str, values: Values) -> _Backward | None:
    """Return the gradient of the picked logarithms, the operand `slot` of `pick`."""
    for spread in _readers(values, pick):
        if spread.type != "reduce_sum_grad" or not _is_last_axis(
            spread, len(_shape(values, values.output(pick, "Out")))
        ):
            continue
        times = values.producer(values.input(spread, "Out@GRAD"), "scale")
        grads = _readers(values, spread, "X@GRAD")
        is_one = len(grads) == 1 and grads[0].type == "elementwise_mul_grad"
        if times is None or not is_one or (times.attr("scale"), times.attr("bias")) != (-1, 0):
            continue
        (grad,) = grads
        if any(values.input(grad, each) != values.input(pick, each) for each in "XY"):
            continue
        # A gradient of the picks is used for something else, and needs the product by itself.
        if grad.outputs.get(f"{slot}@GRAD") and not grad.outputs.get(f"{'YX'['XY'.index(slot)]}@GRAD"):
            readers = _readers(values, grad, f"{slot}@GRAD")
            if len(readers) == 1:
                return _Backward(values.input(times, "X"), (times, spread, grad), readers[0])
    return None


def _of_logarithms(log_p: Value, values: Values, loss: _Loss) -> _Loss | None:
    """Complete `loss` by the operators that make the logarithms and those of their gradient."""
    maker = values.producer(log_p, "log", "log_softmax", "elementwise_sub")
    if maker is None:
        return None
    if maker.type == "elementwise_sub":
        return _by_hand(maker, values, loss)
    rank = len(_shape(values, log_p))
    source = maker if maker.type == "log_softmax" else values.producer(values.input(maker, "X"), "softmax")
    if source is None or source.attr("axis") not in (-1, rank - 1):
        return None
    back, kept = loss.backward, values.input(maker, "X") if maker.type == "log" else log_p
    if back is not None and (back.last.type != f"{maker.type}_grad" or back.last not in values.readers[kept]):
        return None
    of_logits = maker.type == "log_softmax"
    return loss._replace(x=values.input(maker, "X"), of_logits=of_logits, ops=(maker, *loss.ops))


def _by_hand(sub: Operator, values: Values, loss: _Loss) -> _Loss | None:
    """Complete a loss of ``x - log(sum(exp(x)))``."""
    x = values.input(sub, "X")
    rank = len(_shape(values, x))
    log = values.producer(values.input(sub, "Y"), "log")
    total = log and values.producer(values.input(log, "X"), "reduce_sum")
    exp = total and values.producer(values.input(total, "X"), "exp")
    if log is None or total is None or exp is None or values.input(exp, "X") != x or not _is_last_axis(total, rank):
        return None
    # Without the dimension of the classes the sum would be laid over another one.
    if len(_shape(values, values.input(sub, "Y"))) != rank:
        return None
    loss = loss._replace(x=x, ops=(exp, total, log, sub, *loss.ops))
    return loss if loss.backward is None else _by_hand_back(sub, exp, values, loss, loss.backward)


def _by_hand_back(sub: Operator, exp: Operator, values: Values, loss: _Loss, back: _Backward) -> _Loss | None:
    """Find the operators from the gradient of the difference to the sum of the two gradients of x."""
    apart = back.last
    if apart.type != "elementwise_sub_grad" or any(values.input(apart, s) != values.input(sub, s) for s in "XY"):
        return None
    if not all(apart.outputs.get(f"{slot}@GRAD") for slot in "XY"):
        return None
    chain = [apart]
    for type, slot in (
        ("log_grad", "Y@GRAD"),
        ("reduce_sum_grad", "X@GRAD"),
        ("exp_grad", "X@GRAD"),
        ("sum", "X@GRAD"),
    ):
        readers = _readers(values, chain[-1], slot)
        if len(readers) != 1 or readers[0].type != type:
            return None
        chain.append(readers[0])
    *ops, added = chain
    terms = {values.input(added, "X", i) for i in range(len(added.inputs["X"]))}
    both = {values.output(apart, "X@GRAD"), values.output(chain[3], "X@GRAD")}
    is_of_exp = values.input(chain[3], "Out") == values.output(exp, "Out") and _is_last_axis(
        chain[2], len(_shape(values, loss.x))
    )
    if terms != both or len(added.inputs["X"]) != 2 or not is_of_exp:
        return None
    return loss._replace(backward=_Backward(back.incoming, (*back.ops, *ops), added))


def _may_be_one(loss: _Loss, values: Values) -> bool:
    """Whether the operators may be replaced: nothing else reads what they make, and what is read is still there."""
    shape, found = _shape(values, loss.x), values.type_of(loss.x)
    hot = loss.hot
    fits = (
        found is not None and found.dtype in (DType.FP32, DType.FP64)
        and len(shape) >= 2 and -1 not in shape and hot.attr("depth") == shape[-1]
        and _shape(values, loss.label) == (*shape[:-1], 1) and _shape(values, values.output(hot, "Out")) == shape
    )  # fmt: skip
    ends = {loss.last, *([] if loss.backward is None else [loss.backward.last])}
    going = {*loss.ops, *(() if loss.backward is None else loss.backward.ops)}
    inner = [values.written(name, op) for op in going for name in op.output_arg_names]
    alone = all(
        not values.is_live_out(value) and all(op in going or op in ends for op in values.readers[value])
        for value in inner
    )
    needed = [(loss.x, loss.last), (loss.label, loss.last)]
    if loss.backward is not None:
        needed += [(value, loss.backward.last) for value in (loss.x, loss.label, loss.backward.incoming)]
    return bool(fits) and alone and all(values.is_there(value, op) for value, op in needed)


def _replace(loss: _Loss, values: Values) -> None:
    back, attrs, types = loss.backward, {"ignore_index": _NO_LABEL}, _OF_LOGITS if loss.of_logits else _OF_PROBABILITIES
    kept = {slot: values.block.free_name(f"{types.type}.tmp") for slot in types.kept}
    outputs = {types.loss: loss.last.outputs["Out"], **kept}
    made = values.replace_op(loss.last, types.type, {types.x: loss.x, "Label": loss.label}, outputs, attrs)
    going = [*loss.ops]
    if back is not None:
        inputs = {slot: values.output(made, slot) for slot in types.kept}
        inputs |= {"Label": loss.label, f"{types.loss}@GRAD": back.incoming}
        (gradient,) = [names for names in back.last.outputs.values() if names]
        values.replace_op(back.last, types.gradient, inputs, {f"{types.x}@GRAD": gradient}, attrs)
        going += back.ops
    for op in sorted(going, key=values.position.__getitem__, reverse=True):
        values.erase(op)
