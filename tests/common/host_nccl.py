"""A stand-in for `cupy.cuda.nccl` on the processor: ranks are threads, and addresses are those of NumPy's arrays.

What is seen with it is which exchanges are made, on which memory, and by how many elements. Sums go from the first rank
to the last, as those of NCCL need not have the order of a tree.
"""

import ctypes
import itertools
import threading
from functools import reduce

import numpy as np

available = True
NCCL_UINT8, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_INT32, NCCL_INT64 = map(
    np.dtype, ("uint8", "float16", "float32", "float64", "int32", "int64")
)
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = np.add, np.multiply, np.maximum, np.minimum


class NcclError(RuntimeError):
    pass


calls = []
"""Names of the exchanges of rank 0."""
_numbers = itertools.count()
_groups = {}
_own = threading.local()
identity_of = {bytes: 0, tuple: -1}
"""Least number of an identifier, by its type: CuPy had a tuple of signed numbers before version 14."""


def get_unique_id():
    return b"\xff" + next(_numbers).to_bytes(127, "little")


class _Group:
    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=30)
        self.given = {}


def _memory(address, count, kind):
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)


class NcclCommunicator:
    def __init__(self, size, identity, rank):
        assert len(identity) == 128 and min(identity) == identity_of[type(identity)]
        if "broken" in _groups:
            raise NcclError("NCCL_ERROR_INVALID_USAGE")
        self.size, self.rank = size, rank
        self.group = _groups.setdefault(identity, _Group(size))

    def _exchange(self, name, array, read):
        if self.rank == 0:
            calls.append(name)
        self.group.given[self.rank] = array.copy()
        self.group.barrier.wait()
        read([self.group.given[rank] for rank in range(self.size)])
        self.group.barrier.wait()

    def allGather(self, given, found, count, kind, stream):
        target = _memory(found, count * self.size, kind)

        def read(arrays):
            target[:] = np.concatenate(arrays)

        self._exchange("allGather", _memory(given, count, kind), read)

    def allReduce(self, given, found, count, kind, operation, stream):
        def read(arrays):
            _memory(found, count, kind)[:] = reduce(operation, arrays)

        self._exchange("allReduce", _memory(given, count, kind), read)

    def send(self, address, count, kind, other, stream):
        _own.comm = self
        _own.sends.append((other, _memory(address, count, kind).copy()))

    def recv(self, address, count, kind, other, stream):
        _own.receives.append((other, _memory(address, count, kind)))


def groupStart():
    _own.comm, _own.sends, _own.receives = None, [], []


def groupEnd():
    comm = _own.comm
    if comm is None:
        return
    if comm.rank == 0:
        calls.append("send and recv")
    for other, array in _own.sends:
        comm.group.given[comm.rank, other] = array
    comm.group.barrier.wait()
    for other, array in _own.receives:
        array[:] = comm.group.given[other, comm.rank]
    comm.group.barrier.wait()
