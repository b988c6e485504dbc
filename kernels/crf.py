"""Linear chain conditional random fields: forward and backward sums, and the best path.

All sequences of a batch advance together, a step at a time. Sums of exponentials are divided by their total in each
step, whose logarithms add up to that of the sum over all paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.kernels.batches import Batch
from minigraph.kernels.indexing import added_rows, require_inside
from minigraph.kernels.reduce import largest
from minigraph.kernels.registry import kernel


def tags_of(xp, label, batch, count) -> Any:
    """Label as [batch, time], with 0 after the end of a sequence."""
    tags = xp.where(batch.present, batch.tokens(label), 0)
    require_inside(xp, tags, count, "Label")
    return tags


def exponentials(xp, x, axis) -> tuple[Any, Any]:
    """``exp(x - peak)`` in float64, and the peak along `axis`."""
    wide = x.astype(np.float64)
    peak = largest(xp, wide, axis, keepdims=True) if axis is not None else wide.max()
    return xp.exp(wide - peak), peak


def _of_tags(xp, x, tags) -> Any:
    """``x[sequence, step, tag]`` for the tag of each step."""
    sequences, steps = tags.shape
    return x[xp.arange(sequences)[:, None], xp.arange(steps), tags]


def _at_end(xp, x, batch) -> Any:
    """Take from `x` the last step of each sequence."""
    return x[xp.arange(len(batch.last)), batch.last]


@kernel("linear_chain_crf")
def linear_chain_crf(xp, emission, transition, label, length, levels=None):
    batch = Batch(xp, emission, length, levels, "Emission")
    emission, present = batch.padded(emission), batch.present
    tags = tags_of(xp, label, batch, emission.shape[2])
    exps, peaks = exponentials(xp, emission, 2)
    weights, top = exponentials(xp, transition, None)
    alpha, totals = _forward(xp, exps, weights, batch)
    log_sum = xp.where(present, xp.log(totals) + peaks[:, :, 0] + top, 0).sum(1)
    if present.shape[1]:
        ends = (_at_end(xp, alpha, batch) * weights[1]).sum(1)
        log_sum += xp.where(present[:, 0], xp.log(xp.where(present[:, 0], ends, 1)) + top, 0)
    loss = (log_sum - _score(xp, emission, transition, tags, batch))[:, None]
    results = batch.as_given(alpha), batch.as_given(exps), xp.exp(transition.astype(np.float64)), loss
    return tuple(result.astype(emission.dtype) for result in results)


def _forward(xp, exps, weights, batch) -> tuple[Any, Any]:
    """Sums over all paths that end in a tag, divided by their total, 0 after the end; and that total."""
    start, between = weights[0], weights[2:]
    by_time = exps.swapaxes(0, 1).copy()
    # A product adds a few tags up in less time than a sum.
    totals, ones = xp.empty(by_time.shape[:2]), xp.ones(len(between))
    for step, now in enumerate(by_time):
        now *= by_time[step - 1] @ between if step else start
        xp.matmul(now, ones, out=totals[step])
        now /= totals[step, :, None]
    return xp.where(batch.present[:, :, None], by_time.swapaxes(0, 1), 0), totals.T


def _score(xp, emission, transition, tags, batch) -> Any:
    """The score of the path `tags` of each sequence, in float64."""
    present = batch.present
    if not present.shape[1]:
        return xp.zeros(len(present))
    of_tags = _of_tags(xp, emission, tags).astype(np.float64)
    wide = transition.astype(np.float64)
    total = xp.where(present, of_tags, 0).sum(1)
    total += xp.where(present[:, 1:], wide[tags[:, :-1] + 2, tags[:, 1:]], 0).sum(1)
    ends = wide[0, tags[:, 0]] + wide[1, _at_end(xp, tags, batch)]
    return total + xp.where(present[:, 0], ends, 0)


@kernel("linear_chain_crf_grad")
def linear_chain_crf_grad(
    xp, emission, transition, label, length, alpha, emission_exps, transition_exps, d_out, levels=None, *, wanted
):  # fmt: skip
    if emission.size == 0:
        return xp.zeros_like(emission), xp.zeros_like(transition)
    batch, weights = Batch(xp, emission, length, levels, "Emission"), exponentials(xp, transition, None)[0]
    present, tags = batch.present, tags_of(xp, label, batch, len(transition[0]))
    alpha, exps = (batch.padded(x).astype(np.float64) * present[:, :, None] for x in (alpha, emission_exps))
    d = d_out.astype(np.float64).reshape(-1, 1)
    beta = _backward(xp, exps, weights, batch)
    marginal = alpha * beta
    total = marginal.sum(2, keepdims=True)
    marginal /= xp.where(present[:, :, None], total, 1)
    # The expected number of uses less the real one, at each tag and at each pair of neighbours.
    d_emission = marginal
    d_emission[xp.arange(len(tags))[:, None], xp.arange(tags.shape[1]), tags] -= present
    d_emission *= d[:, :, None]
    d_transition = None
    if wanted[1]:
        d_transition = _transition_gradient(xp, alpha, exps * beta, weights, d_emission, tags, batch, d)
        d_transition = d_transition.astype(transition.dtype)
    return batch.as_given(d_emission).astype(emission.dtype), d_transition


def _backward(xp, exps, weights, batch) -> Any:
    """Sums over all paths that continue a tag, divided by their total; 0 after the end."""
    present = batch.present
    end, back = weights[1], weights[2:].T
    by_time = xp.ascontiguousarray(exps.swapaxes(0, 1))
    beta = xp.empty_like(by_time)
    beta[-1:] = end / end.sum()
    is_over = ~present.T[:, :, None]
    ones = xp.ones((len(end), 1))  # as in `_forward`
    continued, total = xp.empty(by_time.shape[1:]), xp.empty((len(exps), 1))
    for step in range(len(beta) - 2, -1, -1):
        now, later = beta[step], step + 1
        xp.multiply(by_time[later], beta[later], out=continued)
        xp.matmul(continued, back, out=now)
        xp.copyto(now, end, where=is_over[later])
        xp.matmul(now, ones, out=total)
        now /= total
    return xp.where(present[:, :, None], beta.swapaxes(0, 1), 0)


def _transition_gradient(xp, alpha, continued, weights, d_emission, tags, batch, d) -> Any:
    """The gradient of the weights of starts, ends and pairs.

    `continued` are the sums over the paths that go on with a tag, that tag's own exponential among their factors.
    """
    between, count = weights[2:], weights.shape[1]
    before, after, both = alpha[:, :-1], continued[:, 1:], batch.present[:, 1:]
    totals = ((before @ between) * after).sum(2)
    shares = after * xp.where(both, d / xp.where(both, totals, 1), 0)[:, :, None]
    pairs = between * (before.reshape(-1, count).T @ shares.reshape(-1, count))
    numbers = (tags[:, :-1] * count + tags[:, 1:]).reshape(-1)
    used = added_rows(xp, pairs.reshape(-1), numbers, xp.where(both, d, 0).reshape(-1))
    at_end = _at_end(xp, d_emission, batch)
    return xp.concatenate([d_emission[:, 0].sum(0)[None], at_end.sum(0)[None], pairs - used.reshape(pairs.shape)])


def crf_decoding_by(best_path) -> Callable[..., Any]:
    """The kernel of ``crf_decoding`` by a function like `_best_path`."""

    def crf_decoding(xp, emission, transition, label, length, levels=None):
        batch = Batch(xp, emission, length, levels, "Emission")
        scores, present = batch.padded(emission), batch.present
        path = xp.zeros(present.shape, np.int64)
        if path.size:
            path = xp.where(present, best_path(xp, scores, transition, batch), 0)
        if label is not None:
            path = ((path == batch.tokens(label)) & present).astype(np.int64)
        return batch.as_given(path).reshape(-1, 1) if batch.are_rows else path

    return crf_decoding


def _best_path(xp, emission, transition, batch) -> Any:
    """The tags of the highest score, int64[batch, time]; after the end of a sequence any."""
    start, end, between = transition[0], transition[1], transition[2:]
    by_time, alive = xp.ascontiguousarray(emission.swapaxes(0, 1)), batch.present.T
    # The highest score of the paths that end in a tag, at each step.
    best = xp.empty_like(by_time)
    best[0] = start + by_time[0]
    # [tag, batch, later tag], because a maximum along the first dimension takes whole rows at once.
    scores = xp.empty((len(between), *best.shape[1:]), best.dtype)
    for step in range(1, len(best)):
        before, now = best[step - 1], best[step]
        xp.add(before.T[:, :, None], between[:, None], out=scores)
        scores.max(0, out=now)
        now += by_time[step]
        xp.copyto(now, before, where=~alive[step, :, None])
    path, back = xp.empty(alive.shape, np.int64), xp.ascontiguousarray(between.T)
    path[-1] = tag = (best[-1] + end).argmax(1)
    for step in range(len(best) - 1, 0, -1):
        tag = xp.where(alive[step], (best[step - 1] + back[tag]).argmax(1), tag)
        path[step - 1] = tag
    return path.T


kernel("crf_decoding")(crf_decoding_by(_best_path))
