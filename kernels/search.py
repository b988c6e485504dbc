"""Indices of extremes, and sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.kernels.registry import kernel
from minigraph.types import as_dtype


@kernel("arg_max")
def arg_max(xp, x, *, axis, keepdims, dtype):
    return _index(xp, xp.argmax, x, axis, keepdims, dtype)


@kernel("arg_min")
def arg_min(xp, x, *, axis, keepdims, dtype):
    return _index(xp, xp.argmin, x, axis, keepdims, dtype)


def _index(xp, function, x, axis, keepdims, dtype) -> Any:
    keepdims = keepdims or x.ndim == 1
    found = function(x, axis=axis, keepdims=keepdims)
    if xp is not np and x.dtype.kind == "f":  # CuPy finds any NaN, not the first one
        is_nan = xp.isnan(x)
        found = xp.where(is_nan.any(axis, keepdims=keepdims), xp.argmax(is_nan, axis=axis, keepdims=keepdims), found)
    return found.astype("int64" if dtype == -1 else as_dtype(dtype).numpy, copy=False)


@kernel("argsort")
def argsort(xp, x, *, axis, descending):
    """Descending is sorted backwards and read from the end, so that equal elements stay in order."""
    if descending:
        backwards = xp.argsort(xp.flip(x, axis), axis=axis, kind="stable")
        indices = xp.ascontiguousarray(x.shape[axis] - 1 - xp.flip(backwards, axis))
    else:
        indices = xp.argsort(x, axis=axis, kind="stable")
    indices = indices.astype(xp.int64, copy=False)
    return xp.take_along_axis(x, indices, axis=axis), indices


@kernel("argsort_grad")
def argsort_grad(xp, x, indices, d_out, *, axis):
    last = xp.moveaxis(indices, axis, -1)
    rows = math.prod(last.shape[:-1])
    d_x = xp.zeros((rows, last.shape[-1]), d_out.dtype)
    d_x[xp.arange(rows)[:, None], last.reshape(d_x.shape)] = xp.moveaxis(d_out, axis, -1).reshape(d_x.shape)
    return xp.ascontiguousarray(xp.moveaxis(d_x.reshape(last.shape), -1, axis))
