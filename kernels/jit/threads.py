"""Spreading loops over the cores: a few threads of our own, which wait between two calls.

A compiled loop gives up the interpreter's lock, so its pieces run at a time. Of several callers one gets the threads;
the others do all their pieces themselves, and so does a process that was forked until it has threads of its own. The
number of threads is that of ``NUMBA_NUM_THREADS`` or ``OMP_NUM_THREADS``, else of the cores that the process may use,
and never more than BLAS has at the moment, which is what `threadpoolctl` changes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from minigraph import blas

LEAST = 65_536
"""So many elements are worth a thread."""


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
    """On how many threads a large loop runs now."""
    asked = _blas_threads()
    count = _wanted()
    return count if asked is None or count == 1 else max(1, min(count, asked()))


def pieces(size: int, least: int = LEAST, line: int = 64) -> list[tuple[int, int]]:
    """The ends of equal pieces of `size` elements, as many as there are threads and pieces of `least` elements.

    Their lengths are multiples of `line`, so that no two threads write to one line of the cache.
    """
    count = min(size // least, thread_count()) if size >= 2 * least else 1
    if count <= 1:
        return [(0, size)]
    edges = [size * i // count // line * line for i in range(count)] + [size]
    return list(pairwise(edges))


def shares(sizes: Sequence[int]) -> list[list[tuple[int, int, int]]]:
    """Arrays of these sizes dealt out to the threads: for each the numbers of arrays with the ends of its part."""
    total, found, number, start = sum(sizes), list[list[tuple[int, int, int]]](), 0, 0
    for first, last in pieces(total):
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


class _Threads:
    """Threads that run what they are handed, one call at a time each."""

    def __init__(self) -> None:
        self.free = threading.Lock()
        self._workers: list[_Worker] = []

    def run(self, calls: Sequence[Callable[[], Any]]) -> None:
        while len(self._workers) < len(calls) - 1:
            self._workers.append(_Worker())
        workers = self._workers[: len(calls) - 1]
        for worker, call in zip(workers, calls[1:], strict=True):
            worker.begin(call)
        try:
            calls[0]()
        finally:
            errors = [worker.wait() for worker in workers]
        for error in errors:
            if error is not None:
                raise error


class _Worker:
    def __init__(self) -> None:
        self._call: Callable[[], Any] | None = None
        self._error: BaseException | None = None
        # Locks as signals: taken here, and given back by the other side when there is something to see.
        self._begin, self._done = threading.Lock(), threading.Lock()
        self._begin.acquire()
        self._done.acquire()
        threading.Thread(target=self._work, name="minigraph loops", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._begin.acquire()
            try:
                assert self._call is not None
                self._call()
            except BaseException as error:  # the caller's to see
                self._error = error
            self._call = None
            self._done.release()

    def begin(self, call: Callable[[], Any]) -> None:
        self._call, self._error = call, None
        self._begin.release()

    def wait(self) -> BaseException | None:
        self._done.acquire()
        return self._error


_threads = _Threads()


def _new_threads() -> None:
    """In a forked process, which has none of its parent's threads."""
    global _threads
    _threads = _Threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_threads)


def run_together(calls: Sequence[Callable[[], Any]]) -> None:
    """Make all calls, at a time where there are threads for them; return when all are done."""
    threads = _threads
    if len(calls) > 1 and threads.free.acquire(blocking=False):
        try:
            threads.run(calls)
        finally:
            threads.free.release()
    else:
        for call in calls:
            call()


def over_pieces(loop: Callable[..., Any], vectors: Sequence[Any], numbers: Sequence[Any]) -> None:
    """Call ``loop(*vectors, *numbers)`` piece by piece of the vectors, which are of one length."""
    found = pieces(vectors[0].size)
    if len(found) == 1:
        loop(*vectors, *numbers)
        return
    run_together([_call(loop, [v[start:end] for v in vectors], numbers) for start, end in found])


def _call(loop: Callable[..., Any], vectors: Sequence[Any], numbers: Sequence[Any]) -> Callable[[], Any]:
    return lambda: loop(*vectors, *numbers)
