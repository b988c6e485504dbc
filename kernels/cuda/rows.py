"""Rows combined with the rows of an array that have their numbers, in the same order in each run.

Atomic operations, which CuPy's ``add.at`` uses, would combine them in another order in each run.
"""

from __future__ import annotations

import numpy as np

from minigraph.kernels.cuda.launching import BLOCK, MOST_BLOCKS, contiguous, launcher, source

_RUN = 64
"""Maximum rows of one number that a thread combines."""

_OPERATIONS = {"add": 0, "maximum": 1, "minimum": 2}
_WIDER = {np.dtype(kind): np.dtype(wide) for kind, wide in (
    ("float16", "float32"), ("bool", "int32"), ("int8", "int32"), ("uint8", "int32"), ("int16", "int32"),
)}  # fmt: skip
"""Type in which rows are combined, of those without a kernel."""


def text() -> str:
    """The source of the kernels."""
    return f"#define RUN {_RUN}\n{source('rows')}"


def combine_rows(xp, operation, total, numbers, rows) -> None:
    """Combine ``rows[i]`` with row ``numbers[i]`` of `total`, in place, in an order that depends on `numbers` alone.

    Up to 64 rows of one number are combined in their order.

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
    rows = contiguous(xp, rows.astype(wide, copy=False))
    numbers = contiguous(xp, numbers.astype(np.int64, copy=False))
    launch, count = launcher(xp, text()), len(rows)
    order = xp.argsort(numbers, kind="stable")
    # The values are not looked at, so that there are as many launches as if all rows had one number.
    partial, step = xp.empty(rows.shape if count > _RUN else 0, wide), 1
    while step < count or step == 1:
        launch(
            f"combine_{wide.name}", min(-(-rows.size // BLOCK), MOST_BLOCKS), _OPERATIONS[operation], numbers, order,
            rows, partial, place, count, rows[0].size, len(total), step, int(step * _RUN >= count),
        )  # fmt: skip
        step *= _RUN
    if place is not total:
        total[...] = place
