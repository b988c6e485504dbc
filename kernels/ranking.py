"""Losses for ranking: of scores that should be in order. float16 is computed in float32."""

from __future__ import annotations

from typing import Any

from minigraph.kernels.activation import log_of_one_plus_exp, logistic
from minigraph.kernels.indexing import require_inside
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import narrow, widen, widened


@kernel("rank_loss")
@widened
def rank_loss(xp, label, left, right, *, out=None):
    difference = left - right
    return xp.subtract(log_of_one_plus_exp(xp, difference), label * difference, out=out)


@kernel("rank_loss_grad")
def rank_loss_grad(xp, label, left, right, d_out, *, wanted):
    d_left = (logistic(xp, left - right) - label) * d_out
    return (d_left if wanted[0] else None), (-d_left if wanted[1] else None)


@kernel("margin_rank_loss")
def margin_rank_loss(xp, x1, x2, label, *, margin):
    loss = xp.maximum(margin - label * (x1 - x2), 0)
    return (loss > 0).astype(loss.dtype), loss


@kernel("margin_rank_loss_grad")
def margin_rank_loss_grad(xp, label, activated, d_out, *, wanted):
    d_x2 = label * activated * d_out
    return (-d_x2 if wanted[0] else None), (d_x2 if wanted[1] else None)


@kernel("bpr_loss")
def bpr_loss(xp, x, label):
    losses, at = _differences(xp, x, label)
    losses = log_of_one_plus_exp(xp, losses)
    _set_at(losses, at, 0)
    total = add_over(xp, losses, (x.ndim - 1,), keepdims=True)
    return narrow(xp, total / (x.shape[-1] - 1), x.dtype)


@kernel("bpr_loss_grad")
def bpr_loss_grad(xp, x, label, d_out):
    slopes, at = _differences(xp, x, label)
    slopes = logistic(xp, slopes)
    slopes *= widen(d_out) / (x.shape[-1] - 1)
    _set_at(slopes, at, 0)
    _set_at(slopes, at, -add_over(xp, slopes, (x.ndim - 1,), keepdims=True))
    return narrow(xp, slopes, x.dtype)


def _differences(xp, x, label) -> tuple[Any, Any]:
    """The scores minus that of the label, and the index of the labels in a vector of the scores."""
    wide = xp.ascontiguousarray(widen(x))
    require_inside(xp, label, x.shape[-1], "Label")
    at = label + (xp.arange(label.size) * x.shape[-1]).reshape(label.shape)
    return wide - wide.reshape(-1)[at], at


def _set_at(array, at, values) -> None:
    array.reshape(-1)[at] = values


@kernel("teacher_student_sigmoid_loss")
@widened
def teacher_student_sigmoid_loss(xp, x, label, *, soft_max_up_bound, soft_max_lower_bound, out=None):
    loss = log_of_one_plus_exp(xp, x)
    both = 2 * loss - x * label
    return narrow(xp, xp.where(label < 0, loss - x * (label >= -1), both), x.dtype, out)


@kernel("teacher_student_sigmoid_loss_grad")
def teacher_student_sigmoid_loss_grad(xp, x, label, d_out, *, soft_max_up_bound, soft_max_lower_bound):
    chance = logistic(xp, x)
    alone = xp.where(label >= -1, chance - 1, chance)
    slope = xp.where(label < 0, alone, 2 * chance - label)
    inside = (x < soft_max_up_bound) & (x > soft_max_lower_bound)
    return inside * slope * d_out
