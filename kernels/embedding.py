"""Look up rows of a table by number; add up their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver
from minigraph.kernels.cuda.launching import is_recording
from minigraph.kernels.indexing import added_rows, taken
from minigraph.kernels.registry import kernel


@kernel("lookup_table")
def lookup_table(xp, table, ids, *, padding_idx, out=None):
    return _rows(xp, table, ids.reshape(ids.shape[:-1]), padding_idx, out)


@kernel("lookup_table_v2")
def lookup_table_v2(xp, table, ids, *, padding_idx, out=None):
    return _rows(xp, table, ids, padding_idx, out)


def _rows(xp, table, ids, padding_idx, out) -> Any:
    is_padding = checked_padding(xp, table, ids, padding_idx)
    if is_padding is None:
        return deliver(xp, taken(xp, table, ids, out), out)
    rows = taken(xp, table, xp.where(is_padding, 0, ids))
    if xp is np:
        rows[is_padding] = 0
    else:  # CuPy would wait for the number of elements that a mask chooses
        xp.copyto(rows, rows.dtype.type(0), where=is_padding[..., None])
    return deliver(xp, rows, out)


def checked_padding(xp, table, ids, padding_idx) -> Any:
    """Mask of the padding in `ids`, None if there is none; raise for an id that is no row of `table`."""
    is_padding = None if padding_idx == -1 else ids == padding_idx
    if is_recording():
        return is_padding
    wrong = (ids < 0) | (ids >= len(table))
    if is_padding is not None:
        wrong &= ~is_padding
    if wrong.any():
        where = int(xp.flatnonzero(wrong)[0])
        raise ExecutionError(f"W has {len(table)} rows, but element {where} of Ids is {int(ids.reshape(-1)[where])}")
    return is_padding


@kernel("lookup_table_grad")
def lookup_table_grad(xp, table, ids, d_out, *, padding_idx):
    """Each row gets the sum of what flows into it, added in the order of the ids."""
    flat, rows = ids.reshape(-1), d_out.reshape(ids.size, table.shape[1])
    if padding_idx != -1:
        kept = flat != padding_idx
        if is_recording():  # a recording has fixed shapes, so that padding becomes zeros for row 0
            flat, rows = xp.where(kept, flat, 0), xp.where(kept[:, None], rows, rows.dtype.type(0))
        else:
            flat, rows = flat[kept], rows[kept]
    return added_rows(xp, table, flat, rows)


# The gradient flattens the ids, whose shape is the only difference.
kernel("lookup_table_v2_grad")(lookup_table_grad)
