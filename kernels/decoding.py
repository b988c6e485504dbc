"""Sequences from the choices of each step of a search."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.indexing import require_inside
from minigraph.kernels.registry import kernel


@kernel("gather_tree")
def gather_tree(xp, ids, parents):
    steps, _, beams = ids.shape
    require_inside(xp, parents, beams, "Parents")
    result = ids.copy()
    if steps == 0:
        return result
    # The beams of the step that is read next, for all sequences at once.
    beam = parents[-1]
    for step in range(steps - 2, -1, -1):
        result[step] = xp.take_along_axis(ids[step], beam, 1)
        beam = xp.take_along_axis(parents[step], beam, 1)
    return result


def _host(xp, x) -> Any:
    return x if xp is np else xp.asnumpy(x)


@kernel("beam_search")
def beam_search(xp, pre_ids, pre_scores, ids, scores, levels, *, level, beam_size, end_id, is_accumulated):
    sources = levels[level]
    for inner in levels[level + 1 :]:
        sources = inner[sources]
    before, score_before, given = (_host(xp, x) for x in (pre_ids.reshape(-1), pre_scores.reshape(-1), scores))
    beams, width = given.shape
    if not len(before) == len(score_before) == beams:
        raise ExecutionError(f"there are {len(before)} pre_ids and {len(score_before)} pre_scores for {beams} scores")
    if not is_accumulated:
        with np.errstate(divide="ignore"):
            given = score_before[:, None] + np.log(given)
    has_ended = before == end_id
    totals = np.where(has_ended[:, None], score_before[:, None], given)
    tokens = np.broadcast_to(np.arange(width), given.shape) if ids is None else _host(xp, ids)
    tokens = np.where(has_ended[:, None], end_id, tokens)
    # A beam that has ended has one continuation.
    is_candidate = ~has_ended[:, None] | (np.arange(width) == 0)
    rows, columns = is_candidate.nonzero()
    source = np.repeat(np.arange(len(sources) - 1), np.diff(sources))[rows]
    order = np.lexsort((columns, -rows, -totals[rows, columns], source))
    first = np.searchsorted(source[order], source[order], "left")
    chosen = order[np.arange(len(order)) - first < beam_size]
    # Sources that go on: some beam is continued that had not ended.
    goes_on = np.zeros(len(sources) - 1, bool)
    goes_on[source[chosen[~has_ended[rows[chosen]] | (tokens[rows[chosen], columns[chosen]] != end_id)]]] = True
    chosen = chosen[goes_on[source[chosen]]]
    chosen = chosen[np.argsort(rows[chosen], kind="stable")]
    row, column = rows[chosen], columns[chosen]
    inner = np.zeros(beams + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=beams), out=inner[1:])
    results = tokens[row, column][:, None], totals[row, column][:, None].astype(scores.dtype), row.astype(np.int32)
    return (*map(xp.asarray, results), [np.asarray(sources, np.int64), inner])


@kernel("beam_search_decode")
def beam_search_decode(xp, ids, scores, levels, *, beam_size, end_id):
    sources = len(levels[0][0]) - 1
    # The row of each sequence in the step that is looked at, its source, and the tokens found so far, last first.
    row, source = np.zeros(0, np.int64), np.zeros(0, np.int64)
    found: list[Any] = []
    for step in range(len(ids) - 1, -1, -1):
        beams, inner = levels[0][step], levels[1][step]
        parent = np.repeat(np.arange(len(inner) - 1), np.diff(inner))
        of_row = np.repeat(np.arange(sources), np.diff(inner[beams]))
        # Sources without sequences have ended in this step, or it is the last.
        begun = np.flatnonzero(np.bincount(source, minlength=sources)[of_row] == 0)
        row, source = np.concatenate([row, begun]), np.concatenate([source, of_row[begun]])
        token, score = (_host(xp, x[step]).reshape(-1)[row] for x in (ids, scores))
        is_new = np.arange(len(row)) >= len(row) - len(begun)
        found.append((token, score, is_new | (token != end_id)))
        row = parent[row]
    return _sentences(xp, found, source, sources, beam_size)


def _sentences(xp, found, source, sources, beam_size) -> Any:
    """Tokens and scores of all sequences one after the other, from those of each step, the last step first."""
    count, steps = len(source), len(found)
    tokens, kept = np.zeros((count, steps), np.int64), np.zeros((count, steps), bool)
    scores, last = np.zeros((count, steps), found[0][1].dtype), np.zeros(count, found[0][1].dtype)
    for back, (token, score, is_kept) in enumerate(found):
        at, known = steps - 1 - back, len(token)
        tokens[:known, at], scores[:known, at], kept[:known, at] = token, score, is_kept
        begun = len(found[back - 1][0]) if back else 0
        last[begun:known] = score[begun:]
    order = np.lexsort((np.arange(count), -last, source))
    tokens, scores, kept = tokens[order], scores[order], kept[order]
    # Each source has as many sequences as beams; missing sequences have no tokens.
    each = np.bincount(source, minlength=sources)
    place = np.arange(count) - np.repeat(np.cumsum(each) - each, each) + source[order] * beam_size
    lengths = np.zeros(sources * beam_size, np.int64)
    lengths[place] = kept.sum(1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return xp.asarray(tokens[kept]), xp.asarray(scores[kept]), [np.arange(sources + 1) * beam_size, offsets]
