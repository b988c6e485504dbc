"""Choose among values; the value of a block that did not run is None."""

from __future__ import annotations

import numpy as np

from minigraph.errors import OpError
from minigraph.kernels.rank_table import on_host
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import chosen, copied, joined


@kernel("rnn_memory_helper", view="x")
def rnn_memory_helper(xp, x, *, dtype):
    return x


@kernel("rnn_memory_helper_grad", view="d_out")
def rnn_memory_helper_grad(xp, x, out, d_out, *, dtype):
    return d_out


@kernel("select_input")
def select_input(xp, x, mask):
    return x[_choice(mask, len(x))].copy()


@kernel("select_output")
def select_output(xp, x, mask, *, wanted):
    (flags,) = wanted
    results = [None] * len(flags)
    results[_choice(mask, len(flags))] = x.copy()
    return results


@kernel("split_lod_tensor")
def split_lod_tensor(xp, x, mask, like, x_lod=None, like_lod=None, *, level):
    holds, levels = mask.reshape(-1), (x_lod or like_lod or [])[level:]
    if not levels:
        return x[holds], x[~holds]
    return tuple(x[xp.asarray(rows)] for rows in _rows_of_both(holds, levels))


@kernel("merge_lod_tensor")
def merge_lod_tensor(xp, x, mask, in_true, in_false, x_lod=None, true_lod=None, false_lod=None, *, level):
    holds, levels = mask.reshape(-1), None
    parts = [holds, ~holds]
    if true_lod and false_lod and len(true_lod) == len(false_lod):
        parts, levels = _places(on_host(holds), true_lod, false_lod)
    elif x_lod:
        parts, levels = _rows_of_both(holds, x_lod), x_lod
    # A branch without rows has not run, and its result is None.
    given = [(where, part) for where, part in zip(parts, (in_true, in_false), strict=True) if part is not None]
    if not given:
        raise OpError("neither branch has run, because there are no rows")
    rows = holds.size if levels is None else int(levels[-1][-1])
    merged = xp.empty((rows, *given[0][1].shape[1:]), given[0][1].dtype)
    for where, part in given:
        merged[xp.asarray(where)] = part
    return merged if levels is None else (merged, copied(levels))


def _rows_of_both(holds, levels) -> list[np.ndarray]:
    """The rows of the sequences for which a mask holds, and of the others."""
    mask = on_host(holds)
    return [chosen(np.flatnonzero(part), levels)[0] for part in (mask, ~mask)]


def _places(mask, true_levels, false_levels) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Merge the levels of both branches, None for one that has not run; return places of rows, and levels."""
    nothing = np.zeros(1, np.int64)
    both = [[nothing if level is None else level for level in levels] for levels in (true_levels, false_levels)]
    order = np.empty(mask.size, np.int64)
    order[mask] = np.arange(np.count_nonzero(mask))
    order[~mask] = np.arange(np.count_nonzero(mask), mask.size)
    rows, levels = chosen(order, [joined(parts) for parts in zip(*both, strict=True)])
    places = np.empty_like(rows)
    places[rows] = np.arange(len(rows))
    return np.split(places, [int(both[0][-1][-1])]), levels


def _choice(mask, count: int) -> int:
    chosen = int(mask.item())
    if not 0 <= chosen < count:
        raise OpError(f"Mask chooses {chosen}, there are {count} to choose from")
    return chosen
