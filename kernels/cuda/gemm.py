"""Matrix products by cuBLAS while a CUDA graph is recorded, when CuPy refuses to call it; else by the array module.

A recording borrows a cuBLAS handle. The workspace is needed whenever the graph is launched: all graphs of a stream,
which it launches one after the other, share one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.cuda.launching import Capturing, lasting, recording

_WORKSPACE = 32 << 20
"""Bytes of a handle's workspace; what NVIDIA recommends for Hopper, the most of all architectures."""

_DEFAULT_ALGORITHM = -1
"""``CUBLAS_GEMM_DEFAULT``: cuBLAS chooses."""

_KINDS = {np.dtype(np.float16): (2, 68), np.dtype(np.float32): (0, 68), np.dtype(np.float64): (1, 70)}
"""``cudaDataType`` of the elements and ``cublasComputeType_t``, which for float16 is that of float32."""


def dot(xp, a, b, out=None) -> Any:
    """The product of two matrices."""
    current = recording()
    return xp.dot(a, b, out=out) if current is None else _recorded(current, xp, a, b, out)


def matmul(xp, a, b, out=None) -> Any:
    """The products of two batches of matrices, whose leading dimensions are broadcast."""
    current = recording()
    return xp.matmul(a, b, out=out) if current is None else _recorded(current, xp, a, b, out)


_handles: dict[int, list[Handle]] = {}
"""Handles that no recording has at present, by the number of the GPU."""

_workspaces: WeakValueDictionary[tuple[int, int], Workspace] = WeakValueDictionary()
"""Workspaces by GPU and stream; the recordings hold them."""


class Workspace:
    """Memory that cuBLAS writes to in each launch of a graph."""

    def __init__(self, xp) -> None:
        with lasting(xp):
            self.array = xp.empty(_WORKSPACE, np.uint8)


@contextmanager
def _lent(xp, current: Capturing) -> Iterator[Handle]:
    """A handle that works on the current stream, with the workspace of the stream that will launch the graph."""
    device = xp.cuda.runtime.getDevice()
    key = device, current.launched_on
    workspace = _workspaces.get(key)
    if workspace is None:
        workspace = _workspaces[key] = Workspace(xp)
    current.kept.append(workspace)
    free = _handles.setdefault(device, [])
    try:
        handle = free.pop()
    except IndexError:  # asked for, not looked at first: another thread may take the last one
        handle = Handle(xp)
    handle.work_on(xp.cuda.get_current_stream(), workspace)
    try:
        yield handle
    finally:
        free.append(handle)


class Handle:
    """A cuBLAS handle.

    Raises
    ------
    RuntimeError
        If cuBLAS refuses a call.
    """

    def __init__(self, xp) -> None:
        self._library = _library(xp)
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))

    def work_on(self, stream, workspace: Workspace) -> None:
        """Add what follows to a stream, and use a workspace in it."""
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.ptr))  # forgets the workspace
        memory = ctypes.c_void_p(workspace.array.data.ptr)
        self._call("cublasSetWorkspace_v2", self._handle, memory, ctypes.c_size_t(_WORKSPACE))

    def multiply(self, a: Operand, b: Operand, c: Any) -> None:
        """Write ``a @ b`` to `c`, a contiguous array of as many matrices."""
        kind, compute = _KINDS[c.dtype]
        number = ctypes.c_double if c.dtype == np.float64 else ctypes.c_float
        rows, columns = c.shape[1:]
        # cuBLAS stores by columns: it computes c' = b' @ a'.
        self._call(
            "cublasGemmStridedBatchedEx", self._handle, b.is_transposed, a.is_transposed, columns, rows, a.columns,
            ctypes.byref(number(1)), *b.arguments(kind), *a.arguments(kind), ctypes.byref(number(0)),
            ctypes.c_void_p(c.data.ptr), kind, columns, ctypes.c_longlong(rows * columns), len(c), compute,
            _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise RuntimeError(f"{name} returned status {status}")


class Operand:
    """A batch of matrices as cuBLAS takes it: rows or columns are contiguous; copied where neither is."""

    def __init__(self, xp, matrices) -> None:
        item = matrices.itemsize
        self.columns = matrices.shape[2]
        by_row, by_column = (_leading(matrices, axis) for axis in (2, 1))
        if by_row is None and by_column is None:
            matrices = xp.ascontiguousarray(matrices)
            by_row = self.columns
        self.matrices = matrices
        self.is_transposed = int(by_row is None)
        self._leading = by_column if by_row is None else by_row
        self._stride = matrices.strides[0] // item

    def arguments(self, kind: int) -> tuple[Any, ...]:
        return ctypes.c_void_p(self.matrices.data.ptr), kind, self._leading, ctypes.c_longlong(self._stride)


def _leading(matrices, axis: int) -> int | None:
    """Elements from one line to the next where lines along `axis` are contiguous; None where they are not."""
    item, other = matrices.itemsize, 3 - axis
    length, lines = matrices.shape[axis], matrices.shape[other]
    if length > 1 and matrices.strides[axis] != item:
        return None
    step = matrices.strides[other] // item if lines > 1 else length
    return step if step >= length and matrices.strides[other] % item == 0 else None


def _recorded(current: Capturing, xp, a, b, out=None) -> Any:
    """``a @ b`` as part of a recording, in `out` if it is given."""
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = (x.astype(dtype, copy=False) for x in (a, b))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    is_ready = out is not None and out.flags.c_contiguous and (out.dtype, out.shape) == (dtype, shape)
    result = out if is_ready else xp.empty(shape, dtype)
    if not result.size or not a.shape[-1]:
        result.fill(0)
        return deliver(xp, result, out)
    count = math.prod(batch)
    first, second = (
        Operand(xp, xp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(count, *x.shape[-2:])) for x in (a, b)
    )
    current.handle(lambda: _lent(xp, current)).multiply(first, second, result.reshape(count, *shape[-2:]))
    return deliver(xp, result, out)


@cache
def _library(xp) -> Any:
    """The cuBLAS that CuPy has loaded."""
    handle = xp.cuda.device.get_cublas_handle()
    major = xp.cuda.cublas.getVersion(handle) // 10_000
    # By name: the system gives the library that CuPy has loaded, and no second one.
    for name in (f"libcublas.so.{major}", f"cublas64_{major}.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError(f"the library of cuBLAS {major}, which CuPy uses, was not found by its name")
