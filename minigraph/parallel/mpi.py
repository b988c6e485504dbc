"""Ranks that are processes, which MPI connects; imports mpi4py, of the extra ``mpi``."""

from __future__ import annotations

import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from minigraph.errors import CommunicationError, MissingExtraError
from minigraph.parallel.nccl import between_gpus
from minigraph.parallel.notes import Note, answer_where, doing, exchanges, where
from minigraph.parallel.shared_memory import SharedMemory, Spot, shared_by
from minigraph.support.alignment import room_for
from minigraph.support.communicator import REDUCTIONS, Call, Communicator, check_same
from minigraph.support.reduced_in_place import CHUNK, combine_into, reduce_part, total_of


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


_NOWHERE = Spot()
"""Position of an array that is in no shared memory."""
END = Call("the end of the script", "", 0, "", ())

_MIN_SHARED = 1 << 20
"""Minimum bytes of a block of memory, and of an array that is added up where it lies, that ranks share."""
_KEPT_VIEWS = 4
"""Maximum number of exchanges of parts of which a rank keeps the arrays of all ranks."""
_KEPT = 20
"""Number of exchanges that a rank remembers, for errors."""
_BUSY, _OFTEN = 1e-3, 1.0
"""Seconds that a rank with a core of its own looks at a request without letting others have the core, and that any rank
looks without a pause: MPI moves data only while a rank looks."""
_PAUSE = 1e-3
"""Seconds between looks after that."""
_PATIENCE = 30.0
"""Seconds after which a rank says for whom it waits."""


