"""Sequences of different lengths, longest first, and the arrays of their steps.

A table, int64[sequences, 2], holds the number and the length of each sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import (
    TimeSteps,
    chosen,
    copied,
    lengths_of,
    offsets_of,
    ranges,
    rank_of,
    slices_of,
)


@kernel("lod_rank_table")
def lod_rank_table(xp, x, x_lod, *, level):
    lengths = lengths_of(x_lod[level])
    ranked = rank_of(lengths)
    table = xp.asarray(np.stack([ranked, lengths[ranked]], 1))
    return (table, copied(x_lod[:level])) if level else table


@kernel("max_sequence_len")
def max_sequence_len(xp, table):
    return table[:1, 1].copy() if len(table) else xp.zeros(1, np.int64)


def on_host(table) -> np.ndarray:
    """A NumPy array as it is, an array of a GPU as a copy."""
    return table.get() if hasattr(table, "get") else table


def _outer_offsets(table) -> np.ndarray:
    """The offsets of the sequences of a table, in their own order."""
    found = on_host(table)
    lengths = np.empty(len(found), np.int64)
    lengths[found[:, 0]] = found[:, 1]
    return offsets_of(lengths)


class _Elements:
    """The elements of sequences in the order of steps: rows, or sequences of the level `inner`."""

    def __init__(self, offsets, inner) -> None:
        steps = TimeSteps.of(offsets)
        self.rows, self.starts = steps.rows, steps.starts
        self.levels: list[np.ndarray] = []
        """For each step the offsets of its sequences."""
        if inner is not None:
            lengths = lengths_of(inner)[steps.rows]
            self.rows = ranges(inner[steps.rows], lengths)
            self.levels = [offsets_of(lengths[step]) for step in steps.slices()]
            self.starts = offsets_of(lengths)[steps.starts]

    def together(self, xp, array) -> Any:
        """The rows of the sequences, from an array with those of each step."""
        steps = len(self.starts) - 1
        elements = array[:steps]
        if len(elements) < steps or any(each is None for each in elements) or not elements:
            raise ExecutionError(
                f"the array must hold an element for each of {steps} steps",
                hint="Write to it in each step.",
            )
        joined = xp.concatenate(elements)
        result = xp.empty_like(joined)
        result[xp.asarray(self.rows)] = joined
        return result


@kernel("lod_tensor_to_array")
def lod_tensor_to_array(xp, x, table, like, x_lod, table_lod, like_lod):
    levels = (x_lod or like_lod or [])[len(table_lod or []) :]
    elements = _Elements(_outer_offsets(table), levels[-1] if len(levels) > 1 else None)
    rows = x[xp.asarray(elements.rows)]
    array = [rows[step].copy() for step in slices_of(elements.starts)]
    return (array, [elements.levels]) if len(levels) > 1 else array


@kernel("array_to_lod_tensor")
def array_to_lod_tensor(xp, array, table, like, x_lod, table_lod, like_lod):
    outer, above = _outer_offsets(table), table_lod or []
    own = like_lod or [*above, outer, *([_inner_offsets(outer, x_lod[0])] if x_lod else [])]
    levels = copied(own)
    inner = levels[len(above) + 1 :]
    return _Elements(outer, inner[-1] if inner else None).together(xp, array), levels


def _inner_offsets(outer, of_steps) -> np.ndarray:
    """The offsets of the inner sequences, from those of each step."""
    return offsets_of(TimeSteps.of(outer).back(np.concatenate([lengths_of(level) for level in of_steps])))


def _alive(table, i) -> int:
    """The number of sequences that have a step `i`."""
    return int(np.count_nonzero(on_host(table)[:, 1] > int(i.item())))


@kernel("shrink_rnn_memory", view="x")
def shrink_rnn_memory(xp, x, table, i, x_lod=None):
    count = _alive(table, i)
    if not x_lod:
        return x[:count]
    levels = []
    for level in x_lod:
        levels.append(level[: count + 1].copy())
        count = int(level[count])
    return x[:count], levels


@kernel("shrink_rnn_memory_grad")
def shrink_rnn_memory_grad(xp, x, d_out, x_lod=None):
    d_x = xp.zeros_like(x)
    d_x[: len(d_out)] = d_out
    return d_x


@kernel("reorder_lod_tensor_by_rank")
def reorder_lod_tensor_by_rank(xp, x, table, x_lod=None):
    rows, levels = _reordering(table, x, x_lod)
    out = x[xp.asarray(rows)]
    return (out, levels) if x_lod else out


@kernel("reorder_lod_tensor_by_rank_grad")
def reorder_lod_tensor_by_rank_grad(xp, x, table, d_out, x_lod=None):
    rows, _ = _reordering(table, x, x_lod)
    d_x = xp.empty_like(x)
    d_x[xp.asarray(rows)] = d_out
    return d_x


def _reordering(table, x, x_lod) -> tuple[np.ndarray, list[Any]]:
    """The rows of the sequences in the order of a table, and the levels of the result."""
    which = on_host(table)[:, 0]
    count = len(x_lod[0]) - 1 if x_lod else len(x)
    if len(which) != count:
        raise ExecutionError(
            f"the rank table has {len(which)} sequences, but X has {count}",
            hint="Reorder by the table of a variable that has as many sequences.",
        )
    return chosen(which, x_lod or ())
