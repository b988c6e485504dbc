"""Run pieces of loops on several cores, by a few threads that wait between two calls.

A compiled loop releases the interpreter's lock, so that its pieces run at the same time. All callers share the threads,
and each caller runs the pieces itself that no thread has begun. A forked process starts new threads. The number of
threads is ``NUMBA_NUM_THREADS`` or ``OMP_NUM_THREADS``, else the number of cores that the process may use, and never
more than BLAS has at the moment, which `threadpoolctl` changes.

A caller that an interrupt ends returns only when no thread works for it any more. Each call has its own locks, so that
an interrupted call leaves nothing behind for others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

from minigraph.support import blas
from minigraph.support.interrupts import deferred

LEAST = 65_536
"""Minimum elements per thread."""

_LEAST_BYTES = 2**23
"""Minimum bytes that a thread reads and writes: that takes as long as to wake a thread and to be woken by it."""


@cache
def _wanted() -> int:
    for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        # OpenMP allows a list, one number for each level of nesting.
        first = os.environ.get(variable, "").partition(",")[0].strip()
        if first.isdigit() and int(first):
            return int(first)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas_threads() -> Callable[[], int] | None:
    return blas.thread_counter()


def thread_count() -> int:
    """Threads that a large loop runs on now."""
    asked = _blas_threads()
    count = _wanted()
    return count if asked is None or count == 1 else max(1, min(count, asked()))


def least_of(bytes_each: int) -> int:
    """Minimum elements per thread of a loop that moves `bytes_each` bytes for each element and computes little."""
    return max(LEAST, _LEAST_BYTES // bytes_each)


def pieces(size: int, least: int = LEAST, line: int = 64) -> list[tuple[int, int]]:
    """Begin and end of equal pieces of `size` elements: one for each thread, but none shorter than `least`.

    Lengths are multiples of `line`, so that no two threads write to one cache line.
    """
    count = min(size // least, thread_count()) if size >= 2 * least else 1
    if count <= 1:
        return [(0, size)]
    edges = [size * i // count // line * line for i in range(count)] + [size]
    return list(pairwise(edges))


def row_pieces(count: int, width: int) -> list[tuple[int, int]]:
    """Begin and end of each thread's part of rows of `width` elements."""
    width = max(width, 1)
    return [(start // width, end // width) for start, end in pieces(count * width, line=width)]


def shares(sizes: Sequence[int], least: int = LEAST) -> list[list[tuple[int, int, int]]]:
    """Divide arrays of these sizes among the threads: for each thread, numbers of arrays and ends of their parts.

    No thread gets fewer than `least` elements.
    """
    total, found, number, start = sum(sizes), list[list[tuple[int, int, int]]](), 0, 0
    for first, last in pieces(total, least):
        left: int = last - first
        found.append([])
        while left and number < len(sizes):
            part = min(left, sizes[number] - start)
            found[-1].append((number, start, start + part))
            left -= part
            start += part
            if start == sizes[number]:
                number, start = number + 1, 0
    return found


class _Task:
    """A call that is made once, by the first thread that takes it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self._call: Callable[[], Any] | None = call
        self._taker: dict[None, str] = {}
        self._running = threading.Lock()
        self._running.acquire()

    def run(self, who: str) -> None:
        """Make the call, unless another thread has taken it; keep an error for the caller."""
        if self._is_taken_by(who):
            try:
                assert self._call is not None
                self._call()
            except BaseException as error:
                self.error = error
            self._call = None  # releases the arrays
            self._running.release()

    def wait(self) -> None:
        """Return when the call has been made."""
        with self._running:
            pass

    def drop(self) -> None:
        """Return when no thread makes the call any more, nor ever will."""
        if self._is_taken_by(_THREAD, otherwise=_CALLER):
            self.wait()

    def _is_taken_by(self, who: str, otherwise: str | None = None) -> bool:
        """Whether `who` has taken the call; a free call goes to `otherwise`, by default to `who`."""
        # `setdefault` is atomic, so that two threads never both take the call.
        return self._taker.setdefault(None, otherwise or who) == who


_CALLER, _THREAD = "caller", "thread"


class _Threads:
    """Threads that make queued calls."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task] = SimpleQueue()
        self._count = 0

    def run(self, calls: Sequence[Callable[[], Any]]) -> None:
        while self._count < len(calls) - 1:
            threading.Thread(target=self._work, name="minigraph loops", daemon=True).start()
            self._count += 1
        tasks = [_Task(call) for call in calls]
        try:
            for task in tasks[1:]:
                self._tasks.put(task)
            for task in tasks:
                task.run(_CALLER)
            for task in tasks:
                task.wait()
        except BaseException:  # an interrupt: the caller may reuse the memory, so no thread may go on writing
            with deferred():
                for task in tasks:
                    task.drop()
            raise
        for task in tasks:
            if task.error is not None:
                raise task.error

    def _work(self) -> None:
        while True:
            self._tasks.get().run(_THREAD)


_threads = _Threads()


def _new_threads() -> None:
    """Forget the threads in a forked process, which has none of its parent's."""
    global _threads
    _threads = _Threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_threads)


def run_together(calls: Sequence[Callable[[], Any]]) -> None:
    """Make all calls, in parallel if there are threads for them; return when all are done."""
    if len(calls) > 1:
        _threads.run(calls)
    else:
        for call in calls:
            call()


def over_pieces(loop: Callable[..., Any], vectors: Sequence[Any], numbers: Sequence[Any], least: int = LEAST) -> None:
    """Call ``loop(*vectors, *numbers)`` piece by piece of the vectors, which are of one length, at least `least`."""
    found = pieces(vectors[0].size, least)
    if len(found) == 1:
        loop(*vectors, *numbers)
        return
    run_together([_call(loop, [v[start:end] for v in vectors], numbers) for start, end in found])


def _call(loop: Callable[..., Any], vectors: Sequence[Any], numbers: Sequence[Any]) -> Callable[[], Any]:
    return lambda: loop(*vectors, *numbers)
