"""Scores of predicted sequences, for all of a batch at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.batches import Batch
from minigraph.kernels.rank_table import on_host
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import alive_at, rank_of

_TAGS = {"IOB": (2, 0, -1, -1), "IOE": (2, -1, 1, -1), "IOBES": (4, 0, 2, 3), "plain": (1, -1, -1, -1)}
"""Number of tags in each scheme, and which are begin, end and single; -1 where it has none."""


@kernel("chunk_eval")
def chunk_eval(xp, inference, label, length, levels=None, *, num_chunk_types, chunk_scheme, excluded_chunk_types):
    batch = Batch(xp, label, length, levels, "Label")
    # One step more, after the end of each sequence, is no chunk.
    present = xp.pad(batch.present, ((0, 0), (0, 1)))
    found, right = (
        _chunks(xp, xp.pad(batch.tokens(x), ((0, 0), (0, 1))), present, num_chunk_types, chunk_scheme)
        for x in (inference, label)
    )
    found_count, right_count = (_counted(xp, each[0], excluded_chunk_types).sum() for each in (found, right))
    same = (found[0] == right[0]) & (found[1] == right[1])
    both = (same & _counted(xp, found[0], excluded_chunk_types)).sum()
    return _shares(xp, found_count, right_count, both)


def _chunks(xp, tokens, present, none, scheme) -> tuple[Any, Any]:
    """The type of the chunk that begins at each step, -1 if none does, and the step after the end of the chunk."""
    count, begin, end, single = _TAGS[scheme]
    tag = tokens % count
    kind = xp.where(present, tokens // count, none)
    tag_before, kind_before = xp.roll(tag, 1, 1), xp.roll(kind, 1, 1)
    kind_before[:, 0] = none
    in_chunk, was_in_chunk = kind != none, kind_before != none
    # The tags by which one chunk of a type ends and another begins. A scheme that lacks a tag has -1 for it.
    breaks = _is(tag, begin) | _is(tag, single) | _is(tag_before, end) | _is(tag_before, single)
    changes = ~was_in_chunk | (kind != kind_before) | breaks
    begins = in_chunk & changes
    ends = was_in_chunk & changes
    steps = xp.arange(tokens.shape[1])
    # The first end after each step, found from the last step to the first.
    after = xp.where(ends, steps, tokens.shape[1])[:, ::-1]
    behind = np.minimum.accumulate(on_host(after), axis=1)[:, ::-1]
    following = xp.roll(xp.asarray(behind), -1, 1)
    return xp.where(begins, kind, -1), xp.where(begins, following, 0)


def _is(tag, wanted) -> Any:
    return tag == wanted if wanted >= 0 else np.False_


def _counted(xp, kinds, excluded) -> Any:
    return (kinds >= 0) & ~xp.isin(kinds, xp.asarray(excluded, kinds.dtype))


def _shares(xp, found, there, right) -> tuple[Any, ...]:
    """Precision, recall and F1, and the three counts."""
    precision, recall = (float(right) / float(total) if total else 0.0 for total in (found, there))
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    shares = (xp.array([each], np.float32) for each in (precision, recall, f1))
    return (*shares, *(xp.asarray(each).reshape(1).astype(np.int64) for each in (found, there, right)))


def edit_distance_by(distances) -> Callable[..., Any]:
    """The kernel of ``edit_distance`` by a function of padded tokens and lengths on the host."""

    def edit_distance(xp, hyps, refs, hyps_length, refs_length, hyps_levels=None, refs_levels=None, *, normalized):
        given = Batch(xp, hyps, hyps_length, hyps_levels, "Hyps"), Batch(xp, refs, refs_length, refs_levels, "Refs")
        tokens = (on_host(batch.tokens(each)) for batch, each in zip(given, (hyps, refs), strict=True))
        counts = [on_host(batch.present).sum(1) for batch in given]
        if len(counts[0]) != len(counts[1]):
            raise ExecutionError(f"Hyps has {len(counts[0])} sequences, Refs {len(counts[1])}")
        found = distances(*tokens, *counts).astype(np.float32)
        if normalized:
            if (counts[1] == 0).any():
                empty = int((counts[1] == 0).argmax())
                raise ExecutionError(
                    f"sequence {empty} of Refs is empty", hint="Leave it out, or set normalized to False."
                )  # fmt: skip
            found /= counts[1].astype(np.float32)
        return xp.array([len(found)], np.int64), xp.asarray(found[:, None])

    return edit_distance


def _distances(a, b, a_counts, b_counts) -> Any:
    """Distances of pairs of sequences, int64[batch].

    ``row[j]`` is the distance of the tokens of one so far and the first j of the other, less j: so one more token of
    the latter costs nothing, and an accumulated minimum adds any number of them. All pairs advance together, those with
    the longest `a` first, so that the ones that still go on are neighbours.
    """
    ranked = rank_of(a_counts)
    alive = alive_at(a_counts, a.shape[1])
    a, b = a[ranked].T, np.ascontiguousarray(b[ranked].T)
    table = np.zeros((len(b) + 1, len(ranked)), np.int64)
    for token, count in zip(a, alive.tolist(), strict=True):
        row = table[:, :count]
        replaced = row[:-1] - (token[:count] == b[:, :count])
        row += 1
        np.minimum(row[1:], replaced, out=row[1:])
        np.minimum.accumulate(row, axis=0, out=row)
    result = np.empty(len(ranked), np.int64)
    result[ranked] = table[b_counts[ranked], np.arange(len(ranked))] + b_counts[ranked]
    return result


kernel("edit_distance")(edit_distance_by(_distances))
