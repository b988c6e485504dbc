"""Ranges, grids, and masks of lengths."""

from __future__ import annotations

import math

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.tensor import number_in
from minigraph.types import as_dtype


@kernel("range")
def range_(xp, start, end, step):
    first, last, by = (number_in(each) for each in (start, end, step))
    if by == 0 or (last - first) * by < 0:
        raise ExecutionError(f"Step {by} does not lead from {first} to {last}")
    count = -((first - last) // by) if start.dtype.kind in "iu" else math.ceil(abs((last - first) / by))
    # A product for each element: adding the step again and again would add up its rounding.
    steps = xp.arange(count).astype(start.dtype)
    return start.reshape(()) + steps * step.reshape(())


@kernel("linspace")
def linspace(xp, start, stop, num):
    count = number_in(num)
    if count < 1:
        raise ExecutionError(f"Num must be at least 1, got {count}")
    first, last = start.reshape(()), stop.reshape(())
    result = first + xp.arange(count).astype(start.dtype) * ((last - first) / max(count - 1, 1)).astype(start.dtype)
    if count > 1:
        result[-1] = last  # without what rounding adds up to
    return result.astype(start.dtype, copy=False)


@kernel("meshgrid")
def meshgrid(xp, xs):
    # Copied by hand, because CuPy gives a single array itself.
    grids = xp.meshgrid(*xs, indexing="ij", copy=False)
    return [grid.copy() for grid in grids]


@kernel("meshgrid_grad")
def meshgrid_grad(xp, xs, d_outs, *, wanted):
    grads = []
    for i, (x, d_out, is_wanted) in enumerate(zip(xs, d_outs, wanted[0], strict=True)):
        others = tuple(axis for axis in range(d_out.ndim) if axis != i)
        total = (add_over(xp, d_out, others) if others else d_out.copy()) if is_wanted else None
        grads.append(None if total is None else total.reshape(x.shape))
    return grads


@kernel("sequence_mask")
def sequence_mask(xp, x, max_len_tensor, *, maxlen, out_dtype):
    if max_len_tensor is not None:
        maxlen = number_in(max_len_tensor)
        if maxlen <= 0:
            raise ExecutionError(f"MaxLenTensor must be positive, got {maxlen}")
    elif maxlen < 0:
        maxlen = max(int(x.max()), 0) if x.size else 0
    return (xp.arange(maxlen, dtype=np.int64) < x[..., None]).astype(as_dtype(out_dtype).numpy)
