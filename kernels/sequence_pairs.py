"""Operators on pairs of sequences, whose offsets are host arrays; each pair is a product of matrices."""

from __future__ import annotations

from itertools import pairwise

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import offsets_of


@kernel("match_matrix_tensor")
def match_matrix_tensor(xp, x, y, w, x_lod, y_lod, *, dim_t):
    tmp = xp.matmul(x, w.reshape(w.shape[0], -1))
    by_t = tmp.reshape(-1, dim_t, w.shape[2])
    # [t, length of A, n] times [n, length of B].
    parts = [xp.matmul(by_t[a].transpose(1, 0, 2), y[b].T).reshape(-1, 1) for a, b in _pairs(x_lod[-1], y_lod[-1])]
    out = xp.concatenate([*parts, xp.empty((0, 1), x.dtype)])
    return out, tmp.reshape(-1, 1), [offsets_of([len(part) for part in parts])]


@kernel("match_matrix_tensor_grad")
def match_matrix_tensor_grad(xp, x, y, w, tmp, d_out, x_lod, y_lod, *, dim_t):
    by_t = tmp.reshape(-1, dim_t, w.shape[2])
    d_by_t, d_y, start = xp.zeros_like(by_t), xp.zeros_like(y), 0
    for a, b in _pairs(x_lod[-1], y_lod[-1]):
        rows, columns = a.stop - a.start, b.stop - b.start
        part = d_out[start : start + dim_t * rows * columns].reshape(dim_t, rows, columns)
        start += part.size
        d_by_t[a] = xp.matmul(part, y[b]).transpose(1, 0, 2)
        d_y[b] = xp.matmul(part.transpose(0, 2, 1), by_t[a].transpose(1, 0, 2)).sum(0)
    d_tmp = d_by_t.reshape(-1, dim_t * w.shape[2])
    return xp.matmul(d_tmp, w.reshape(w.shape[0], -1).T), d_y, xp.matmul(x.T, d_tmp).reshape(w.shape)


def _pairs(x_offsets, y_offsets) -> list[tuple[slice, slice]]:
    """The rows of each sequence of X, and of that of Y at the same place."""
    if len(x_offsets) != len(y_offsets):
        raise ExecutionError(
            f"X has {len(x_offsets) - 1} sequences, but Y has {len(y_offsets) - 1}",
            hint="Feed as many sequences of Y as of X.",
        )
    return [
        (slice(*x), slice(*y)) for x, y in zip(pairwise(x_offsets.tolist()), pairwise(y_offsets.tolist()), strict=True)
    ]
