"""Losses of single numbers. float16 is computed in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.kernels.activation import log_of_one_plus_exp, logistic
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import narrow, widen, widened


@kernel("sigmoid_cross_entropy_with_logits")
@widened
def sigmoid_cross_entropy_with_logits(xp, x, label, *, normalize, ignore_index, out=None):
    # log(1 + exp(x)) - x * label is the cross entropy of sigmoid(x), without a logarithm of 0.
    loss = log_of_one_plus_exp(xp, x)
    loss -= x * label
    return xp.multiply(loss, _shares(xp, label, normalize, ignore_index), out=out)


@kernel("sigmoid_cross_entropy_with_logits_grad")
@widened
def sigmoid_cross_entropy_with_logits_grad(xp, x, label, d_out, *, normalize, ignore_index, out=None):
    slope = logistic(xp, x)
    slope -= label
    slope *= _shares(xp, label, normalize, ignore_index)
    return xp.multiply(slope, d_out, out=out)


def _shares(xp, label, normalize, ignore_index) -> Any:
    """1, or one over how many elements count, where an element counts."""
    # A label counts by its whole part, as in fluid: of 0 are all labels between -1 and 1.
    below = label < ignore_index if ignore_index > 0 else label <= ignore_index - 1
    above = label > ignore_index if ignore_index < 0 else label >= ignore_index + 1
    counts = below | above
    if not normalize:
        return counts
    # As a sum of float64, which is as exact, the count belongs to the native call.
    count = np.add.reduce(counts, None, np.float64) if xp is np else xp.count_nonzero(counts)
    return counts / xp.maximum(count, 1).astype(label.dtype)


@kernel("huber_loss")
def huber_loss(xp, x, y, *, delta, out=None):
    residual = widen(y) - widen(x)
    size = xp.absolute(residual)
    inner = xp.minimum(size, delta)
    loss = inner * (size - 0.5 * inner)  # a square as long as both are the same
    residual_out, loss_out = out or (None, None)
    return narrow(xp, residual, x.dtype, residual_out), narrow(xp, loss, x.dtype, loss_out)


@kernel("huber_loss_grad")
def huber_loss_grad(xp, residual, d_out, *, delta, wanted):
    d_y = residual.clip(-delta, delta) * d_out
    return (-d_y if wanted[0] else None), (d_y if wanted[1] else None)


@kernel("smooth_l1_loss")
def smooth_l1_loss(xp, x, y, inside_weight, outside_weight, *, sigma):
    diff = widen(x) - widen(y)
    if inside_weight is not None:
        diff *= inside_weight
    square = sigma * sigma
    size = xp.absolute(diff)
    inner = xp.minimum(size, 1 / square if square else math.inf)
    loss = square * inner * (size - 0.5 * inner)  # a square as long as both are the same
    if outside_weight is not None:
        loss *= outside_weight
    total = add_over(xp, loss.reshape(len(x), math.prod(x.shape[1:])), (1,), keepdims=True)
    return narrow(xp, diff, x.dtype), narrow(xp, total, x.dtype)


@kernel("smooth_l1_loss_grad")
def smooth_l1_loss_grad(xp, inside_weight, outside_weight, diff, d_out, *, sigma, wanted):
    wide, square = widen(diff), sigma * sigma
    slope = (square * wide).clip(-1, 1)
    for weight in (inside_weight, outside_weight):
        if weight is not None:
            slope *= weight
    slope *= d_out.reshape((len(diff),) + (1,) * (diff.ndim - 1))
    d_x = narrow(xp, slope, diff.dtype)
    return (d_x if wanted[0] else None), (-d_x if wanted[1] else None)


@kernel("log_loss")
@widened
def log_loss(xp, predicted, labels, *, epsilon, out=None):
    positive = labels * xp.log(predicted + epsilon)
    return xp.negative(positive + (1 - labels) * xp.log(1 - predicted + epsilon), out=out)


@kernel("log_loss_grad")
@widened
def log_loss_grad(xp, predicted, labels, d_loss, *, epsilon, out=None):
    slope = (1 - labels) / (1 - predicted + epsilon) - labels / (predicted + epsilon)
    return xp.multiply(slope, d_loss, out=out)


@kernel("kldiv_loss")
def kldiv_loss(xp, x, target, *, reduction):
    wide, probability = widen(x), widen(target)
    positive = ~(probability <= 0)  # of NaN, too, so that it shows
    # A probability of 0 adds 0, where 0 * log(0) would be NaN.
    loss = probability * (xp.log(xp.where(positive, probability, 1)) - wide)
    xp.copyto(loss, 0, where=~positive)
    if reduction == "none":
        return narrow(xp, loss, x.dtype)
    everything = tuple(range(loss.ndim))
    total = add_over(xp, loss, everything, keepdims=True, divisor=_divergence_divisor(x, reduction))
    return total.reshape(1).astype(x.dtype, copy=False)


@kernel("kldiv_loss_grad")
def kldiv_loss_grad(xp, x, target, d_out, *, reduction):
    share = widen(d_out) / _divergence_divisor(x, reduction)
    return narrow(xp, xp.where(target <= 0, 0, -widen(target) * share), x.dtype)


def _divergence_divisor(x, reduction) -> int:
    return max({"mean": x.size, "batchmean": x.shape[0]}.get(reduction, 1), 1)
