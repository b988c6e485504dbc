"""Write results into the buffers that a plan provides; lend memory for temporaries."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np


def unshared(xp, buffer, *inputs) -> Any:
    """`buffer` if writing to it changes none of `inputs`, else None.

    For a kernel that writes one result while it still needs `inputs` for another.
    """
    if buffer is None or any(xp.may_share_memory(buffer, x) for x in inputs):
        return None
    return buffer


def deliver(xp, result, buffer) -> Any:
    """`result` copied to `buffer`, in its dtype and shape; `result` itself without a buffer, or if it is the buffer."""
    if buffer is None or result is buffer:
        return result
    xp.copyto(buffer, result.reshape(buffer.shape), casting="same_kind")
    return buffer


_SHORT = 4096
"""Maximum elements of a view with gaps that is copied instead: in this time it is read once or twice."""


def without_gaps(xp, view) -> Any:
    """`view`, or a copy row by row if it is short and its elements do not lie so, for whatever reads it later."""
    return view.copy() if xp is np and view.size <= _SHORT and not view.flags.c_contiguous else view


def shaped(buffer, shape) -> Any:
    """`buffer` seen in `shape`, if there is one."""
    return None if buffer is None else buffer.reshape(shape)


def zeros(xp, like, buffer) -> Any:
    """Zeros in `buffer`, or in a new array like `like`."""
    if buffer is None:
        return xp.zeros_like(like)
    buffer.fill(0)
    return buffer


def none_if_zero(xp, x) -> Any:
    """Return None for an array of zeros, whose products need not be computed.

    Values on a GPU are not checked, because that would wait for the device.
    """
    return None if x is None or (xp is np and not x.any()) else x


class Scratch:
    """Temporary arrays of one kernel call, in memory that the thread keeps for later calls.

    New memory of the system is cleared page by page when it is first touched, which may take longer than the work. Each
    thread has only one block: a kernel must not call another kernel that makes a `Scratch` while it needs the arrays of
    its own, and must not return them.

    Parameters
    ----------
    xp : module
    around : bool
        Whether the caller calls other kernels, which make a `Scratch`, too: it gets a second block.
    """

    _KEPT = 1 << 26  # bytes; larger blocks are not kept
    _blocks = threading.local()

    def __init__(self, xp, around: bool = False) -> None:
        self._xp, self._used = xp, 0
        self._name = "outer" if around else "block"
        self._block = getattr(Scratch._blocks, self._name, np.empty(0, np.uint8))

    def empty(self, shape, dtype) -> Any:
        """An array with arbitrary elements."""
        if self._xp is not np:
            return self._xp.empty(shape, dtype)
        start, size = self._used, math.prod(shape) * np.dtype(dtype).itemsize
        self._used = -(-(start + size) // 64) * 64  # so that arrays begin with a line of the cache
        if self._used > self._block.size:
            self._block = _aligned(self._used + self._used // 4)
            if self._block.size <= Scratch._KEPT:
                setattr(Scratch._blocks, self._name, self._block)
        return np.ndarray(shape, dtype, self._block.data, start)

    def zeros(self, shape, dtype) -> Any:
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    def copy(self, x) -> Any:
        """`x`, row by row in memory."""
        array = self.empty(x.shape, x.dtype)
        self._xp.copyto(array, x)
        return array


def _aligned(size) -> np.ndarray:
    block = np.empty(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]
