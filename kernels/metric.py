"""Metrics of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.partial_sort import largest
from minigraph.kernels.registry import kernel
from minigraph.kernels.upcast import widen


@kernel("top_k")
def top_k(xp, x, size, *, k):
    """Sorted backwards and read from the end, so that equal elements stay in order and NaN comes first.

    Where a row of the CPU has equal elements among those, they come in fluid's order.
    """
    columns = x.shape[-1]
    if size is not None:
        k = int(size.reshape(1)[0])
        if not 1 <= k <= columns:
            raise ExecutionError(f"K must be in [1, {columns}], the size of a row, got {k}")
    if k == 1:
        # Without a sort; the first of equal elements, as in fluid.
        indices = xp.argmax(x, axis=-1, keepdims=True)
    else:
        backwards = xp.argsort(x[..., ::-1], axis=-1, kind="stable")
        indices = columns - 1 - backwards[..., ::-1][..., : k + 1]
        if xp is np:
            _order_equal_elements(x, indices, k)
        indices = indices[..., :k]
    indices = xp.ascontiguousarray(indices.astype(xp.int64, copy=False))
    return xp.take_along_axis(x, indices, axis=-1), indices


def _order_equal_elements(x, indices, k) -> None:
    """Put fluid's `indices` into the rows that have equal elements among the first ``k + 1``."""
    leading = np.take_along_axis(x, indices, axis=-1)
    tied = (leading[..., 1:] == leading[..., :-1]).any(axis=-1) & ~np.isnan(leading[..., 0])
    rows, found = x.reshape(-1, x.shape[-1]), indices.reshape(-1, indices.shape[-1])
    for i in np.flatnonzero(tied):
        found[i, :k] = largest(rows[i].tolist(), k)
    indices[...] = found.reshape(indices.shape)


@kernel("accuracy")
def accuracy(xp, values, indices, label):
    rows = len(label)
    correct = xp.sum((indices == label).any(axis=1), dtype=xp.int32).reshape(1)
    total = xp.full(1, rows, xp.int32)
    return (correct / max(rows, 1)).astype(xp.float32), correct, total


@kernel("top_k_grad")
def top_k_grad(xp, x, indices, d_out):
    k = indices.shape[-1]
    d_x = xp.zeros((x.size // x.shape[-1], x.shape[-1]) if x.size else (0, x.shape[-1]), d_out.dtype)
    d_x[xp.arange(len(d_x))[:, None], indices.reshape(-1, k)] = d_out.reshape(-1, k)
    return d_x.reshape(x.shape)


@kernel("auc")
def auc(xp, predict, label, positives, negatives, *, num_thresholds, slide_steps):
    score, is_positive = widen(predict[:, -1]), label.reshape(-1) > 0
    if not ((score >= 0) & (score <= 1)).all():
        raise ExecutionError("the probabilities in Predict must be in [0, 1]")
    # In float32 for scores of float32, as in fluid: a wider product would put some into another bucket.
    bucket = (score * score.dtype.type(num_thresholds)).astype(np.int64)
    counts = [
        xp.bincount(bucket[chosen], minlength=num_thresholds + 1).astype(np.int64)
        for chosen in (is_positive, ~is_positive)
    ]
    if not slide_steps:
        kept = [positives.copy(), negatives.copy()]
        totals = [each.reshape(-1)[: num_thresholds + 1] for each in kept]
        for total, new in zip(totals, counts, strict=True):
            total += new
        return _area(xp, *totals), *kept
    # The counts of the last steps lie in a ring, and the last element counts all steps.
    step = int(positives.reshape(-1)[-1]) % slide_steps
    kept = [_next_step(old, new, step, slide_steps) for old, new in zip((positives, negatives), counts, strict=True)]
    totals = [each.reshape(-1)[:-1].reshape(slide_steps + 1, -1)[-1] for each in kept]
    return _area(xp, *totals), *kept


def _next_step(old, counts, step, slide_steps) -> Any:
    """The counts of the last steps with those of another in the place of the first of them, their sum, and how many."""
    new = old.copy()
    new.reshape(-1)[-1] += 1
    by_step = new.reshape(-1)[:-1].reshape(slide_steps + 1, -1)
    by_step[-1] += counts - by_step[step]
    by_step[step] = counts
    return new


def _area(xp, positives, negatives) -> Any:
    """Area under the line through the points, from the largest threshold down; 0 if a class is missing."""
    hits, alarms = (xp.cumsum(counts[::-1]).astype(np.float64) for counts in (positives, negatives))
    before = hits - positives[::-1]
    area = xp.sum(negatives[::-1] * (hits + before)) / 2
    both = hits[-1] * alarms[-1]
    return xp.where(both > 0, area / xp.where(both > 0, both, 1), area).reshape(1)