_let_others = getattr(os, "sched_yield", partial(time.sleep, 0.0))
"""Give the core to another process that wants it; a sleep of no time takes 50 us on Linux."""


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class MpiRank(Communicator):
    """The running process among the processes that MPI has started.

    Before each exchange the ranks compare what they are about to do, so that different programs end in an error and not
    in a wait without end.

    Parameters
    ----------
    timeout : float
        Maximum seconds to wait for the other ranks.
    folder : Path, optional
        Where to note the latest exchange, for a launcher that has to say what a rank did before it died.

    Attributes
    ----------
    patience : float
        Seconds after which a waiting rank says for whom it waits, and where these are.
    timeout : float
    """

    patience = _PATIENCE

    def __init__(self, timeout: float = 600.0, folder: Path | None = None) -> None:
        self._mpi = require_mpi()
        self._comm = self._mpi.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        on_machine = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        self.rank_on_machine: int = on_machine.Get_rank()
        # A rank that keeps a core from others waits for them longer.
        self._busy = _BUSY if on_machine.Get_size() <= _cores() else 0.0
        self.timeout = timeout
        self._calls: list[Call] = []
        self._count = 0
        self._hash = 0
        self._received = np.empty(0, np.uint8)
        self._shared = shared_by(self._comm)
        self._known: dict[Call, tuple[list[int], list[list[np.ndarray[Any, Any]] | None]]] = {}
        """Arrays of all ranks by exchange, with digests of where they lie on each rank."""
        self._copies: np.ndarray[Any, Any] | None = None
        """Shared memory for copies of small arrays that are in no shared memory."""
        self._folder = folder
        self._note = Note(folder, self.rank) if folder is not None else None
        if folder is not None:
            answer_where(folder, self.rank)

    def gather(self, array: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        flat, ends = self._gathered(array, call)
        rows = np.split(flat, ends[:-1])
        shape = (-1, *array.shape[1:]) if call.shape[:1] == (-1,) else array.shape
        return [row.view(array.dtype).reshape(shape) for row in rows]

    def all_gather(
        self, array: np.ndarray[Any, Any], call: Call, out: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        flat, ends = self._gathered(array, call, out)
        is_alike = ends[-1] == array.nbytes * self.size
        rows = array.shape[0] * self.size if is_alike else -1
        return flat.view(array.dtype).reshape(rows, *array.shape[1:])

    def _gathered(
        self, array: np.ndarray[Any, Any], call: Call, out: np.ndarray[Any, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], list[int]]:
        """The bytes of all ranks, one rank's after another's, in the memory of `out` if given, and where they end."""
        sizes = self._agree(call, array.nbytes)[:, 0].tolist()
        ends = list(accumulate(sizes))
        flat = np.empty(ends[-1], np.uint8) if out is None else _bytes(out)
        if len(set(sizes)) == 1:
            self._wait(self._comm.Iallgather(_bytes(array), flat))
        else:
            starts = [0, *ends[:-1]]
            self._wait(self._comm.Iallgatherv(_bytes(array), [flat, (sizes, starts), self._mpi.BYTE]))
        return flat, ends

    def allocate(self, size: int) -> np.ndarray[Any, Any]:
        if self._shared is None or size < _MIN_SHARED:
            return super().allocate(size)
        return self._shared[0].allocate(size)

    def all_reduce(
        self, array: np.ndarray[Any, Any], reduction: str, call: Call, out: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        given = self._in_place(array, call, out is array)
        if given is None:
            return super().all_reduce(array, reduction, call, out)
        self._reduce_shared(given, REDUCTIONS[reduction])
        return array

    def sum_with_squares(
        self, array: np.ndarray[Any, Any], call: Call, squares: Callable[[np.ndarray[Any, Any]], Sequence[float]]
    ) -> float | None:
        given = self._in_place(array, call, True)
        if given is None:
            super().all_reduce(array, "sum", call, array)
            return None
        return self._reduce_shared(given, np.add, squares)

    def _in_place(self, array: np.ndarray[Any, Any], call: Call, is_out: bool) -> Sequence[np.ndarray[Any, Any]] | None:
        """The arrays of all ranks, if all lie in shared memory and are to be reduced there, as `is_out` says here."""
        if self._shared is None or array.nbytes < _MIN_SHARED:
            return None
        memory, processes = self._shared
        spot = memory.find(array) if is_out else _NOWHERE
        spots = [Spot(*row) for row in self._agree(call, array.nbytes, spot)[:, 1:].tolist()]
        if _NOWHERE in spots:
            return None
        return [each[: array.nbytes].view(array.dtype) for each in map(memory.open, processes, spots)]

    def _reduce_shared(
        self,
        given: Sequence[np.ndarray[Any, Any]],
        combine: Callable[..., Any],
        squares: Callable[[np.ndarray[Any, Any]], Sequence[float]] | None = None,
    ) -> float | None:
        """Reduce this rank's part of the ranks' arrays, and write it to all of them.

        Returns the sum of the squares of all that is reduced, which `squares` adds up while it is in the cache; None
        unless all ranks give such a function.
        """
        mine = reduce_part(self.rank, given, given, combine, squares)
        totals = np.empty((self.size, 2))
        # It ends when all ranks have come, like a barrier.
        self._wait(self._comm.Iallgather(np.array(mine), totals))
        return total_of(totals.tolist())

    def broadcast(self, array: np.ndarray[Any, Any], root: int, call: Call) -> np.ndarray[Any, Any]:
        self._agree(call, array.nbytes)
        found = np.array(array, order="C")
        self._wait(self._comm.Ibcast(_bytes(found), root))
        return found

    def reduce_parts(
        self, arrays: Sequence[np.ndarray[Any, Any]], parts: Sequence[np.ndarray[Any, Any]], call: Call
    ) -> None:
        apart = []
        for array, part, given in zip(arrays, parts, self._views(arrays, call), strict=True):
            if given is None:
                apart.append((array, part))
                continue
            mine = [each[part.size * self.rank : part.size * (self.rank + 1)] for each in given]
            for begin in range(0, mine[0].size, CHUNK):
                pieces = [each[begin : begin + CHUNK] for each in mine]
                combine_into(pieces, np.add, part[begin : begin + pieces[0].size])
            part[mine[0].size :] = 0
        if apart:
            super().reduce_parts([array for array, _ in apart], [part for _, part in apart], call)
        if len(apart) < len(arrays):
            self._wait(self._comm.Ibarrier())  # nobody writes over what others still read

    def gather_parts(
        self, parts: Sequence[np.ndarray[Any, Any]], arrays: Sequence[np.ndarray[Any, Any]], call: Call
    ) -> None:
        apart = []
        for part, array, given in zip(parts, arrays, self._views(parts, call), strict=True):
            if given is None:
                apart.append((part, array))
                continue
            for rank, each in enumerate(given):
                piece = array[part.size * rank : part.size * (rank + 1)]
                piece[...] = each[: piece.size]
        if apart:
            super().gather_parts([part for part, _ in apart], [array for _, array in apart], call)
        if len(apart) < len(arrays):
            self._wait(self._comm.Ibarrier())

    def _views(self, arrays: Sequence[np.ndarray[Any, Any]], call: Call) -> list[list[np.ndarray[Any, Any]] | None]:
        """The arrays of all ranks for each flat array that lies in shared memory; None for each other one."""
        if self._shared is None or sum(each.nbytes for each in arrays) < _MIN_SHARED:
            return [None] * len(arrays)
        memory, processes = self._shared
        spots = np.array(self._spots(memory, arrays), np.int64)
        # Memory stays where it is from step to step: then ranks exchange digests of the positions, as a part of what
        # they compare anyway, and all know whether positions are those of the step before.
        digest = int.from_bytes(hashlib.blake2b(spots.tobytes(), digest_size=7).digest(), "little")
        digests = self._agree(call, digest)[:, 0].tolist()
        known = self._known.pop(call, None)
        if known is None or known[0] != digests:
            found = np.empty((self.size, *spots.shape), np.int64)
            self._wait(self._comm.Iallgather(spots, found))
            known = (
                digests,
                [
                    None
                    if (found[:, number] < 0).any()
                    else [
                        memory.open(process, Spot(*spot))[: array.nbytes].view(array.dtype)
                        for process, spot in zip(processes, found[:, number].tolist(), strict=True)
                    ]
                    for number, array in enumerate(arrays)
                ],
            )
        self._known[call] = known  # the latest last
        if len(self._known) > _KEPT_VIEWS:
            del self._known[next(iter(self._known))]
        return known[1]

    def _spots(self, memory: SharedMemory, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Spot]:
        """Find the positions of the arrays in shared memory; copy small ones there that are elsewhere.

        Nobody reads the copies of the exchange before any more: it has ended by a barrier.
        """
        spots = [memory.find(each) for each in arrays]
        apart = [number for number, spot in enumerate(spots) if spot == _NOWHERE]
        ends = list(accumulate([room_for(arrays[number].nbytes) for number in apart], initial=0))
        if apart and ends[-1] <= _MIN_SHARED:
            if self._copies is None:
                self._copies = memory.allocate(_MIN_SHARED)
            for number, start in zip(apart, ends, strict=False):
                copy = self._copies[start : start + arrays[number].nbytes].view(arrays[number].dtype)
                copy[...] = arrays[number]
                spots[number] = memory.find(copy)
        return spots

    def scatter(self, parts: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        self._agree(call, parts.nbytes)
        if self._received.nbytes < parts.nbytes:
            self._received = np.empty(parts.nbytes, np.uint8)
        # The same memory each time, because the system clears new memory: what is here is added up at once.
        found = self._received[: parts.nbytes]
        self._wait(self._comm.Ialltoall(_bytes(parts), found))
        return list(found.view(parts.dtype).reshape(parts.shape))

    def between_devices(self, xp: Any) -> Communicator:
        return between_gpus(self, xp)

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

    def _agree(self, call: Call, size: int, spot: Spot = _NOWHERE) -> np.ndarray[Any, Any]:
        """Compare this exchange with those of the others; return how many bytes each gives, and where, in rows."""
        self._calls = [*self._calls[1 - _KEPT :], call]
        self._count += 1
        if self._note is not None:
            self._note.write(f"exchange {self._count}: {call}")
        # The hash is over all exchanges so far: ranks that differ once never agree again.
        self._hash = zlib.crc32(repr(call).encode(), self._hash)
        mine = np.array([self._hash, size, *spot], np.int64)
        found = np.empty((self.size, mine.size), np.int64)
        self._wait(self._comm.Iallgather(mine, found))
        if len(set(found[:, 0].tolist())) > 1:
            check_same(self._comm.allgather(self._calls), self._count)
        return found[:, 1:]

    def _wait(self, request: Any) -> None:
        """Wait for an exchange in a way that signals can interrupt."""
        start, patience = time.monotonic(), self.patience
        while not request.Test():
            waited = time.monotonic() - start
            if waited > self.timeout:
                raise CommunicationError(
                    f"rank {self.rank} has waited {self.timeout:g} s for the others at {self._calls[-1]}",
                    details=self._late(),
                    hint="Start the script by minigraph launch with a larger --timeout, if another rank is only slow.",
                )
            if waited > patience:
                patience = self.timeout
                self._say_late(waited)
            if waited > _OFTEN:
                time.sleep(_PAUSE)
            elif waited >= self._busy:
                _let_others()

    def _late(self) -> list[str]:
        """Lines about the ranks of this machine that have begun fewer exchanges than this one: what each is doing."""
        lines: list[str] = []
        for rank in range(self.size) if self._folder is not None else ():
            assert self._folder is not None
            note = doing(self._folder, rank)
            if exchanges(note) < self._count:
                lines += [f"rank {rank}: {note}", *(f"  at {each}" for each in where(self._folder, rank))]
        return lines

    def _say_late(self, waited: float) -> None:
        """Say for whom this rank waits, unless a rank with a lower number does."""
        if self._folder is None:
            return
        begun = [exchanges(doing(self._folder, rank)) for rank in range(self.rank)]
        if self._count not in begun:
            first = f"rank {self.rank} has waited {waited:.0f} s for the others at {self._calls[-1]}"
            print(first, *self._late(), sep="\n", file=sys.stderr, flush=True)


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The memory of an array, copied if it is not in one piece; MPI knows no float16."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
