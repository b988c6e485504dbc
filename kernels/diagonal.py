"""Diagonals of matrices, and triangles on one side of them."""

from __future__ import annotations

from typing import Any

from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.types import as_dtype


@kernel("eye")
def eye(xp, *, num_rows, num_columns, dtype):
    return xp.eye(num_rows, num_rows if num_columns == -1 else num_columns, dtype=as_dtype(dtype).numpy)


@kernel("diag")
def diag(xp, diagonal):
    result = xp.zeros(diagonal.shape * 2, diagonal.dtype)
    # `einsum` gives a view of the diagonal that can be written to.
    xp.einsum("ii->i", result)[...] = diagonal
    return result


@kernel("diag_embed")
def diag_embed(xp, x, *, offset, dim1, dim2):
    size = x.shape[-1] + abs(offset)
    result = xp.zeros((*x.shape[:-1], size, size), x.dtype)
    _on_diagonal(xp, result, offset, x.shape[-1])[...] = x
    return xp.ascontiguousarray(xp.moveaxis(result, (-2, -1), (dim1, dim2)))


def _on_diagonal(xp, matrices, offset, count) -> Any:
    """The elements on a diagonal of the matrices along the last two dimensions, to be read or written."""
    rows = slice(max(-offset, 0), max(-offset, 0) + count)
    columns = slice(max(offset, 0), max(offset, 0) + count)
    return xp.einsum("...ii->...i", matrices[..., rows, columns])


def _count(matrices, offset) -> int:
    rows, columns = matrices.shape[-2:]
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


@kernel("trace")
def trace(xp, x, *, offset, dim1, dim2):
    matrices = xp.moveaxis(x, (dim1, dim2), (-2, -1))
    diagonals = _on_diagonal(xp, matrices, offset, _count(matrices, offset))
    return add_over(xp, diagonals, (diagonals.ndim - 1,)).reshape(matrices.shape[:-2] or (1,))


@kernel("trace_grad")
def trace_grad(xp, x, d_out, *, offset, dim1, dim2):
    d_x = xp.zeros(x.shape, x.dtype)
    matrices = xp.moveaxis(d_x, (dim1, dim2), (-2, -1))
    _on_diagonal(xp, matrices, offset, _count(matrices, offset))[...] = d_out.reshape(*matrices.shape[:-2], 1)
    return d_x


@kernel("tril_triu")
def tril_triu(xp, x, *, diagonal, lower, out=None):
    return deliver(xp, (xp.tril if lower else xp.triu)(x, diagonal), out)


@kernel("tril_triu_grad")
def tril_triu_grad(xp, x, d_out, *, diagonal, lower, out=None):
    return tril_triu(xp, d_out, diagonal=diagonal, lower=lower, out=out)
