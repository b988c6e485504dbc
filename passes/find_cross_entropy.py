"""Turn cross entropies that are written out into the operators that compute them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rule, Rules, attr, op, rule, with_gradients
from minigraph.types import DType

_NO_LABEL = -(1 << 31)
"""Value of `ignore_index` that is no class."""


def _picked(log_p: Any, label: Any, is_hot_first: bool) -> Any:
    """``-sum(log_p * one_hot(label))`` over the classes, with the operands in this order."""
    # There, labels that are no class are rows of zeros where `allow_out_of_range`; a cross entropy would refuse them.
    hot = op("one_hot", X=label, depth=attr(), dtype=attr())
    x, y = (hot, log_p) if is_hot_first else (log_p, hot)
    total = op("reduce_sum", X=op("elementwise_mul", X=x, Y=y, axis=attr()), dim=attr(), keep_dim=True)
    return op("scale", X=total, scale=-1.0, bias_after_scale=attr())


def _losses(is_hot_first: bool) -> Iterator[Rule]:
    @rule
    def log_of_softmax(x: Any, label: Any) -> Any:
        return _picked(op("log", X=x), label, is_hot_first)

    @rule
    def log_softmax(x: Any, label: Any) -> Any:
        return _picked(op("log_softmax", X=x, axis=attr()), label, is_hot_first)

    @rule
    def by_hand(x: Any, label: Any) -> Any:
        total = op("reduce_sum", X=op("exp", X=x), dim=attr(), keep_dim=True)
        return _picked(op("elementwise_sub", X=x, Y=op("log", X=total), axis=attr()), label, is_hot_first)

    @log_of_softmax.where
    @log_softmax.where
    @by_hand.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        shape = m.x.shape or (-1,)
        yield m.x.dtype in (DType.FP32, DType.FP64) and -1 not in shape, "x must be float32 or float64, of known shape"
        yield len(shape) >= 2 and m.depth == shape[-1], "there must be as many classes as columns"
        yield m.label.shape == (*shape[:-1], 1), "the labels must be a column"
        dims = [getattr(m, name) for name in m.pattern.captured if name.startswith("dim")]
        yield all([list(dim) in ([-1], [len(shape) - 1]) for dim in dims]), "sums must be over the classes"

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

    @log_softmax.to
    @by_hand.to
    def _(x: Any, label: Any) -> Any:
        given = {"Logits": x, "Label": label, "ignore_index": _NO_LABEL}
        return op("softmax_with_cross_entropy", **given, outputs=["Softmax", "Loss"])[1]

    for each in (log_of_softmax, log_softmax, by_hand):
        yield from with_gradients(each, "x", with_results=True)


class FindCrossEntropy(Rules):
    """Turn ``-sum(log_p * one_hot(label))`` over the classes, and its gradient, into a cross entropy of the labels.

    The logarithms of the probabilities are ``log(softmax(x))``, which becomes ``cross_entropy2`` of the softmax, or
    ``log_softmax(x)`` or ``x - log(sum(exp(x)))``, which become ``softmax_with_cross_entropy``. The gradient, if there
    is one, becomes that of the new operator. Labels have one column, as the loss does.

    Law: nothing else changes, and loss and gradient by rounding only, as long as they are finite; where exponentials
    overflow or all of them underflow, the new ones are right. The label -2147483648 counts as one that is ignored;
    other labels that are no class are an error as before. float16 and classes of unknown number are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    rules = (*_losses(is_hot_first=False), *_losses(is_hot_first=True))
