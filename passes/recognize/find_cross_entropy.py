"""Turn cross entropies that are written out into the operators that compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

from minigraph.passes.rules import Match, Rule, Rules, attr, gradient_of, op, rule, with_gradients
from minigraph.support.sizes import as_attr
from minigraph.types import DType

_NO_LABEL = -(1 << 31)
"""Value of `ignore_index` that is no class."""


Pick: TypeAlias = "Callable[..., Any]"
"""How an element of each row is picked by its label: a function that appends it, with attributes of its sum."""


def _by_hot_rows(is_hot_first: bool) -> Pick:
    """``sum(of_classes * one_hot(label))`` over the classes, with the operands in this order."""

    def picked(of_classes: Any, label: Any, **sum_attrs: Any) -> Any:
        # There, labels that are no class are rows of zeros where `allow_out_of_range`; a cross entropy would refuse
        # them.
        hot = op("one_hot", X=label, depth=attr("depth"), dtype=attr())
        x, y = (hot, of_classes) if is_hot_first else (of_classes, hot)
        return op("reduce_sum", X=op("elementwise_mul", X=x, Y=y, axis=attr()), **sum_attrs)

    return picked


def _by_index(of_classes: Any, label: Any, **sum_attrs: Any) -> Any:
    return op("index_sample", X=of_classes, Index=label)


def _by_flat_index(of_classes: Any, label: Any, **sum_attrs: Any) -> Any:
    return op("reshape2", X=_by_index(of_classes, label), shape=attr("shape"), outputs=["Out", "XShape"])[0]


_OF_INDEX = (_by_index, _by_flat_index)
_PICKS: tuple[Pick, ...] = (_by_hot_rows(False), _by_hot_rows(True), *_OF_INDEX)


def _log_of_sum(x: Any, is_kept: Any = True) -> Any:
    return op("log", X=op("reduce_sum", X=op("exp", X=x), dim=attr(), keep_dim=is_kept))


def _conditions(m: Match) -> Iterator[tuple[bool, str]]:
    shape = m.x.shape or (-1,)
    yield m.x.dtype in (DType.FP32, DType.FP64) and -1 not in shape, "x must be float32 or float64, of known shape"
    yield len(shape) >= 2 and getattr(m, "depth", shape[-1]) == shape[-1], "there must be as many classes as columns"
    yield m.label.shape == (*shape[:-1], 1), "the labels must be a column"
    is_flat = list(getattr(m, "shape", [-1])) in ([-1], [shape[0]])
    yield is_flat, "a reshape must take the column away"
    dims = [getattr(m, name) for name in m.pattern.captured if name.startswith("dim")]
    yield all([list(dim) in ([-1], [len(shape) - 1]) for dim in dims]), "sums must be over the classes"


def _sums_classes_or_all(m: Match) -> Iterator[tuple[bool, str]]:
    yield (
        _adds_all(m) or _dims(m) == {len(m.x.shape) - 1},
        "the products must be added over the classes, or all of them",
    )


def _sums_classes_alone(m: Match) -> Iterator[tuple[bool, str]]:
    yield not m.is_all and _dims(m) == {len(m.x.shape) - 1}, "the products must be added over the classes"


def _adds_all(m: Match) -> bool:
    """Whether a sum, the dimensions of which are captured, is over the rows as well as over the classes."""
    return m.is_all or len(_dims(m)) == len(m.x.shape)


def _dims(m: Match) -> set[int]:
    return {each % len(m.x.shape) for each in m.over}


def _loss_of_logits(m: Match, x: Any, label: Any) -> Any:
    given = {"Logits": x, "Label": label, "ignore_index": _NO_LABEL}
    return _as_written(m, op("softmax_with_cross_entropy", **given, outputs=["Softmax", "Loss"])[1])


def _loss_of_shares(m: Match, x: Any, label: Any) -> Any:
    given = {"X": x, "Label": label, "ignore_index": _NO_LABEL}
    return _as_written(m, op("cross_entropy2", **given, outputs=["Y", "XShape", "MatchX"])[0])


def _as_written(m: Match, loss: Any) -> Any:
    """The loss of each row as the rule has it: added up over all rows, or without its column."""
    if "is_all" in m.pattern.captured and _adds_all(m):
        return op("reduce_sum", X=loss, reduce_all=True, keep_dim=m.is_kept)
    is_column = getattr(m, "is_kept", True) and "shape" not in m.pattern.captured
    return loss if is_column else op("reshape2", X=loss, shape=as_attr(m.x.shape[:-1]), outputs=["Out", "XShape"])[0]


def _minus(loss: Callable[..., Any]) -> Callable[..., Any]:
    return lambda m, x, label: op("scale", X=loss(m, x, label), scale=-1.0)


def _of_log_p(pick: Pick) -> Iterator[Rule]:
    """The rules for logarithms of probabilities, of which that of the label is picked, before or after it is taken."""

    def rule_of(name: str, log_of_picked: Callable[..., Any]) -> Rule:
        if pick in _OF_INDEX:

            def found(x: Any, label: Any) -> Any:
                return log_of_picked(x, label)

        else:

            def found(  # type: ignore[misc]
                x: Any, label: Any, over: Any = attr("dim"), is_all: Any = attr("reduce_all"),
                is_kept: Any = attr("keep_dim"),
            ) -> Any:  # fmt: skip
                return log_of_picked(x, label, dim=over, reduce_all=is_all, keep_dim=is_kept)

        found.__name__ = name
        made = rule(found)
        made.where(_conditions)
        return made

    log_of_softmax = rule_of("log_of_softmax", lambda x, y, **more: pick(op("log", X=x), y, **more))
    softmax_of_label = rule_of("softmax_of_label", lambda x, y, **more: op("log", X=pick(x, y, **more)))
    log_softmax = rule_of("log_softmax", lambda x, y, **more: pick(op("log_softmax", X=x, axis=attr()), y, **more))
    by_hand = rule_of(
        "by_hand", lambda x, y, **more: pick(op("elementwise_sub", X=x, Y=_log_of_sum(x), axis=attr()), y, **more)
    )
    every = (log_of_softmax, softmax_of_label, log_softmax, by_hand)
    for each in every if pick not in _OF_INDEX else ():
        each.where(_sums_classes_alone if each is softmax_of_label else _sums_classes_or_all)

    @log_of_softmax.where
    @softmax_of_label.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        softmax = m.values.producer(m.value("x"), "softmax")
        is_last = softmax is not None and softmax.attr("axis") in (-1, len(m.x.shape) - 1)
        yield is_last, "the logarithm must be that of a softmax over the classes"

    @log_softmax.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield m.axis in (-1, len(m.x.shape) - 1), "the classes must be the last dimension"

    for each in (log_of_softmax, softmax_of_label):
        each.to(_minus(_loss_of_shares))
    for each in (log_softmax, by_hand):
        each.to(_minus(_loss_of_logits))
    # Elsewhere the reshape is not inside of the pattern.
    yield from (softmax_of_label,) if pick is _by_flat_index else every


def _of_logits(pick: Pick, is_top_stopped: bool = False) -> Iterator[Rule]:
    """The rules for the logarithm of a sum of exponentials, less the logit of the label."""

    def less_picked(log_of_sum: Any, x: Any, label: Any, is_kept: Any = True) -> Any:
        picked = pick(x, label, dim=attr(), keep_dim=is_kept)
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

    @plain.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        is_alike = pick not in _OF_INDEX or m.is_kept == (pick is _by_index)
        yield is_alike, "the logarithms must have the shape of the elements"

    found: tuple[Rule, ...] = (top_last, top_first) if is_top_stopped else (plain, top_last, top_first)
    if pick is _by_flat_index:  # maxima are a column
        found = found[:1] if plain in found else ()
    for each in found:
        each.where(_conditions)
        each.to(_loss_of_logits)
        yield each


class FindCrossEntropy(Rules):
    """Turn ``sum(log_p * one_hot(label))`` over the classes, and its gradient, into minus a cross entropy.

    The sum may be over all rows, too, and keep its dimensions or not; ``index_sample(log_p, label)`` is the same.
    The logarithms of the probabilities are ``log(softmax(x))``, which becomes ``cross_entropy2`` of the softmax, or
    ``log_softmax(x)`` or ``x - log(sum(exp(x)))``, which become ``softmax_with_cross_entropy``. The logarithm may also
    be taken last, ``log(sum(softmax(x) * one_hot(label)))``. And ``log(sum(exp(x))) - sum(x * one_hot(label))``, with
    or without the maximum of each row subtracted in the exponentials and added to the logarithm, becomes a
    ``softmax_with_cross_entropy``. The gradient, if there is one, becomes that of the new operator. Labels have one
    column, as the loss does.

    Law: nothing else changes, and loss and gradient by rounding only, as long as they are finite; where exponentials
    overflow or all of them underflow, the new ones are right; the gradient through a subtracted maximum is 0, whether
    or not it has `stop_gradient`. The label -2147483648 counts as one that is ignored; other labels that are no class
    are an error as before. float16 and classes of unknown number are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (
        frozenset({"elementwise_mul", "log", "one_hot", "reduce_sum"}),
        frozenset({"elementwise_mul", "log_softmax", "one_hot", "reduce_sum"}),
        frozenset({"index_sample", "log"}),
        frozenset({"index_sample", "log_softmax"}),
    )

    rules = tuple(
        each
        for pick in _PICKS
        for rules in (_of_log_p, _of_logits)
        for found in rules(pick)
        for each in with_gradients(found, "x", with_results=True)
    ) + tuple(
        gradient_of(found, "x", with_results=True) for pick in _PICKS for found in _of_logits(pick, is_top_stopped=True)
    )
