"""Pick along one dimension, add at indices, and move elements around."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.indexing import added_rows, flat_rows, require_inside
from minigraph.kernels.registry import kernel
from minigraph.types import as_dtype


@kernel("index_select")
def index_select(xp, x, index, *, dim):
    require_inside(xp, index, x.shape[dim], "Index")
    return xp.take(x, index, axis=dim)


@kernel("index_select_grad")
def index_select_grad(xp, x, index, d_out, *, dim):
    rows = added_rows(xp, xp.moveaxis(x, dim, 0), index, xp.moveaxis(d_out, dim, 0))
    return xp.ascontiguousarray(xp.moveaxis(rows, 0, dim))


@kernel("index_sample")
def index_sample(xp, x, index):
    require_inside(xp, index, x.shape[1], "Index")
    return xp.take_along_axis(x, index, axis=1)


@kernel("index_sample_grad")
def index_sample_grad(xp, x, index, d_out):
    rows, columns = x.shape
    # As indices into a vector, which `added_rows` adds at in the order of the elements.
    places = xp.arange(rows)[:, None] * columns + index
    return added_rows(xp, x.reshape(rows * columns), places.reshape(-1), d_out.reshape(-1)).reshape(x.shape)


@kernel("multiplex")
def multiplex(xp, ids, xs):
    numbers = ids.reshape(-1)
    require_inside(xp, numbers, len(xs), "Ids")
    result = xs[0].copy()
    # One masked copy for each tensor: a row comes from the tensor that its id names.
    for i, x in enumerate(xs):
        xp.copyto(result, x, where=_rows(numbers == i, x))
    return result


@kernel("multiplex_grad")
def multiplex_grad(xp, ids, xs, d_out, *, wanted):
    numbers, zero = ids.reshape(-1), d_out.dtype.type(0)
    return [
        xp.where(_rows(numbers == i, d_out), d_out, zero) if is_wanted else None
        for i, is_wanted in enumerate(wanted[0])
    ]


def _rows(flags, x) -> Any:
    """A flag for each row in a shape that lies over `x`."""
    return flags.reshape(-1, *(1,) * (x.ndim - 1))


@kernel("scatter_nd_add")
def scatter_nd_add(xp, x, index, updates):
    rows, numbers = flat_rows(xp, x, index)
    # An index may occur several times: each update counts, where an assignment would keep the last one.
    return (rows + added_rows(xp, rows, numbers, updates.reshape(len(numbers), rows.shape[1]))).reshape(x.shape)


@kernel("scatter_nd_add_grad")
def scatter_nd_add_grad(xp, index, updates, d_out, *, wanted):
    rows, numbers = flat_rows(xp, d_out, index)
    return d_out.copy() if wanted[0] else None, rows[numbers].reshape(updates.shape) if wanted[1] else None


@kernel("flip", view="x")
def flip(xp, x, *, dims):
    return xp.flip(x, tuple(dims)) if dims else x


@kernel("roll")
def roll(xp, x, *, shifts, dims):
    return xp.roll(x, tuple(shifts), tuple(dims)) if dims else x.copy()


@kernel("roll_grad")
def roll_grad(xp, x, d_out, *, shifts, dims):
    return roll(xp, d_out, shifts=[-shift for shift in shifts], dims=dims)


@kernel("unique")
def unique(xp, x, *, dtype):
    return _distinct(xp, x, dtype)[:2]


@kernel("unique_with_counts")
def unique_with_counts(xp, x, *, dtype):
    return _distinct(xp, x, dtype)


def _distinct(xp, x, dtype) -> tuple[Any, Any, Any]:
    """Distinct values in the order of their first occurrence; `unique` sorts them."""
    values, first, index, counts = xp.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = xp.argsort(first)
    # The inverse permutation, from places among sorted values to places by first occurrence.
    rank = xp.empty(len(order), np.int64)
    rank[order] = xp.arange(len(order))
    element = as_dtype(dtype).numpy
    return values[order], rank[index.reshape(-1)].astype(element), counts[order].astype(element)
