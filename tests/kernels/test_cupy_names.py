"""What the CUDA side of minigraph uses of CuPy is there, where CuPy is installed; no GPU is needed for that."""

import re
from functools import reduce

import pytest
from host_cuda import KEYWORDS

cupy = pytest.importorskip("cupy", reason="CuPy, of the extras cuda12 and cuda13, is not installed")

NAMES = [
    "RawModule", "RawModule.get_function", "ElementwiseKernel", "ndarray.set", "ndarray.data", "ndarray.base",
    "asnumpy", "may_share_memory", "ascontiguousarray", "copyto", "cuda.runtime.getDevice",
    "cuda.get_current_stream", "cuda.alloc_pinned_memory", "cuda.using_allocator", "cuda.MemoryPool",
    "cuda.MemoryPool.malloc", "cuda.MemoryPointer.ptr", "cuda.Event", "cuda.Event.record", "cuda.Event.synchronize",
    "cuda.Stream", "cuda.Stream.null.ptr", "cuda.Stream.begin_capture", "cuda.Stream.end_capture",
    "cuda.Stream.wait_event", "cuda.Stream.synchronize", "cuda.Stream.__enter__", "cuda.Graph.launch",
    "cuda.Device.pci_bus_id",
]  # fmt: skip


NCCL_NAMES = [
    "get_unique_id", "groupStart", "groupEnd", "NcclError", "NcclCommunicator.allGather", "NcclCommunicator.allReduce",
    "NcclCommunicator.send", "NcclCommunicator.recv", "NCCL_UINT8", "NCCL_FLOAT16", "NCCL_FLOAT32", "NCCL_FLOAT64",
    "NCCL_INT32", "NCCL_INT64", "NCCL_SUM", "NCCL_PROD", "NCCL_MAX", "NCCL_MIN",
]  # fmt: skip


@pytest.mark.parametrize("name", NCCL_NAMES)
def test_nccl_has(name):
    from cupy.cuda import nccl

    if not nccl.available:
        pytest.skip("needs NCCL")
    assert reduce(getattr, name.split("."), nccl) is not None


@pytest.mark.parametrize("name", NAMES)
def test_cupy_has(name):
    assert reduce(getattr, name.split("."), cupy) is not None


@pytest.mark.parametrize("name", [name for name in KEYWORDS if hasattr(cupy.ndarray, name)])
def test_the_stand_in_has_the_keywords_of_cupy(name):
    signature = getattr(cupy.ndarray, name).__doc__.splitlines()[0]  # Cython writes the parameters there
    assert re.findall(r"(\w+)=", signature) == KEYWORDS[name].split()
