"""Sums over leading dimensions, and gradients of biases of rows or channels.

Terms are added in float64, which for float32 is closer to the exact sum than adding row after row.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit import offers
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import numba_name, offer
from minigraph.types import align_shape, as_dtype

_LOOPS = Loops("sums")
_TIMES_MORE = 32
"""Minimum elements of a sum, as a multiple of that of other loops: NumPy's sum of fewer is not much slower."""


def _around(full: tuple[int, ...], aligned: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Sizes of `full` before, in and after the dimensions that `aligned` has; None if these are not neighbours."""
    kept = [i for i, (size, own) in enumerate(zip(full, aligned, strict=True)) if size == own and size > 1]
    if not kept or kept != list(range(kept[0], kept[-1] + 1)):
        return None
    first, last = kept[0], kept[-1] + 1
    return prod(full[:first]), prod(full[first:last]), prod(full[last:])


@offer("elementwise_add_grad")
def elementwise_add_grad(xp, x, y, d_out, *, axis, wanted):
    kind = numba_name(d_out.dtype)
    if kind is None or not wanted[1] or x.shape != d_out.shape or 0 in d_out.shape:
        return None
    # Without broadcasting there is no sum, and the kernel returns its argument.
    if y.dtype != d_out.dtype or x.shape == y.shape or prod(d_out.shape) < _TIMES_MORE * offers.LEAST:
        return None
    around = _around(d_out.shape, align_shape(x.shape, y.shape, axis))
    if around is None:
        return None
    before, own, behind = around
    total = "float64[::1]"
    if behind == 1:
        shape: tuple[int, ...] = (before, own)
        loop = _LOOPS.compiled("column_sums", f"void({kind}[:, ::1], {total}, {kind}[::1])")
    else:
        shape = around
        loop = _LOOPS.compiled("middle_sums", f"void({kind}[:, :, ::1], {total}, {kind}[::1])")

    def gradients(x, y, d_out, out=None):
        d_x_out, d_y_out = out or (None, None)
        d_y: Any = np.empty(y.shape, d_out.dtype) if d_y_out is None else d_y_out
        if not d_out.flags.c_contiguous or not d_y.flags.c_contiguous:
            raise TypeError("not contiguous")
        loop(d_out.reshape(shape), np.empty(own), d_y.reshape(own))
        if not wanted[0] or d_x_out is None:
            return (d_out if wanted[0] else None), d_y
        np.copyto(d_x_out, d_out)
        return d_x_out, d_y

    return gradients


@offer("reduce_sum")
def reduce_sum(xp, x, *, dim, keep_dim, reduce_all, out_dtype):
    if reduce_all or not x.shape:
        return None
    kind, axes = numba_name(x.dtype), sorted(axis % len(x.shape) for axis in dim)
    if kind is None or axes != list(range(len(axes))) or len(axes) == len(x.shape) or 0 in x.shape:
        return None
    if out_dtype not in (-1, int(as_dtype(x.dtype))) or prod(x.shape) < _TIMES_MORE * offers.LEAST:
        return None
    rows, own = prod(x.shape[: len(axes)]), x.shape[len(axes) :]
    shape, columns = ((1,) * len(axes) + own if keep_dim else own), prod(own)
    loop = _LOOPS.compiled("column_sums", f"void({kind}[:, ::1], float64[::1], {kind}[::1])")

    def add(x, out=None):
        result = np.empty(shape, x.dtype) if out is None else out
        if not x.flags.c_contiguous or not result.flags.c_contiguous:
            raise TypeError("not contiguous")
        loop(x.reshape(rows, columns), np.empty(columns), result.reshape(columns))
        return result

    return add
