"""Exchange between GPUs by NCCL, through CuPy, of the extras ``cuda12`` and ``cuda13``.

Exchanges are queued on the stream of the computation, so that they come in order with it. Before each one the ranks
compare what they are about to do on the processor, as `minigraph.parallel.mpi` does: NCCL itself would wait for ever.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import CommunicationError, MissingExtraError
from minigraph.support.communicator import Call, Communicator, ThroughHost, copied, sums_in_order

_SHOWN, _NAME = 256, 128
"""Maximum bytes of the description of a GPU, and bytes of NCCL's identifier."""
_ALIGNMENT = 256
"""Alignment in bytes of each rank's array in what is gathered."""


def between_gpus(control: Communicator, xp: Any) -> Communicator:
    """The communicator for arrays of CuPy between the ranks of `control`: NCCL if each rank has a GPU of its own.

    Raises
    ------
    MissingExtraError
        If CuPy has no NCCL on some rank.
    """
    nccl = _library()
    name = f"{int(nccl.available)} {platform.node()} {xp.cuda.Device().pci_bus_id}"
    text = np.frombuffer(name.encode().ljust(_SHOWN)[:_SHOWN], np.uint8)
    found = [each.tobytes() for each in control.gather(text, Call("choose GPUs", "", 0, "uint8", text.shape))]
    # NCCL refuses ranks that share a GPU.
    if len({each[1:] for each in found}) < control.size:
        return ThroughHost(control, xp)
    lacking = [str(rank) for rank, each in enumerate(found) if each[:1] == b"0"]
    if lacking:
        raise MissingExtraError(
            f"CuPy finds no NCCL on rank {', '.join(lacking)}, which exchanges between GPUs need",
            hint="Install it: pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 with 'minigraph[cuda13]'.",
        )
    return NcclRank(control, xp)


def _library() -> Any:
    """CuPy's module for NCCL, whose `available` is false where there is no NCCL."""
    from cupy.cuda import nccl

    return nccl


class NcclRank(Communicator):
    """The rank whose GPU is the current one.

    Sums are NCCL's own, whose order depends on the number of GPUs and how they are connected; all ranks get the same
    bits. Programs of `DataParallel` with ``exact=True`` get sums in the order of every communicator.

    Parameters
    ----------
    control : Communicator
        The same ranks on the processor.
    xp : module
        ``cupy``.
    """

    def __init__(self, control: Communicator, xp: Any) -> None:
        self.rank, self.size = control.rank, control.size
        self._control, self._xp, self._nccl = control, xp, _library()
        try:
            self._comm = self._nccl.NcclCommunicator(self.size, self._identifier(), self.rank)
        except self._nccl.NcclError as error:
            raise CommunicationError(
                f"NCCL cannot connect the GPUs of {self.size} ranks: {error}",
                hint="Set NCCL_DEBUG=INFO in the environment to see why.",
            ) from None
        kinds = {"float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "int32": "INT32", "int64": "INT64"}
        self._types = {dtype: getattr(self._nccl, f"NCCL_{name}") for dtype, name in kinds.items()}

    def _identifier(self) -> bytes | tuple[int, ...]:
        """The name of the group of GPUs, which rank 0 chooses: bytes, or numbers from -128 to 127 before CuPy 14."""
        mine = np.zeros(_NAME + 1, np.uint8)
        if self.rank == 0:
            chosen = self._nccl.get_unique_id()
            mine[:_NAME] = [each % 256 for each in chosen]
            mine[_NAME] = isinstance(chosen, bytes)
        given = self._control.broadcast(mine, 0, Call("NCCL's identifier", "", 0, "uint8", mine.shape))
        name = given[:_NAME]
        return name.tobytes() if given[_NAME] else tuple(name.view(np.int8).tolist())

    def gather(self, array: Any, call: Call) -> Sequence[Any]:
        sizes = self._agree(call, array.nbytes)
        most = max(sizes)
        given = self._bytes(array, most)
        found = self._xp.empty((self.size, given.size), np.uint8)
        if most:
            self._comm.allGather(given.data.ptr, found.data.ptr, given.size, self._nccl.NCCL_UINT8, self._stream)
        shape = (-1, *array.shape[1:]) if call.shape[:1] == (-1,) else array.shape
        return [row[:size].view(array.dtype).reshape(shape) for row, size in zip(found, sizes, strict=True)]

    def scatter(self, parts: Any, call: Call) -> Sequence[Any]:
        self._agree(call, parts.nbytes)
        given = self._xp.ascontiguousarray(parts)
        found = self._xp.empty(parts.shape, parts.dtype)
        found[self.rank] = given[self.rank]
        if parts[0].nbytes:
            self._nccl.groupStart()
            for other in set(range(self.size)) - {self.rank}:
                size, kind, stream = parts[0].nbytes, self._nccl.NCCL_UINT8, self._stream
                self._comm.send(given[other].data.ptr, size, kind, other, stream)
                self._comm.recv(found[other].data.ptr, size, kind, other, stream)
            self._nccl.groupEnd()
        return list(found)

    def all_gather(self, array: Any, call: Call, out: Any = None) -> Any:
        return copied(self._xp.concatenate(self.gather(array, call)), out)

    def all_reduce(self, array: Any, reduction: str, call: Call, out: Any = None) -> Any:
        kind = self._types.get(str(array.dtype))
        if sums_in_order() or kind is None or not array.size:
            return super().all_reduce(array, reduction, call, out)
        self._agree(call, array.nbytes)
        given = self._xp.ascontiguousarray(array)
        found = self._xp.empty(array.shape, array.dtype) if out is None else out
        operation = getattr(self._nccl, f"NCCL_{reduction.upper()}")
        self._comm.allReduce(given.data.ptr, found.data.ptr, given.size, kind, operation, self._stream)
        return found

    def barrier(self) -> None:
        self._control.barrier()

    @property
    def _stream(self) -> int:
        pointer: int = self._xp.cuda.get_current_stream().ptr
        return pointer

    def _agree(self, call: Call, size: int) -> list[int]:
        """Compare this exchange with those of the others; return the bytes that each rank gives."""
        return [int(each[0]) for each in self._control.gather(np.array([size], np.int64), call)]

    def _bytes(self, array: Any, size: int) -> Any:
        """The bytes of an array, with zeros after it up to `size` bytes, rounded up to `_ALIGNMENT`."""
        flat = self._xp.ascontiguousarray(array).reshape(-1).view(np.uint8)
        rest = -(-size // _ALIGNMENT) * _ALIGNMENT - flat.size
        return self._xp.concatenate([flat, self._xp.zeros(rest, np.uint8)]) if rest else flat
