"""Read ahead: threads that put the samples of a reader in a queue, from which a consumer takes them."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from minigraph.support.interrupts import deferred

T = TypeVar("T")

END: Final[Any] = object()
"""Stands for the end of the samples."""


@dataclass(frozen=True)
class Failure:
    """An error on its way from a worker thread to the consumer."""

    error: BaseException


def attempt(function: Callable[..., T], *arguments: Any) -> T | Failure:
    try:
        return function(*arguments)
    except BaseException as error:  # passed to the consumer, which would wait for ever otherwise
        return Failure(error)


class ReadAhead(Iterator[T]):
    """A run of a reader with threads that read ahead; they start when the first sample is asked for.

    An interrupt while the consumer waits loses no sample.

    Parameters
    ----------
    begin : callable
        Starts the threads.
    """

    def __init__(self, begin: Callable[[], Channel[T]]) -> None:
        self._begin = begin
        self._results: Channel[T] | None = None
        self._own = threading.local()
        """The sample that a thread has peeked at."""

    def __next__(self) -> T:
        sample = self.peek()
        self.go_on()
        return sample

    def peek(self) -> T:
        """The next sample; further calls in the same thread return it too, until `go_on` is called.

        Raises
        ------
        StopIteration
            If there is none.
        """
        if self._results is None:
            with deferred():
                self._results = self._begin()
        if not hasattr(self._own, "sample"):
            self._results.take(self._own)
        sample = self._own.sample
        if isinstance(sample, Failure) or sample is END:
            self.close()
            if sample is END:
                raise StopIteration
            if isinstance(sample.error, StopIteration):  # raised as it is, it would mean a normal end
                raise RuntimeError("a reader or mapper raised StopIteration") from sample.error
            raise sample.error
        return cast("T", sample)

    def peek_at(self, count: int) -> list[T]:
        """The next samples, as `peek` gives the next one; if there are fewer, they are lost."""
        samples: list[T] = self._own.__dict__.setdefault("samples", [])
        while len(samples) < count:
            samples.append(self.peek())
            del self._own.sample
        return samples

    def go_on(self) -> None:
        """Drop what `peek` or `peek_at` has returned."""
        self._own.__dict__.clear()

    def close(self) -> None:
        """End the threads and the samples."""
        self.go_on()
        if self._results is None:
            self._results = Channel(1, producers=0)
        self._results.close()

    __del__ = close


class Channel(Generic[T]):
    """A bounded queue from several producers to several consumers, each of which may leave at any time."""

    def __init__(self, size: int, producers: int) -> None:
        self._items: deque[T | Failure] = deque()
        self._size = size if size > 0 else math.inf
        self._producers = producers
        self._turn = 0
        self._closed = False
        # Re-entrant: the garbage collector may close an abandoned run in the middle of any method here.
        self._changed = threading.Condition(threading.RLock())
        self._wake = threading.Lock()
        """Locked while consumers wait; each change unlocks it."""

    def put(self, item: T | Failure, turn: int | None) -> bool:
        """Wait for room, and for `turn` if given, then append `item`; False if the consumer has left."""

        def may_go_on() -> bool:
            return self._closed or (len(self._items) < self._size and turn in (None, self._turn))

        with self._changed:
            self._changed.wait_for(may_go_on)
            if self._closed:
                return False
            self._items.append(item)
            self._turn += 1
            self._changed.notify_all()
            self._wake_consumers()
            return True

    def take(self, into: Any) -> None:
        """Wait for an item and set ``into.sample`` to it, or to `END` if no producer and no item is left."""
        while True:
            with deferred(), self._changed:
                if self._items or self._closed or not self._producers:
                    into.sample = self._items.popleft() if self._items else END
                    self._changed.notify_all()
                    self._wake_consumers()  # for another consumer that waits
                    return
                self._wake.acquire(blocking=False)
            # An interrupt may end this wait; the wait of a condition would first have to take its lock again.
            self._wake.acquire()

    def leave(self) -> None:
        """Count one producer less; consumers are woken."""
        with self._changed:
            self._producers -= 1
            self._changed.notify_all()
            self._wake_consumers()

    def close(self) -> None:
        """End the queue: items are dropped, producers and consumers that wait are woken."""
        with deferred(), self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
            self._wake_consumers()

    def _wake_consumers(self) -> None:
        if self._wake.locked():
            self._wake.release()
