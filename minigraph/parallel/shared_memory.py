"""Memory that all processes of one machine read and write: ranks add up gradients where they lie.

A block is a file without a name (``memfd_create`` of Linux), which is gone when the last process that has it open is.
Other processes open it by the number of its owner's file. Where that is refused, or on another system, nothing is
shared.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

_KEPT = 2
"""Maximum number of blocks of another process that stay open."""


class Spot(NamedTuple):
    """Position of an array in the shared memory of a process; all numbers are -1 for another array."""

    block: int = -1
    """Number of the block among all that the process has made."""
    file: int = -1
    """Number of its file in the process that made it."""
    offset: int = -1
    """Byte at which the array begins."""


class SharedMemory:
    """The blocks of this process, and those of others that it has opened."""

    def __init__(self) -> None:
        self._numbers = count()
        self._own: dict[int, tuple[int, int, int]] = {}
        """First address, size and file of each block."""
        self._opened: dict[int, dict[int, np.ndarray[Any, Any]]] = {}
        """Blocks of other processes, by process and number."""

    def allocate(self, size: int) -> np.ndarray[Any, Any]:
        """`size` bytes that other processes may open."""
        file = os.memfd_create("minigraph")
        try:
            os.truncate(file, size + 2 * _HUGE)
            array = _mapped(file, size)
        except BaseException:
            os.close(file)
            raise
        number = next(self._numbers)
        self._own[number] = array.ctypes.data, size, file
        finalize(array, self._forget, number)  # views keep the array
        return array

    def _forget(self, number: int) -> None:
        os.close(self._own.pop(number)[2])

    def find(self, array: np.ndarray[Any, Any]) -> Spot:
        """Position of an array without gaps."""
        begin = array.__array_interface__["data"][0]
        for number, (first, size, file) in self._own.items() if array.flags.c_contiguous else ():
            if first <= begin and begin + array.nbytes <= first + size:
                return Spot(number, file, begin - first)
        return Spot()

    def open(self, process: int, spot: Spot) -> np.ndarray[Any, Any]:
        """The block of another process, from `spot` on.

        Raises
        ------
        OSError
            If the system does not allow it.
        """
        opened = self._opened.setdefault(process, {})
        if spot.block not in opened:
            file = os.open(f"/proc/{process}/fd/{spot.file}", os.O_RDWR | os.O_NONBLOCK)
            try:
                opened[spot.block] = _mapped(file, os.fstat(file).st_size - 2 * _HUGE)
            finally:
                os.close(file)
            if len(opened) > _KEPT:
                del opened[next(iter(opened))]
        return opened[spot.block][spot.offset :]


_HUGE = 1 << 21
"""Bytes of a huge page. Its address and its place in a file are multiples of that; so are those of a block."""
_COLLAPSE = 25
"""Advice of Linux 6.1 to use huge pages now, even if the system's settings give shared memory none."""


def _mapped(file: int, size: int) -> np.ndarray[Any, Any]:
    """The block of `size` bytes in a file, which begins at byte `_HUGE`."""
    # The system gives the same place again to a mapping of the same length. Elsewhere there are no huge pages.
    place = np.frombuffer(mmap.mmap(file, size + _HUGE), np.uint8).ctypes.data
    before = -place % _HUGE
    memory = mmap.mmap(file, size + _HUGE, offset=_HUGE - before)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
        with suppress(OSError):
            memory.madvise(_COLLAPSE, before, size // _HUGE * _HUGE)
    return np.frombuffer(memory, np.uint8, size, before)


def shared_by(comm: Any) -> tuple[SharedMemory, list[int]] | None:
    """The memory that the ranks of `comm` share, and their processes; None unless each can open the blocks of all."""
    if comm.Get_size() == 1 or not hasattr(os, "memfd_create"):
        return None
    memory, process = SharedMemory(), os.getpid()
    probe = memory.allocate(mmap.PAGESIZE)
    mark = os.urandom(16)
    probe[: len(mark)] = np.frombuffer(mark, np.uint8)
    given = comm.allgather((process, memory.find(probe), mark))
    try:
        found = [memory.open(process, spot)[: len(mark)].tobytes() for process, spot, _ in given]
    except (OSError, ValueError, OverflowError):
        # On another machine the numbers are those of other processes, and of any files.
        found = []
    is_shared = found == [each for *_, each in given]
    processes = [process for process, *_ in given]
    memory._opened.clear()
    return (memory, processes) if all(comm.allgather(is_shared)) else None
