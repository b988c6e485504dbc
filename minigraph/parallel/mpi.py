"""Ranks that are processes, which MPI connects; imports mpi4py, of the extra ``mpi``."""

from __future__ import annotations

import mmap
import os
import time
import zlib
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from minigraph.errors import CommunicationError, MissingExtraError
from minigraph.support.communicator import Call, Communicator, check_same


def require_mpi() -> Any:
    """The module ``mpi4py.MPI``.

    Raises
    ------
    MissingExtraError
        If mpi4py or an MPI library is missing.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            f"several ranks need mpi4py and an MPI library: {error}", hint="Install them: pip install 'minigraph[mpi]'."
        ) from None
    return MPI


END = Call("the end of the script", "", 0, "", ())

_KEPT = 20
"""Number of exchanges that a rank remembers, for errors."""
_BUSY, _OFTEN = 1e-3, 1.0
"""Seconds that a rank looks at a request without letting others have the core, and without a pause: MPI moves data only
while a rank looks."""
_PAUSE = 1e-3
"""Seconds between looks after that."""


_let_others = getattr(os, "sched_yield", partial(time.sleep, 0.0))
"""Give the core to another process that wants it; a sleep of no time takes 50 us on Linux."""


class MpiRank(Communicator):
    """The running process among those that MPI has started.

    Before each exchange the ranks compare what they are about to do, so that different programs end in an error and not
    in a wait without end.

    Parameters
    ----------
    timeout : float
        Maximum seconds to wait for the other ranks.
    folder : Path, optional
        Where to note the latest exchange, for a launcher that has to say what a rank did before it died.
    """

    def __init__(self, timeout: float = 600.0, folder: Path | None = None) -> None:
        self._mpi = require_mpi()
        self._comm = self._mpi.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self._timeout = timeout
        self._calls: list[Call] = []
        self._count = 0
        self._hash = 0
        self._received = np.empty(0, np.uint8)
        self._note = _Note(folder / f"rank-{self.rank}.doing") if folder is not None else None

    def gather(self, array: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        flat, ends = self._gathered(array, call)
        rows = np.split(flat, ends[:-1])
        shape = (-1, *array.shape[1:]) if call.shape[:1] == (-1,) else array.shape
        return [row.view(array.dtype).reshape(shape) for row in rows]

    def all_gather(self, array: np.ndarray[Any, Any], call: Call) -> np.ndarray[Any, Any]:
        flat, ends = self._gathered(array, call)
        is_alike = ends[-1] == array.nbytes * self.size
        rows = array.shape[0] * self.size if is_alike else -1
        return flat.view(array.dtype).reshape(rows, *array.shape[1:])

    def _gathered(self, array: np.ndarray[Any, Any], call: Call) -> tuple[np.ndarray[Any, Any], list[int]]:
        """The bytes of all ranks, one rank's behind another's, and where they end."""
        sizes = self._agree(call, array.nbytes)
        ends = list(accumulate(sizes))
        flat = np.empty(ends[-1], np.uint8)
        if len(set(sizes)) == 1:
            self._wait(self._comm.Iallgather(_bytes(array), flat))
        else:
            starts = [0, *ends[:-1]]
            self._wait(self._comm.Iallgatherv(_bytes(array), [flat, (sizes, starts), self._mpi.BYTE]))
        return flat, ends

    def scatter(self, parts: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        self._agree(call, parts.nbytes)
        if self._received.nbytes < parts.nbytes:
            self._received = np.empty(parts.nbytes, np.uint8)
        # The same memory each time, because the system clears new memory: what is here is added up at once.
        found = self._received[: parts.nbytes]
        self._wait(self._comm.Ialltoall(_bytes(parts), found))
        return list(found.view(parts.dtype).reshape(parts.shape))

    def end(self) -> None:
        """Raise if other ranks still exchange what this one does not."""
        self._agree(END, 0)

    def compare(self, text: str) -> list[str]:
        """The text that each rank gives."""
        found: list[str] = self._comm.allgather(text)
        return found

    def abort(self) -> None:
        """End the processes of all ranks."""
        self._mpi.COMM_WORLD.Abort(1)

    def _agree(self, call: Call, size: int) -> list[int]:
        """Compare this exchange with those of the others; return the bytes that each rank gives."""
        self._calls = [*self._calls[1 - _KEPT :], call]
        self._count += 1
        if self._note is not None:
            self._note.write(f"exchange {self._count}: {call}")
        # The hash is over all exchanges so far: ranks that differ once never agree again.
        self._hash = zlib.crc32(repr(call).encode(), self._hash)
        found = np.empty((self.size, 2), np.int64)
        self._wait(self._comm.Iallgather(np.array([self._hash, size], np.int64), found))
        if len(set(found[:, 0].tolist())) > 1:
            check_same(self._comm.allgather(self._calls))
        return found[:, 1].tolist()

    def _wait(self, request: Any) -> None:
        """Wait for an exchange in a way that signals can interrupt."""
        start = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - start
            if waited > self._timeout:
                raise CommunicationError(
                    f"rank {self.rank} has waited {self._timeout:g} s for the others at {self._calls[-1]}",
                    hint="Start the script by minigraph launch with a larger --timeout, if another rank is only slow.",
                )
            if waited > _OFTEN:
                time.sleep(_PAUSE)
            elif waited > _BUSY:
                _let_others()


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The memory of an array, copied if it is not in one piece; MPI knows no float16."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class _Note:
    """A file whose text outlives the process however it ends."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_LENGTH))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LENGTH)
        self.write("the start")

    def write(self, text: str) -> None:
        line = f"process {os.getpid()}, {text}"
        self._memory[:] = line.encode()[:_LENGTH].ljust(_LENGTH, b"\0")


_LENGTH = 512
"""Bytes of a note."""
