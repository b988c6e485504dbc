"""What is measured about predictions."""

from __future__ import annotations

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel


@kernel("top_k")
def top_k(xp, x, size, *, k):
    """Sorted backwards and read from the end, so that equal elements stay in order and NaN comes first."""
    columns = x.shape[-1]
    if size is not None:
        k = int(size.reshape(1)[0])
        if not 1 <= k <= columns:
            raise ExecutionError(f"K must be in [1, {columns}], the size of a row, got {k}")
    if k == 1:
        indices = xp.argmax(x, axis=-1, keepdims=True)
    else:
        backwards = xp.argsort(x[..., ::-1], axis=-1, kind="stable")
        indices = columns - 1 - backwards[..., ::-1][..., :k]
    indices = indices.astype(xp.int64, copy=False)
    return xp.take_along_axis(x, indices, axis=-1), indices


@kernel("accuracy")
def accuracy(xp, values, indices, label):
    rows = len(label)
    correct = xp.sum((indices == label).any(axis=1), dtype=xp.int32).reshape(1)
    total = xp.full(1, rows, xp.int32)
    return (correct / max(rows, 1)).astype(xp.float32), correct, total


@kernel("top_k_grad")
def top_k_grad(xp, x, indices, d_out):
    k = indices.shape[-1]
    d_x = xp.zeros((x.size // x.shape[-1], x.shape[-1]) if x.size else (0, x.shape[-1]), d_out.dtype)
    d_x[xp.arange(len(d_x))[:, None], indices.reshape(-1, k)] = d_out.reshape(-1, k)
    return d_x.reshape(x.shape)
