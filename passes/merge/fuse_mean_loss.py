"""Fuse the mean loss of a classifier and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rules, attr, marked, op, rule
from minigraph.types import DType, as_dtype


def _of_mean(loss: Any, slope: Any) -> Any:
    """The incoming gradient of the losses of rows; what else is in the loss may read its number, too."""
    seed = marked(op("fill_constant", shape=attr(), dtype=attr(), value=slope, force_cpu=attr()), shared=True)
    return op("mean_grad", X=loss, Out_GRAD=seed)


@rule
def _of_probabilities(x: Any, label: Any, slope: Any = attr("value")) -> Any:
    ignored = attr()
    p = op("softmax", X=x, axis=attr(), is_test=attr())
    loss, match, shape = op(
        "cross_entropy2", X=p, Label=label, ignore_index=ignored, outputs=["Y", "MatchX", "XShape"]
    )  # fmt: skip
    mean, d_loss = op("mean", X=marked(loss, place=True)), _of_mean(loss, slope)
    d_p = op("cross_entropy_grad2", MatchX=match, Label=label, XShape=shape, Y_GRAD=d_loss, ignore_index=ignored)
    return p, mean, op("softmax_grad", Out=p, Out_GRAD=d_p, axis=attr(), is_test=attr())


@rule
def _of_logits(x: Any, label: Any, slope: Any = attr("value")) -> Any:
    same = {"ignore_index": attr(), "axis": attr()}
    p, loss = op(
        "softmax_with_cross_entropy", Logits=x, Label=label, numeric_stable_mode=attr(), **same,
        outputs=["Softmax", "Loss"],
    )  # fmt: skip
    given = {"Softmax": p, "Label": label, "Loss_GRAD": _of_mean(loss, slope), "numeric_stable_mode": attr()}
    return p, op("mean", X=marked(loss, place=True)), op("softmax_with_cross_entropy_grad", **given, **same)


@_of_probabilities.where
@_of_logits.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    shape, dtype = m.x.shape or (-1,), m.x.dtype
    yield -1 not in shape and dtype in (DType.FP32, DType.FP64), "x must be float32 or float64, of known shape"
    yield m.axis in (-1, len(shape) - 1), "the classes must be the last dimension"
    yield m.label.shape == (*shape[:-1], 1), "the labels must be a column"
    yield as_dtype(m.dtype) is dtype, "the incoming gradient must have the dtype of x"


def _fused(x: Any, label: Any, **attrs: Any) -> Any:
    return op("fused_mean_loss", X=x, Label=label, **attrs, outputs=["Out", "Loss", "Gradient"])


@_of_probabilities.to
def _(x: Any, label: Any, ignore_index: int, slope: float) -> Any:
    return _fused(x, label, ignore_index=ignore_index, slope=slope)


@_of_logits.to
def _(x: Any, label: Any, ignore_index: int, slope: float) -> Any:
    return _fused(x, label, ignore_index=ignore_index, slope=slope, from_logits=True)


class FuseMeanLoss(Rules):
    """Compute the mean loss of softmaxes, and its gradient by the logits x, as one ``fused_mean_loss``.

    The loss is ``mean(cross_entropy2(softmax(x), label))``, or ``mean(softmax_with_cross_entropy(x, label))`` with hard
    labels: then the new operator has `from_logits`. The operators from x to its gradient work on a few numbers each, so
    that the calls take longer than the arithmetic. Compiled, they are one loop.

    Law: every value keeps its bits, because the kernel calls those of the single operators. The two losses are not
    mixed: they differ where a logit lies more than 64 below the largest, and where `ignore_index` is a class. The new
    operator stands where the cross entropy stood. Later operators may read the probabilities, but no value between them
    and the loss. float16, where a probability may be 0, and labels that are no column are left alone.
    """

    keeps_roles: ClassVar[bool] = False

    needs = (
        frozenset({"mean", "mean_grad", "softmax"}),
        frozenset({"mean", "mean_grad", "softmax_with_cross_entropy"}),
    )

    rules = (_of_probabilities, _of_logits)
