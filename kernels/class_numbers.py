"""Numbers of classes: in shards, by hash, and compared with the right ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.indexing import require_inside
from minigraph.kernels.registry import kernel


@kernel("shard_index")
def shard_index(xp, x, *, index_num, nshards, shard_id, ignore_value):
    require_inside(xp, x, index_num, "X")
    size = -(-index_num // nshards)
    return xp.where(x // size == shard_id, x % size, x.dtype.type(ignore_value))


@kernel("mean_iou")
def mean_iou(xp, predictions, labels, wrongs, corrects, ious, *, num_classes):
    for what, numbers in (("Predictions", predictions), ("Labels", labels)):
        require_inside(xp, numbers, num_classes, what)
    predicted, meant = predictions.reshape(-1), labels.reshape(-1)
    same = predicted == meant
    correct = _counts(xp, predicted[same], num_classes)
    wrong = _counts(xp, xp.concatenate([predicted[~same], meant[~same]]), num_classes)
    for total, more in ((wrong, wrongs), (correct, corrects)):
        for each in more or ():
            total += each
    both = wrong + correct
    mean = xp.asarray((correct / xp.maximum(both, 1)).sum() / xp.maximum((both > 0).sum(), 1)).reshape(1)
    for each in ious or ():
        mean = mean + each
    return mean.astype(np.float32), wrong, correct


def _counts(xp, numbers, classes) -> Any:
    return xp.bincount(numbers.astype(np.int64), minlength=classes).astype(np.int32)


@kernel("precision_recall")
def precision_recall(xp, max_probs, indices, labels, weights, states, *, class_number):
    for what, numbers in (("Indices", indices), ("Labels", labels)):
        require_inside(xp, numbers, class_number, what)
    predicted, meant = indices.reshape(-1), labels.reshape(-1)
    each = xp.ones(len(meant)) if weights is None else weights.reshape(-1).astype(np.float64)

    def sums(numbers, kept) -> Any:
        return xp.bincount(numbers[kept].astype(np.int64), weights=each[kept], minlength=class_number)

    same = predicted == meant
    hits, false_positives, false_negatives = sums(meant, same), sums(predicted, ~same), sums(meant, ~same)
    rejected = each.sum() - hits - false_positives - false_negatives
    counted = xp.stack([hits, false_positives, rejected, false_negatives], axis=1)
    total = counted if states is None else counted + states
    results = _scores(xp, counted), _scores(xp, total), total
    return tuple(each.astype(max_probs.dtype) for each in results)


def _scores(xp, counted) -> Any:
    """Precision, recall and F1: of the means over the classes, and of the sums."""
    of_all = xp.concatenate([counted, counted.sum(0, keepdims=True)])
    hits, false_positives, _, false_negatives = of_all.T
    shares = []
    for others in (false_positives, false_negatives):
        is_any = (hits > 0) | (others > 0)
        shares.append(xp.where(is_any, hits / xp.where(is_any, hits + others, 1), 1))
    precision, recall = (xp.stack([share[:-1].mean(), share[-1]]) for share in shares)
    is_any = (precision > 0) | (recall > 0)
    f1 = xp.where(is_any, 2 * precision * recall / xp.where(is_any, precision + recall, 1), 0)
    return xp.stack([precision, recall, f1], axis=1).reshape(-1)


# XXH64, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md

_PRIMES = [np.uint64(p) for p in (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)]  # fmt: skip


@kernel("hash")
def hash_(xp, x, *, num_hash, mod_by):
    rows = xp.ascontiguousarray(x)
    found = [_xxh64(xp, rows, seed) % np.uint64(mod_by) for seed in range(num_hash)]
    return xp.stack(found, axis=1)[:, :, None].astype(x.dtype)


def _xxh64(xp, rows, seed) -> Any:
    """XXH64 of the bytes of each row of integers."""
    size = rows.shape[1] * rows.itemsize
    words = rows.view(np.uint32).reshape(len(rows), size // 4).astype(np.uint64)
    first, second, third, fourth, fifth = _PRIMES
    start = xp.full(len(rows), seed, np.uint64)
    longs = words[:, 0 : size // 8 * 2 : 2] | words[:, 1 : size // 8 * 2 : 2] << np.uint64(32)
    stripes = longs.shape[1] // 4 if size >= 32 else 0
    if stripes:
        lanes = [start + first + second, start + second, start, start - first]
        for i in range(stripes):
            lanes = [_round(lane, longs[:, 4 * i + j]) for j, lane in enumerate(lanes)]
        total = _turned(lanes[0], 1) + _turned(lanes[1], 7) + _turned(lanes[2], 12) + _turned(lanes[3], 18)
        for lane in lanes:
            total = (total ^ _round(xp.zeros_like(total), lane)) * first + fourth
    else:
        total = start + fifth
    total = total + np.uint64(size)
    for i in range(4 * stripes, longs.shape[1]):
        total = _turned(total ^ _round(xp.zeros_like(total), longs[:, i]), 27) * first + fourth
    if size % 8:
        total = _turned(total ^ words[:, -1] * first, 23) * second + third
    for shift, prime in ((33, second), (29, third)):
        total = (total ^ total >> np.uint64(shift)) * prime
    return total ^ total >> np.uint64(32)


def _round(lane, word) -> Any:
    return _turned(lane + word * _PRIMES[1], 31) * _PRIMES[0]


def _turned(x, bits) -> Any:
    return x << np.uint64(bits) | x >> np.uint64(64 - bits)
