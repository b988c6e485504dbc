"""Products of batches of small matrices, for which BLAS is called once for each.

Results are within 16 units of the last place of the largest.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_worth_it, numba_name, offer, vectors
from minigraph.kernels.jit.threads import row_pieces, run_together

_LOOPS = Loops("small_products")

_FEW = 16
"""Maximum elements of a product of two matrices."""

_MANY = 16
"""Minimum products of a batch."""


def _sizes(x: Any, y: Any, transpose_x: bool, transpose_y: bool) -> tuple[int, int, int, int] | None:
    """Batch, rows of X, rows of Y and their length, for products of rows; None for others, few or large ones."""
    fits = len(x.shape) == len(y.shape) > 2 and x.shape[:-2] == y.shape[:-2] and x.shape[-1] == y.shape[-1]
    if not fits or transpose_x or not transpose_y or 0 in (*x.shape, *y.shape):
        return None
    batch, rows, others = prod(x.shape[:-2]), x.shape[-2], y.shape[-2]
    is_apt = rows * others <= _FEW and batch >= _MANY and is_worth_it(x, y)
    return (batch, rows, others, x.shape[-1]) if is_apt else None


@offer("matmul")
def matmul(xp, x, y, *, transpose_X, transpose_Y, alpha):
    sizes, kind = _sizes(x, y, transpose_X, transpose_Y), numba_name(x.dtype)
    if sizes is None or kind is None or x.dtype != y.dtype:
        return None
    batch, rows, others, width = sizes
    matrices = f"{kind}[:, :, ::1]"
    loop = _LOOPS.compiled("row_products", f"void({matrices}, {matrices}, {kind}, {matrices}, int64, int64)")
    shape, factor = (*x.shape[:-1], others), x.dtype.type(alpha)

    def multiply(x, y, out=None):
        buffer = unshared(np, out, x, y)
        result = np.empty(shape, x.dtype) if buffer is None else buffer
        x_flat, y_flat, flat = vectors(x, y, result)
        given = x_flat.reshape(batch, rows, width), y_flat.reshape(batch, others, width)
        run = partial(loop, *given, factor, flat.reshape(batch, rows, others))
        run_together([partial(run, *edges) for edges in row_pieces(batch, (rows + others) * width)])
        return deliver(np, result, out)

    return multiply


@offer("matmul_grad")
def matmul_grad(xp, x, y, d_out, *, transpose_X, transpose_Y, alpha, wanted):
    sizes, kind = _sizes(x, y, transpose_X, transpose_Y), numba_name(x.dtype)
    if sizes is None or kind is None or not x.dtype == y.dtype == d_out.dtype or not all(wanted):
        return None
    batch, rows, others, width = sizes
    matrices = f"{kind}[:, :, ::1]"
    given = ", ".join([matrices, matrices, kind, *[matrices] * 3])
    loop = _LOOPS.compiled("row_products_grad", f"void({given}, int64, int64)")
    factor = x.dtype.type(alpha)

    def gradients(x, y, d_out, out=(None, None)):
        places = [unshared(np, each, x, y, d_out) for each in out]
        made = [np.empty(a.shape, a.dtype) if place is None else place for a, place in zip((x, y), places, strict=True)]
        x_flat, y_flat, d, d_x, d_y = vectors(x, y, d_out, *made)
        of_x, of_y = (batch, rows, width), (batch, others, width)
        run = partial(
            loop, x_flat.reshape(of_x), y_flat.reshape(of_y), factor, d.reshape(batch, rows, others),
            d_x.reshape(of_x), d_y.reshape(of_y),
        )  # fmt: skip
        run_together([partial(run, *edges) for edges in row_pieces(batch, 2 * (rows + others) * width)])
        return tuple(deliver(np, each, place) for each, place in zip(made, out, strict=True))

    return gradients
