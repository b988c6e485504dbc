"""Losses of probabilities and of their logarithms. float16 is computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.upcast import widened


@kernel("bce_loss")
@widened
def bce_loss(xp, x, label, *, out=None):
    yes, no = xp.maximum(xp.log(x), -100), xp.maximum(xp.log1p(-x), -100)
    return deliver(xp, -label * yes - (1 - label) * no, out)


@kernel("bce_loss_grad")
@widened
def bce_loss_grad(xp, x, label, d_out, *, out=None):
    slope = (x - label) / xp.maximum(x * (1 - x), x.dtype.type(1e-12))
    return xp.multiply(slope, d_out, out=out)


def _shares(xp, x, label, weight, reduction, ignore_index) -> tuple[Any, Any, Any]:
    """The classes to look at, the weight of each label in the loss, and the sum of the weights that count."""
    counts = label != ignore_index
    classes = xp.where(counts, label, 0)
    wrong = counts & ((label < 0) | (label >= x.shape[1]))
    if wrong.any():
        raise ExecutionError(f"Label must be in [0, {x.shape[1]}) or {ignore_index}, got {int(label[wrong][0])}")
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    weights = xp.where(counts, 1 if weight is None else weight[classes], 0).astype(wide)
    total = weights.sum(dtype=wide)
    if reduction == "mean":
        weights = weights / xp.where(total == 0, xp.ones_like(total), total)
    return xp.expand_dims(classes, 1), weights, total


@kernel("nll_loss")
def nll_loss(xp, x, label, weight, *, reduction, ignore_index):
    classes, weights, total = _shares(xp, x, label, weight, reduction, ignore_index)
    loss = -weights * xp.take_along_axis(x, classes, axis=1)[:, 0]
    result = loss if reduction == "none" else loss.sum().reshape(1)
    return result.astype(x.dtype), total.reshape(1).astype(x.dtype)


@kernel("nll_loss_grad")
def nll_loss_grad(xp, x, label, weight, d_out, *, reduction, ignore_index):
    classes, weights, _ = _shares(xp, x, label, weight, reduction, ignore_index)
    d_x = xp.zeros(x.shape, x.dtype)
    xp.put_along_axis(d_x, classes, xp.expand_dims((-weights * d_out).astype(x.dtype), 1), axis=1)
    return d_x
