"""Gradients of losses. A hard label becomes weights of the classes, 1 for one and 0 for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.types import normalize_axis


def _weights(g: Rewriting, label: Variable, x: Variable, axis: int) -> Variable:
    """One for the class that a label names, whose dimension `axis` is 1, in the shape of `x`; zeros for no class."""
    classes, rank = g.dim(x, axis), len(x.shape or ())
    depth = {"depth_tensor": classes} if isinstance(classes, Variable) else {"depth": classes}
    ones = g.emit("one_hot_v2", X=label, dtype=int(x.dtype), allow_out_of_range=True, **depth)
    order = [*range(axis), rank, *range(axis + 1, rank), axis]
    return g.emit("squeeze2", X=g.transpose(ones, order), axes=[rank])


def _counting(g: Rewriting, label: Variable, like: Variable) -> Variable:
    """1 for labels that are not ignored, else 0."""
    return g.mask(g.compare("not_equal", label, g.attr("ignore_index")), like)


@rewritten_as("cross_entropy_grad", "cross_entropy_grad2")
def _cross_entropy(g: Rewriting) -> Mapping[str, Any]:
    """``dX = -Label / X * dY``, and 0 where a label weighs nothing."""
    x = g["X"] if g.op.type == "cross_entropy_grad" else g.forward("X", through="MatchX")
    label, d_loss, rank = g["Label"], g["Y@GRAD"], len(x.shape or ())
    if g.op.type == "cross_entropy_grad" and g.attr("soft_label"):
        weights = label
    else:
        if len(label.shape or ()) < rank:
            label = g.emit("unsqueeze2", X=label, axes=[rank - 1])
        weights = _weights(g, label, x, rank - 1)
        if g.attr("ignore_index") >= 0:
            weights = g.mul(weights, _counting(g, label, x))
    if len(d_loss.shape or ()) < rank:
        d_loss = g.emit("unsqueeze2", X=d_loss, axes=[rank - 1])
    shares = g.div(weights, g.not_zero(x, g.compare("not_equal", weights, 0.0)))
    return {"X@GRAD": g.negative(g.mul(shares, d_loss))}


@rewritten_as("center_loss_grad")
def _center_loss(g: Rewriting) -> Mapping[str, Any]:
    x = g["X"]
    # The differences as they are, with the slope that they have in X: the centers are constant.
    differences = g.add(g.constant(g["SampleCenterDiff"]), g.sub(x, g.constant(x)))
    return {"X@GRAD": g.mul(differences, g["Loss@GRAD"])}


@rewritten_as("bpr_loss_grad")
def _bpr_loss(g: Rewriting) -> Mapping[str, Any]:
    """``dX`` is the slope of each other class, and for the label minus their sum."""
    x, rank = g["X"], len(g["X"].shape or ())
    chosen = _weights(g, g["Label"], x, rank - 1)
    differences = g.sub(x, g.sum(g.mul(x, chosen), [rank - 1], keep=True))
    others = g.scale(chosen, -1.0, 1.0)
    count = g.sub(g.sum(g.ones(x), [rank - 1], keep=True), g.ones(g["Y@GRAD"]))
    slopes = g.mul(g.mul(g.emit("sigmoid", X=differences), others), g.div(g["Y@GRAD"], count))
    return {"X@GRAD": g.sub(slopes, g.mul(chosen, g.sum(slopes, [rank - 1], keep=True)))}


@rewritten_as("margin_rank_loss_grad")
def _margin_rank_loss(g: Rewriting) -> Mapping[str, Any]:
    d_x2 = g.mul(g.mul(g["Label"], g.constant(g["Activated"])), g["Out@GRAD"])
    return {"X1@GRAD": g.negative(d_x2), "X2@GRAD": d_x2}


@rewritten_as("softmax_with_cross_entropy_grad")
def _softmax_with_cross_entropy(g: Rewriting) -> Mapping[str, Any]:
    logits, label, d_loss = g.forward("Logits", through="Softmax"), g["Label"], g["Loss@GRAD"]
    rank = len(logits.shape or ())
    axis = normalize_axis(g.attr("axis"), rank)
    # Not `softmax`, which gives no probability below exp(-64).
    probabilities = g.emit("exp", X=g.emit("log_softmax", X=logits, axis=axis))
    if g.attr("soft_label"):
        return {"Logits@GRAD": g.mul(g.sub(probabilities, label), d_loss)}
    classes = (logits.shape or ())[axis]
    if g.attr("ignore_index") < 0 or 0 <= classes <= g.attr("ignore_index"):
        d_loss = g.mul(d_loss, _counting(g, label, d_loss))
    return {"Logits@GRAD": g.mul(g.sub(probabilities, _weights(g, label, logits, axis)), d_loss)}


# Losses of single numbers


@rewritten_as("sigmoid_cross_entropy_with_logits_grad")
def _sigmoid_cross_entropy(g: Rewriting) -> Mapping[str, Any]:
    x, label, ignored = g["X"], g["Label"], g.attr("ignore_index")
    # The whole part of a label counts.
    below = g.compare("less_than" if ignored > 0 else "less_equal", label, ignored - (ignored <= 0))
    above = g.compare("greater_than" if ignored < 0 else "greater_equal", label, ignored + (ignored >= 0))
    counts = g.mask(g.emit("logical_or", X=below, Y=above), x)
    slope = g.mul(g.sub(g.emit("sigmoid", X=x), label), counts)
    if g.attr("normalize"):
        total = g.emit("elementwise_max", X=g.total(counts), Y=g.number(1.0, x))
        slope = g.div(slope, total)
    return {"X@GRAD": g.mul(slope, g["Out@GRAD"])}


@rewritten_as("huber_loss_grad")
def _huber(g: Rewriting) -> Mapping[str, Any]:
    x, y, delta = g.forward("X", through="Residual"), g.forward("Y", through="Residual"), g.attr("delta")
    slope = g.mul(g.emit("clip", X=g.sub(y, x), min=-delta, max=delta), g["Out@GRAD"])
    return {"X@GRAD": g.negative(slope), "Y@GRAD": slope}


@rewritten_as("smooth_l1_loss_grad")
def _smooth_l1(g: Rewriting) -> Mapping[str, Any]:
    difference = g.sub(g.forward("X", through="Diff"), g.forward("Y", through="Diff"))
    rank, square = len(difference.shape or ()), g.attr("sigma") ** 2
    inside, outside = g.given("InsideWeight"), g.given("OutsideWeight")
    if inside is not None:
        difference = g.mul(difference, inside)
    curved = g.scale(difference, square)
    is_small = g.compare("less_than", g.scale(g.emit("abs", X=difference, stop_gradient=True), square), 1.0)
    slope = g.where(is_small, curved, g.sign(difference))
    for weight in (inside, outside):
        if weight is not None:
            slope = g.mul(slope, weight)
    d_out = g["Out@GRAD"]
    if rank > 2:
        d_out = g.emit("unsqueeze2", X=d_out, axes=list(range(2, rank)))
    slope = g.mul(slope, d_out)
    return {"X@GRAD": slope, "Y@GRAD": g.negative(slope)}


@rewritten_as("kldiv_loss_grad")
def _kldiv_loss(g: Rewriting) -> Mapping[str, Any]:
    x, target, reduction = g["X"], g["Target"], g.attr("reduction")
    counts = g.mask(g.compare("greater_than", target, 0.0), target)
    share = g.negative(g["Loss@GRAD"])
    if reduction in ("mean", "batchmean"):
        axes = range(len(x.shape or ())) if reduction == "mean" else [0]
        count = g.count(x, axes)
        count = g.emit("elementwise_max", X=count, Y=g.number(1.0, count))
        share = g.div(share, g.cast(count, x.dtype))
    return {"X@GRAD": g.mul(g.mul(target, counts), share)}
