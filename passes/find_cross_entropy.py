"""Turn cross entropies that are written out into the operators that compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rule, Rules, attr, gradient_of, op, rule, with_gradients
from minigraph.types import DType

_NO_LABEL = -(1 << 31)
"""Value of `ignore_index` that is no class."""


def _picked(of_classes: Any, label: Any, is_hot_first: bool, **sum_attrs: Any) -> Any:
    """``sum(of_classes * one_hot(label))`` over the classes, with the operands in this order."""
    # There, labels that are no class are rows of zeros where `allow_out_of_range`; a cross entropy would refuse them.
    hot = op("one_hot", X=label, depth=attr(), dtype=attr())
    x, y = (hot, of_classes) if is_hot_first else (of_classes, hot)
    return op("reduce_sum", X=op("elementwise_mul", X=x, Y=y, axis=attr()), **sum_attrs)


def _log_of_sum(x: Any, is_kept: Any = True) -> Any:
    return op("log", X=op("reduce_sum", X=op("exp", X=x), dim=attr(), keep_dim=is_kept))


def _conditions(m: Match) -> Iterator[tuple[bool, str]]:
    shape = m.x.shape or (-1,)
    yield m.x.dtype in (DType.FP32, DType.FP64) and -1 not in shape, "x must be float32 or float64, of known shape"
    yield len(shape) >= 2 and m.depth == shape[-1], "there must be as many classes as columns"
    yield m.label.shape == (*shape[:-1], 1), "the labels must be a column"
    dims = [getattr(m, name) for name in m.pattern.captured if name.startswith("dim")]
    yield all([list(dim) in ([-1], [len(shape) - 1]) for dim in dims]), "sums must be over the classes"


def _sums_classes_or_all(m: Match) -> Iterator[tuple[bool, str]]:
    yield (
        _adds_all(m) or _dims(m) == {len(m.x.shape) - 1},
        "the products must be added over the classes, or all of them",
    )


def _adds_all(m: Match) -> bool:
    """Whether a sum, the dimensions of which are captured, is over the rows as well as over the classes."""
    return m.is_all or len(_dims(m)) == len(m.x.shape)


def _dims(m: Match) -> set[int]:
    return {each % len(m.x.shape) for each in m.over}


def _loss_of_logits(m: Match, x: Any, label: Any) -> Any:
    given = {"Logits": x, "Label": label, "ignore_index": _NO_LABEL}
    return _as_written(m, op("softmax_with_cross_entropy", **given, outputs=["Softmax", "Loss"])[1])


def _as_written(m: Match, loss: Any) -> Any:
    """The loss of each row as the rule has it: added up over all rows, without its column, or multiplied."""
    if "is_all" in m.pattern.captured and _adds_all(m):
        loss = op("reduce_sum", X=loss, reduce_all=True, keep_dim=m.is_kept)
    elif not getattr(m, "is_kept", True):
        loss = op("reshape2", X=loss, shape=list(m.x.shape[:-1]), outputs=["Out", "XShape"])[0]
    factor = getattr(m, "factor", -1.0)
    return loss if factor == -1 else op("scale", X=loss, scale=-factor)


def _of_log_p(is_hot_first: bool) -> Iterator[Rule]:
    """The rules for logarithms of probabilities, of which that of the label is picked."""

    def rule_of(name: str, log_p: Callable[[Any], Any]) -> Rule:
        def loss(
            x: Any, label: Any, factor: Any = attr("scale"), over: Any = attr("dim"), is_all: Any = attr("reduce_all"),
            is_kept: Any = attr("keep_dim"),
        ) -> Any:  # fmt: skip
            picked = _picked(log_p(x), label, is_hot_first, dim=over, reduce_all=is_all, keep_dim=is_kept)
            return op("scale", X=picked, scale=factor, bias_after_scale=attr())

        loss.__name__ = name
        found = rule(loss)
        found.where(_conditions)
        found.where(_sums_classes_or_all)
        return found

    log_of_softmax = rule_of("log_of_softmax", lambda x: op("log", X=x))
    log_softmax = rule_of("log_softmax", lambda x: op("log_softmax", X=x, axis=attr()))
    by_hand = rule_of("by_hand", lambda x: op("elementwise_sub", X=x, Y=_log_of_sum(x), axis=attr()))

    @log_of_softmax.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        softmax = m.values.producer(m.value("x"), "softmax")
        is_last = softmax is not None and softmax.attr("axis") in (-1, len(m.x.shape) - 1)
        yield is_last, "the logarithm must be that of a softmax over the classes"

    @log_softmax.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield m.axis in (-1, len(m.x.shape) - 1), "the classes must be the last dimension"

    @log_of_softmax.to
    def _(m: Match, x: Any, label: Any) -> Any:
        given = {"X": x, "Label": label, "ignore_index": _NO_LABEL}
        return _as_written(m, op("cross_entropy2", **given, outputs=["Y", "XShape", "MatchX"])[0])

    log_softmax.to(_loss_of_logits)
    by_hand.to(_loss_of_logits)
    yield from (log_of_softmax, log_softmax, by_hand)


def _of_logits(is_hot_first: bool, is_top_stopped: bool = False) -> Iterator[Rule]:
    """The rules for the logarithm of a sum of exponentials, less the logit of the label."""

    def less_picked(log_of_sum: Any, x: Any, label: Any, is_kept: Any = True) -> Any:
        picked = _picked(x, label, is_hot_first, dim=attr(), keep_dim=is_kept)
        return op("elementwise_sub", X=log_of_sum, Y=picked, axis=attr())

    def log_and_top(x: Any) -> tuple[Any, Any]:
        top = op("reduce_max", X=x, dim=attr(), keep_dim=True)
        top.stop_gradient = is_top_stopped
        return _log_of_sum(op("elementwise_sub", X=x, Y=top, axis=attr())), top

    @rule
    def plain(x: Any, label: Any, is_kept: Any = attr("keep_dim")) -> Any:
        return less_picked(_log_of_sum(x, is_kept), x, label, is_kept)

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

    The sum may be over all rows, too, keep its dimensions or not, and be multiplied by another number than -1.
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
