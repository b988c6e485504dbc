"""Turn cross entropies that are written out into the operators that compute them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rule, Rules, attr, gradient_of, op, rule, with_gradients
from minigraph.types import DType

_NO_LABEL = -(1 << 31)
"""Value of `ignore_index` that is no class."""


def _picked(of_classes: Any, label: Any, is_hot_first: bool) -> Any:
    """``sum(of_classes * one_hot(label))`` over the classes, with the operands in this order."""
    # There, labels that are no class are rows of zeros where `allow_out_of_range`; a cross entropy would refuse them.
    hot = op("one_hot", X=label, depth=attr(), dtype=attr())
    x, y = (hot, of_classes) if is_hot_first else (of_classes, hot)
    return op("reduce_sum", X=op("elementwise_mul", X=x, Y=y, axis=attr()), dim=attr(), keep_dim=True)


def _negative(picked: Any) -> Any:
    return op("scale", X=picked, scale=-1.0, bias_after_scale=attr())


def _log_of_sum(x: Any) -> Any:
    return op("log", X=op("reduce_sum", X=op("exp", X=x), dim=attr(), keep_dim=True))


def _conditions(m: Match) -> Iterator[tuple[bool, str]]:
    shape = m.x.shape or (-1,)
    yield m.x.dtype in (DType.FP32, DType.FP64) and -1 not in shape, "x must be float32 or float64, of known shape"
    yield len(shape) >= 2 and m.depth == shape[-1], "there must be as many classes as columns"
    yield m.label.shape == (*shape[:-1], 1), "the labels must be a column"
    dims = [getattr(m, name) for name in m.pattern.captured if name.startswith("dim")]
    yield all([list(dim) in ([-1], [len(shape) - 1]) for dim in dims]), "sums must be over the classes"


def _loss_of_logits(x: Any, label: Any) -> Any:
    given = {"Logits": x, "Label": label, "ignore_index": _NO_LABEL}
    return op("softmax_with_cross_entropy", **given, outputs=["Softmax", "Loss"])[1]


def _of_log_p(is_hot_first: bool) -> Iterator[Rule]:
    """The rules for logarithms of probabilities, of which that of the label is picked."""

    @rule
    def log_of_softmax(x: Any, label: Any) -> Any:
        return _negative(_picked(op("log", X=x), label, is_hot_first))

    @rule
    def log_softmax(x: Any, label: Any) -> Any:
        return _negative(_picked(op("log_softmax", X=x, axis=attr()), label, is_hot_first))

    @rule
    def by_hand(x: Any, label: Any) -> Any:
        log_p = op("elementwise_sub", X=x, Y=_log_of_sum(x), axis=attr())
        return _negative(_picked(log_p, label, is_hot_first))

    for each in (log_of_softmax, log_softmax, by_hand):
        each.where(_conditions)

    @log_of_softmax.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        softmax = m.values.producer(m.value("x"), "softmax")
        is_last = softmax is not None and softmax.attr("axis") in (-1, len(m.x.shape) - 1)
        yield is_last, "the logarithm must be that of a softmax over the classes"

    @log_softmax.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield m.axis in (-1, len(m.x.shape) - 1), "the classes must be the last dimension"

    @log_of_softmax.to
    def _(x: Any, label: Any) -> Any:
        return op("cross_entropy2", X=x, Label=label, ignore_index=_NO_LABEL, outputs=["Y", "XShape", "MatchX"])[0]

    log_softmax.to(_loss_of_logits)
    by_hand.to(_loss_of_logits)
    yield from (log_of_softmax, log_softmax, by_hand)


def _of_logits(is_hot_first: bool, is_top_stopped: bool = False) -> Iterator[Rule]:
    """The rules for the logarithm of a sum of exponentials, less the logit of the label."""

    def less_picked(log_of_sum: Any, x: Any, label: Any) -> Any:
        return op("elementwise_sub", X=log_of_sum, Y=_picked(x, label, is_hot_first), axis=attr())

    def log_and_top(x: Any) -> tuple[Any, Any]:
        top = op("reduce_max", X=x, dim=attr(), keep_dim=True)
        top.stop_gradient = is_top_stopped
        return _log_of_sum(op("elementwise_sub", X=x, Y=top, axis=attr())), top

    @rule
    def plain(x: Any, label: Any) -> Any:
        return less_picked(_log_of_sum(x), x, label)

    @rule
    def top_last(x: Any, label: Any) -> Any:
        log, top = log_and_top(x)
        return less_picked(op("elementwise_add", X=log, Y=top, axis=attr()), x, label)

    @rule
    def top_first(x: Any, label: Any) -> Any:
        log, top = log_and_top(x)
        return less_picked(op("elementwise_add", X=top, Y=log, axis=attr()), x, label)

    for each in (top_last, top_first) if is_top_stopped else (plain, top_last, top_first):
        each.where(_conditions)
        each.to(_loss_of_logits)
        yield each


class FindCrossEntropy(Rules):
    """Turn ``-sum(log_p * one_hot(label))`` over the classes, and its gradient, into a cross entropy of the labels.

    The logarithms of the probabilities are ``log(softmax(x))``, which becomes ``cross_entropy2`` of the softmax, or
    ``log_softmax(x)`` or ``x - log(sum(exp(x)))``, which become ``softmax_with_cross_entropy``. So does
    ``log(sum(exp(x))) - sum(x * one_hot(label))``, with or without the maximum of each row subtracted in the
    exponentials and added to the logarithm. The gradient, if there is one, becomes that of the new operator. Labels
    have one column, as the loss does.

    Law: nothing else changes, and loss and gradient by rounding only, as long as they are finite; where exponentials
    overflow or all of them underflow, the new ones are right; the gradient through a subtracted maximum is 0, whether
    or not it has `stop_gradient`. The label -2147483648 counts as one that is ignored; other labels that are no class
    are an error as before. float16 and classes of unknown number are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    rules = tuple(
        each
        for is_hot_first in (False, True)
        for rules in (_of_log_p, _of_logits)
        for found in rules(is_hot_first)
        for each in with_gradients(found, "x", with_results=True)
    ) + tuple(
        gradient_of(found, "x", with_results=True)
        for is_hot_first in (False, True)
        for found in _of_logits(is_hot_first, is_top_stopped=True)
    )
