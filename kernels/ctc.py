"""Connectionist temporal classification: its loss, with the gradient, and the best labels.

All sequences of a batch advance together, a step at a time, over the labels with a blank before, between and behind
them. Sums are of logarithms, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.batches import Batch
from minigraph.kernels.indexing import added_rows, require_inside
from minigraph.kernels.rank_table import on_host
from minigraph.kernels.registry import kernel


@kernel("warpctc")
def warpctc(
    xp, logits, label, logits_length, label_length, logits_levels=None, label_levels=None, *, blank, norm_by_times
):
    given = logits if logits_length is None else logits.swapaxes(0, 1)
    steps = Batch(xp, given, logits_length, logits_levels, "Logits")
    labels = Batch(xp, label, label_length, label_levels, "Label")
    targets = xp.where(labels.present, labels.tokens(label), 0)
    require_inside(xp, targets, logits.shape[-1], "Label")
    wide = steps.padded(given).astype(np.float64)
    probabilities = _softmax(xp, wide)
    loss, d_logits = _loss(xp, probabilities, steps.present, targets, labels.present.sum(1), blank)
    gradient = xp.ascontiguousarray(d_logits.swapaxes(0, 1)).astype(logits.dtype)
    return gradient, loss[:, None].astype(logits.dtype)


def _softmax(xp, x) -> Any:
    exps = xp.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return exps / exps.sum(-1, keepdims=True)


def _loss(xp, probabilities, present, targets, counts, blank) -> tuple[Any, Any]:
    """The loss of each sequence, and its gradient with respect to the logits, [batch, time, classes].

    A sequence that is too short for its labels counts 0.
    """
    batch, steps, classes = probabilities.shape
    states = xp.full((batch, 2 * targets.shape[1] + 1), blank, targets.dtype)
    states[:, 1::2] = targets
    lasts = 2 * counts
    # A state may follow the one before the last if both are different labels: the blank between is optional.
    skips = xp.zeros(states.shape, bool)
    skips[:, 3::2] = targets[:, 1:] != targets[:, :-1]
    with np.errstate(divide="ignore"):
        log_states = xp.log(xp.take_along_axis(probabilities, states[:, None, :].astype(np.int64), 2))
    is_state = xp.arange(states.shape[1]) <= lasts[:, None]
    log_states = xp.where(is_state[:, None], log_states, -np.inf)
    forward = _forward(xp, log_states, skips)
    ends = is_state & (xp.arange(states.shape[1]) >= (lasts - 1)[:, None])
    last_steps = (present.sum(1) - 1).clip(0)
    at_end = xp.take_along_axis(forward, last_steps[:, None, None], 1)[:, 0] if steps else xp.full(ends.shape, -np.inf)
    log_total = _log_sum(xp, xp.where(ends, at_end, -np.inf))
    counted = xp.isfinite(log_total) & present.any(1)
    backward = _backward(xp, log_states, skips, ends, last_steps)
    share = xp.exp(forward + backward - xp.where(counted, log_total, 0)[:, None, None])
    used = present & counted[:, None]
    share = xp.where(used[:, :, None], share, 0)
    places = xp.arange(batch * steps).reshape(batch, steps, 1) * classes + states[:, None, :]
    flat = added_rows(xp, probabilities.reshape(-1), places.reshape(-1), share.reshape(-1))
    gradient = probabilities * used[:, :, None] - flat.reshape(probabilities.shape)
    return xp.where(counted, -xp.where(counted, log_total, 0), 0), gradient


def _forward(xp, log_states, skips) -> Any:
    """Logarithms of the sums over all paths that end in a state at a step, [batch, time, states]."""
    result = xp.full(log_states.shape, -np.inf)
    result[:, :1, :2] = log_states[:, :1, :2]
    for step in range(1, log_states.shape[1]):
        before = result[:, step - 1]
        total = before.copy()
        total[:, 1:] = xp.logaddexp(before[:, 1:], before[:, :-1])
        total[:, 2:] = xp.where(skips[:, 2:], xp.logaddexp(total[:, 2:], before[:, :-2]), total[:, 2:])
        result[:, step] = total + log_states[:, step]
    return result


def _backward(xp, log_states, skips, ends, last_steps) -> Any:
    """Logarithms of the sums over all paths that continue a state behind a step."""
    result = xp.full(log_states.shape, -np.inf)
    stop = xp.where(ends, 0.0, -np.inf)
    for step in range(log_states.shape[1] - 1, -1, -1):
        total = result[:, step]
        if step + 1 < log_states.shape[1]:
            after = result[:, step + 1] + log_states[:, step + 1]
            total[...] = after
            total[:, :-1] = xp.logaddexp(after[:, :-1], after[:, 1:])
            total[:, :-2] = xp.where(skips[:, 2:], xp.logaddexp(total[:, :-2], after[:, 2:]), total[:, :-2])
        total[...] = xp.where((last_steps == step)[:, None], stop, total)
    return result


def _log_sum(xp, x) -> Any:
    """Logarithm of the sum of exponentials along the last dimension."""
    peak = x.max(-1, initial=-np.inf)
    shift = xp.where(xp.isfinite(peak), peak, 0)
    with np.errstate(divide="ignore"):
        return xp.log(xp.exp(x - shift[:, None]).sum(-1)) + shift


@kernel("warpctc_grad")
def warpctc_grad(xp, gradient, logits, logits_length, d_out, levels=None, *, blank, norm_by_times):
    given = logits if logits_length is None else logits.swapaxes(0, 1)
    steps = Batch(xp, given, logits_length, levels, "Logits")
    factors = d_out.reshape(-1)
    if norm_by_times:
        factors = factors / steps.present.sum(1).clip(1).astype(d_out.dtype)
    scaled = gradient * factors[:, None, None].swapaxes(0, 1)
    if logits_length is not None:
        return scaled
    return steps.as_given(scaled.swapaxes(0, 1))


@kernel("ctc_align")
def ctc_align(xp, x, length, levels=None, *, blank, merge_repeated, padding_value):
    batch = Batch(xp, x, length, levels, "Input")
    tokens = batch.tokens(x)
    kept = batch.present & (tokens != blank)
    if merge_repeated:
        kept[:, 1:] &= tokens[:, 1:] != tokens[:, :-1]
    counts = kept.sum(1)
    if not batch.are_rows:
        out = xp.full(tokens.shape, padding_value, x.dtype)
        out[xp.arange(tokens.shape[1]) < counts[:, None]] = tokens[kept]
        return out, counts.reshape(-1, 1).astype(np.int64)
    found = tokens[kept].reshape(-1, 1)
    # As in fluid: one row of -1 stands for nothing at all.
    rows = found if len(found) else xp.full((1, 1), -1, x.dtype)
    offsets = np.zeros(len(counts) + 1, np.int64)
    offsets[1:] = np.cumsum(on_host(counts))
    return rows, None, [offsets]
