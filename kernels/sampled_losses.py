"""Losses of many classes that compute the scores of some only. float16 is computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.activation import log_of_one_plus_exp, logistic
from minigraph.kernels.indexing import added_rows, require_inside
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.tensor import shape_only
from minigraph.kernels.upcast import narrow, widen

_UNIFORM, _LOG_UNIFORM, _ = range(3)

_MOST_SCORE = 40.0
"""Maximum size of a score in ``hierarchical_sigmoid``, as in fluid."""

_HIT = 1e20
"""Subtracted from the score of a sample that is a class of the row; maximum size of scores."""


def _scores(xp, x, weight, bias, nodes) -> Any:
    """``x[i] @ weight[nodes[i, j]] + bias``."""
    require_inside(xp, nodes, len(weight), "the number of a row of the weight")
    found = xp.matmul(widen(weight)[nodes], widen(x)[:, :, None])[:, :, 0]
    return found if bias is None else found + widen(bias).reshape(-1)[nodes]


def _gradients(xp, x, weight, bias, nodes, d, wanted) -> tuple[Any, Any, Any]:
    """The gradients of `_scores` by `x`, `weight` and `bias`."""
    d_x = d_weight = d_bias = None
    flat = nodes.reshape(-1)
    if wanted[0]:
        d_x = narrow(xp, xp.matmul(d[:, None, :], widen(weight)[nodes])[:, 0], x.dtype)
    if wanted[1]:
        parts = (d[:, :, None] * widen(x)[:, None, :]).reshape(flat.size, x.shape[1])
        d_weight = added_rows(xp, weight, flat, parts)
    if bias is not None and wanted[2]:
        d_bias = added_rows(xp, bias, flat, d.reshape(flat.size, 1))
    return d_x, d_weight, d_bias


# Noise contrastive estimation


@kernel("nce")
def nce(
    xp, x, label, weight, bias, sample_weight, probabilities, alias, alias_probabilities,
    *, num_total_classes, num_neg_samples, sampler, seed, custom_neg_classes, rng=None,
):  # fmt: skip
    require_inside(xp, label, len(weight), "Label")
    if custom_neg_classes:
        samples = xp.broadcast_to(xp.asarray(custom_neg_classes), (len(x), num_neg_samples))
    else:
        generator = xp.random.default_rng(seed % 2**32) if seed else rng
        samples = _drawn(
            xp, generator, (len(x), num_neg_samples), num_total_classes, sampler, alias, alias_probabilities
        )
    classes = xp.concatenate([label, samples], axis=1).astype(np.int64)
    chances = logistic(xp, _scores(xp, x, weight, bias, classes))
    noise = _noise(xp, classes, chances.dtype, num_total_classes, num_neg_samples, sampler, probabilities)
    count = label.shape[1]
    cost = xp.log((chances + noise) / noise)
    cost[:, :count] = xp.log((chances + noise)[:, :count] / chances[:, :count])
    cost = add_over(xp, cost, (1,), keepdims=True)
    if sample_weight is not None:
        cost *= widen(sample_weight).reshape(-1, 1)
    return narrow(xp, cost, x.dtype), narrow(xp, chances, x.dtype), classes


@kernel("nce_grad")
def nce_grad(
    xp, x, label, weight, bias, sample_weight, probabilities, chances, classes, d_cost,
    *, num_total_classes, num_neg_samples, sampler, wanted,
):  # fmt: skip
    o = widen(chances)
    noise = _noise(xp, classes, o.dtype, num_total_classes, num_neg_samples, sampler, probabilities)
    count = label.shape[1]
    d = o * (1 - o) / (o + noise)
    d[:, :count] = (noise * (o - 1) / (o + noise))[:, :count]
    d *= widen(d_cost)
    if sample_weight is not None:
        d *= widen(sample_weight).reshape(-1, 1)
    return _gradients(xp, x, weight, bias, classes, d, wanted)


def _drawn(xp, generator, shape, classes, sampler, alias, alias_probabilities) -> Any:
    """Classes drawn at random."""
    if sampler == _UNIFORM:
        return generator.integers(0, classes, shape)
    if sampler == _LOG_UNIFORM:
        return xp.minimum(xp.exp(generator.random(shape) * np.log(classes)).astype(np.int64) - 1, classes - 1)
    found = generator.integers(0, classes, shape)
    return xp.where(generator.random(shape) < alias_probabilities[found], found, alias[found])


def _noise(xp, classes, dtype, count, samples, sampler, probabilities) -> Any:
    """The number of times that each class is expected among the samples."""
    if sampler == _UNIFORM:
        return xp.full(classes.shape, samples / count, dtype)
    if sampler == _LOG_UNIFORM:
        return (_log_uniform(xp, classes, count) * samples).astype(dtype)
    return (probabilities[classes] * samples).astype(dtype)


def _log_uniform(xp, classes, count) -> Any:
    return xp.log((classes + 2.0) / (classes + 1.0)) / np.log(count)


# A tree


@kernel("hierarchical_sigmoid")
def hierarchical_sigmoid(xp, x, weight, label, path_table, path_code, bias, *, num_classes, wanted):
    nodes, sides, inside = _paths(xp, label, path_table, path_code, num_classes)
    scores = _scores(xp, x, weight, bias, nodes).clip(-_MOST_SCORE, _MOST_SCORE) * inside
    losses = log_of_one_plus_exp(xp, scores)
    total = add_over(xp, losses - sides * scores, (1,), keepdims=True)
    # Programs of fluid name the weight as an output, too.
    return narrow(xp, total, x.dtype), narrow(xp, losses, x.dtype), weight.copy() if wanted[2] else None


@kernel("hierarchical_sigmoid_grad")
def hierarchical_sigmoid_grad(
    xp, x, weight, label, path_table, path_code, bias, losses, d_out, *, num_classes, wanted
):  # fmt: skip
    nodes, sides, inside = _paths(xp, label, path_table, path_code, num_classes)
    d = (-xp.expm1(-widen(losses)) - sides) * inside * widen(d_out)
    return _gradients(xp, x, weight, bias, nodes, d.astype(widen(x).dtype), wanted)


def _paths(xp, label, path_table, path_code, num_classes) -> tuple[Any, Any, Any]:
    """Nodes of the path of each row, the sides taken there, and where the path has not ended."""
    if path_table is not None:
        inside = xp.cumsum(path_table < 0, axis=1) == 0
        nodes = xp.where(inside, path_table, 0)
        return nodes, inside & (path_code > 0), inside
    require_inside(xp, label, num_classes, "Label")
    # A leaf is the number of its class plus that of the classes; half of a number is its parent, and the root is 1.
    code, bits = label.astype(np.int64) + num_classes, xp.arange((num_classes - 1).bit_length())
    above = code >> (bits + 1)
    inside = above > 0
    return xp.where(inside, above - 1, 0), inside & ((code >> bits) & 1 > 0), inside


# Softmax over samples


@kernel("sample_logits")
def sample_logits(
    xp, logits, labels, customized, customized_probabilities,
    *, use_customized_samples, remove_accidental_hits, num_samples, seed, rng=None,
):  # fmt: skip
    count, classes = labels.shape[1], logits.shape[1]
    require_inside(xp, labels, classes, "Labels")
    if use_customized_samples:
        samples, probabilities = customized.astype(np.int64), customized_probabilities.astype(logits.dtype)
        require_inside(xp, samples, classes, "CustomizedSamples")
    else:
        generator = np.random.default_rng(seed % 2**32) if seed else rng
        drawn, tries = _distinct(generator, num_samples, classes)
        drawn = xp.broadcast_to(xp.asarray(drawn), (len(labels), num_samples))
        samples = xp.concatenate([labels, drawn], axis=1).astype(np.int64)
        chances = xp.log((samples + 2.0) / (samples + 1.0)) / np.log(classes + 1)
        # The chance of being among so many distinct samples.
        chances = chances * num_samples if tries == num_samples else -xp.expm1(tries * xp.log1p(-chances))
        probabilities = chances.astype(logits.dtype)
    wide = xp.take_along_axis(widen(logits), samples, axis=1)
    if remove_accidental_hits:
        hits = (samples[:, count:, None] == labels[:, None, :]).any(axis=2)
        wide[:, count:] -= (hits * _HIT).astype(wide.dtype)
    wide = xp.clip(wide - xp.clip(xp.log(widen(probabilities)), -_HIT, _HIT), -_HIT, _HIT)
    places = xp.broadcast_to(xp.arange(count), labels.shape).copy()
    return (
        samples, probabilities, shape_only(xp, logits), shape_only(xp, labels), narrow(xp, wide, logits.dtype), places,
    )  # fmt: skip


def _distinct(generator, count, classes) -> tuple[np.ndarray, int]:
    """Draw `count` distinct classes, log-uniform; returns them and the number of draws that it took."""
    if count > classes:
        raise ExecutionError(f"num_samples must be at most the number of classes, {classes}, got {count}")
    found: dict[int, None] = {}
    tries = 0
    while len(found) < count:
        draws = np.exp(np.asarray(generator.random(count).tolist()) * np.log(classes + 1)).astype(np.int64) - 1
        for value in (draws % classes).tolist():
            tries += 1
            found.setdefault(value)
            if len(found) == count:
                break
    return np.array(list(found)), tries


@kernel("sample_logits_grad")
def sample_logits_grad(xp, samples, dims, d_out):
    count, classes = dims.shape[1:]
    places = xp.arange(count)[:, None] * classes + samples
    d_logits = added_rows(xp, xp.empty(count * classes, d_out.dtype), places.reshape(-1), d_out.reshape(-1))
    return d_logits.reshape(count, classes)
