"""Connectionist temporal classification: its loss, with the gradient, and the best labels.

All sequences of a batch advance together, a step at a time, over the labels with a blank before, between and after
them. Sums are in float64, of logarithms only where probabilities are too small for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.kernels.batches import Batch
from minigraph.kernels.indexing import combine_rows, require_inside
from minigraph.kernels.rank_table import on_host
from minigraph.kernels.reduce import largest
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import widen

LEAST = 1e-200
"""Minimum share of the sums at a step that lie on paths to the end, for sums that are no logarithms."""


def warpctc_by(scaled_sums) -> Callable[..., Any]:
    """The kernel of ``warpctc`` whose sums over paths a function like `_scaled_sums` computes."""

    def warpctc(
        xp, logits, label, logits_length, label_length, logits_levels=None, label_levels=None, *, blank, norm_by_times
    ):
        given = logits if logits_length is None else logits.swapaxes(0, 1)
        steps = Batch(xp, given, logits_length, logits_levels, "Logits")
        labels = Batch(xp, label, label_length, label_levels, "Label")
        targets = xp.where(labels.present, labels.tokens(label), 0)
        require_inside(xp, targets, logits.shape[-1], "Label")
        shares = _Shares(xp, xp.ascontiguousarray(steps.padded(widen(given))))
        loss, d_logits = _loss(xp, shares, steps.present, targets, labels.present.sum(1), blank, scaled_sums)
        gradient = xp.ascontiguousarray(d_logits.swapaxes(0, 1)).astype(logits.dtype, copy=False)
        return gradient, loss[:, None].astype(logits.dtype)

    return warpctc


class _Shares:
    """Softmax along the last dimension, of all classes in the type of `logits` and of some in float64."""

    def __init__(self, xp, logits) -> None:
        self._logits, self._peaks = logits, largest(xp, logits, -1, keepdims=True)
        self.of_all = logits - self._peaks
        xp.exp(self.of_all, out=self.of_all)
        self._totals = add_over(xp, self.of_all, (2,), keepdims=True)
        self.of_all /= self._totals

    def of(self, xp, places) -> Any:
        """Probabilities of the classes at places of the logits, [batch, time, number], in float64.

        Fewer underflow there.
        """
        found = xp.take(self._logits, places).astype(np.float64)
        found -= self._peaks
        xp.exp(found, out=found)
        found /= self._totals
        return found


def _loss(xp, shares, present, targets, counts, blank, scaled_sums) -> tuple[Any, Any]:
    """The loss of each sequence, and its gradient with respect to the logits, [batch, time, classes].

    A sequence that is too short for its labels counts 0.
    """
    gradient = shares.of_all
    batch, steps, classes = gradient.shape
    states = xp.full((batch, 2 * targets.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = targets
    lasts = 2 * counts
    # A state may follow the one before the last if both are different labels: the blank between is optional. A label
    # that is a blank follows blanks only, as in fluid.
    skips = xp.zeros(states.shape, bool)
    skips[:, 3::2] = (targets[:, 1:] != targets[:, :-1]) & (targets[:, 1:] != blank)
    is_state = xp.arange(states.shape[1]) <= lasts[:, None]
    repeated = (targets[:, 1:] == targets[:, :-1]) & is_state[:, 4::2]
    present = present & (counts + repeated.sum(1) <= present.sum(1))[:, None]
    ends = is_state & (xp.arange(states.shape[1]) >= (lasts - 1)[:, None])
    places = xp.arange(batch * steps).reshape(batch, steps, 1) * classes + states[:, None, :]
    of_states = shares.of(xp, places)
    of_states *= is_state[:, None]
    by_time = xp.ascontiguousarray(of_states.swapaxes(0, 1))
    log_total, share = scaled_sums(xp, by_time, skips, ends, present.T)
    if share is None:
        log_total, share = _log_sums(xp, by_time, skips, ends, present.T)
    # Without a path the logarithm is -inf. Where it is NaN, the loss is to show that.
    counted = (log_total != -xp.inf) & present.any(1)
    used = present & counted[:, None]
    share = xp.where(used[:, :, None], share.swapaxes(0, 1), 0)
    gradient[~used] = 0
    combine_rows(xp, "add", gradient.reshape(-1), places.reshape(-1), -share.reshape(-1).astype(gradient.dtype))
    return xp.where(counted, -xp.where(counted, log_total, 0), 0), gradient


def _scaled_sums(xp, of_states, skips, ends, present) -> tuple[Any, Any]:
    """The logarithm of the sum over all paths, and the share of those through a state, [time, batch, states].

    Sums are divided by their total in each step, whose logarithms add up. The share is None if sums that matter may
    have become too small for that: then logarithms are needed.
    """
    forward, backward, totals = xp.zeros_like(of_states), xp.zeros_like(of_states), xp.empty(present.shape)
    may_skip, stop = skips[:, 2:].astype(of_states.dtype), ends.astype(of_states.dtype)
    for step, now in enumerate(forward):
        if step:
            before = forward[step - 1]
            now += before
            now[:, 1:] += before[:, :-1]
            now[:, 2:] += before[:, :-2] * may_skip
        else:
            now[:, :2] = 1
        now *= of_states[step]
        xp.maximum(now.sum(1), LEAST, out=totals[step])
        now /= totals[step, :, None]
    is_last = present.copy()
    is_last[:-1] &= ~present[1:]
    for step in range(len(backward) - 1, -1, -1):
        now = backward[step]
        now += stop * is_last[step, :, None]
        if step + 1 < len(backward):
            after = backward[step + 1] * of_states[step + 1]
            now += after
            now[:, :-1] += after[:, 1:]
            now[:, :-2] += after[:, 2:] * may_skip
        now /= xp.maximum(now.sum(1), LEAST)[:, None]
    share = forward
    at_end = ((forward * stop).sum(2) * is_last).sum(0)
    share *= backward
    mass = share.sum(2)
    if (mass[present] < LEAST).any():
        return None, None
    share /= xp.maximum(mass, LEAST)[:, :, None]
    logs = xp.where(present, xp.log(totals), 0).sum(0)
    return logs + xp.log(xp.where(present.any(0), at_end, 1)), share


def _log_sums(xp, of_states, skips, ends, present) -> tuple[Any, Any]:
    """Compute `_scaled_sums` in logarithms, for which no probability is too small."""
    with np.errstate(divide="ignore"):
        log_states = xp.log(of_states).swapaxes(0, 1)
    lengths = present.sum(0)
    last_steps = (lengths - 1).clip(0)
    forward = _forward(xp, log_states, skips)
    at_end = xp.take_along_axis(forward, last_steps[:, None, None], 1)[:, 0]
    log_total = _log_sum(xp, xp.where(ends, at_end, -np.inf))
    backward = _backward(xp, log_states, skips, ends, last_steps)
    share = xp.exp(forward + backward - xp.where(xp.isfinite(log_total), log_total, 0)[:, None, None])
    return log_total, share.swapaxes(0, 1)


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
    """Logarithms of the sums over all paths that continue a state after a step."""
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
    peak = largest(xp, x, -1)
    shift = xp.where(xp.isfinite(peak), peak, 0)
    with np.errstate(divide="ignore"):
        return xp.log(xp.exp(x - shift[:, None]).sum(-1)) + shift


kernel("warpctc")(warpctc_by(_scaled_sums))


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
