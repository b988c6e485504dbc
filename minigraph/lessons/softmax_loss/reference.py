"""Lesson 6: softmax and cross entropy as one operator."""

from collections.abc import Iterator
from typing import Any

from minigraph import layers, rewrite


@rewrite.rule(changes_rounding=True)
def softmax_loss(x: Any, label: Any, ignored: Any = rewrite.attr("ignore_index")) -> Any:
    """Compute the loss of a softmax from its logits.

    Law: the loss changes by rounding only, unless the logit of the label lies more than 64 below the largest one, where
    the new loss is right and the old one is 64. The probabilities stay.
    """
    p = layers.softmax(x)
    return layers.cross_entropy(p, label, ignore_index=ignored), p


@softmax_loss.where
def _(m: Any) -> Iterator[tuple[bool, str]]:
    yield len(m.label.shape) == len(m.x.shape), "labels have a last dimension of 1, as the fused operator asks for"


@softmax_loss.to
def _(x: Any, label: Any, ignored: int) -> Any:
    return layers.softmax_with_cross_entropy(x, label, ignore_index=ignored, return_softmax=True)
