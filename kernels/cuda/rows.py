"""Rows combined with the rows of an array that have their numbers, one after the other.

Atomic operations, which CuPy's ``add.at`` uses, would combine them in another order in each run.
"""

from __future__ import annotations

import numpy as np

from minigraph.kernels.cuda.launching import BLOCK, MOST_BLOCKS, contiguous, launcher, source

_OPERATIONS = {"add": 0, "maximum": 1, "minimum": 2}
_WIDER = {np.dtype(kind): np.dtype(wide) for kind, wide in (
    ("float16", "float32"), ("bool", "int32"), ("int8", "int32"), ("uint8", "int32"), ("int16", "int32"),
)}  # fmt: skip
"""Type in which rows are combined, of those without a kernel."""


def combine_rows(xp, operation, total, numbers, rows) -> None:
    """Combine ``rows[i]`` with row ``numbers[i]`` of `total`, in place, for each i in turn.

    Parameters
    ----------
    xp : module
    operation : str
        ``"add"``, ``"maximum"`` or ``"minimum"``; the latter two keep NaN.
    total : array
        Has rows of any shape.
    numbers : array of integers, of one dimension
        One outside of the rows of `total` is left out.
    rows : array
        As many rows as numbers, of the shape of those of `total`.
    """
    if not (rows.size and total.size):
        return
    wide = _WIDER.get(total.dtype, total.dtype)
    place = contiguous(xp, total.astype(wide, copy=False))
    rows, numbers = contiguous(xp, rows.astype(wide, copy=False)), numbers.astype(np.int64, copy=False)
    launcher(xp, source("rows"))(
        f"combine_{wide.name}", min(-(-rows.size // BLOCK), MOST_BLOCKS), _OPERATIONS[operation], numbers,
        xp.argsort(numbers, kind="stable"), rows, place, len(rows), rows[0].size, len(total),
    )  # fmt: skip
    if place is not total:
        total[...] = place
