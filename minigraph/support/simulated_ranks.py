"""Ranks that are threads of one process, for tests, lessons, and programs that are given several places."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np

from minigraph.errors import CommunicationError
from minigraph.support.communicator import REDUCTIONS, Call, Communicator, check_same, communicating, copied
from minigraph.support.reduced_in_place import reduce_part, total_of
from minigraph.support.undo import unnoted

T = TypeVar("T")

_END = Call("the end of the run", "", 0, "", ())


class _Meeting:
    """The memory in which the ranks of one run exchange arrays."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        # Two rounds in turn: a rank that is ahead does not write where a slower one still reads.
        self.rounds: list[list[Any]] = [[None] * size, [None] * size]
        self.histories: list[list[Call]] = [[] for _ in range(size)]
        self.totals = [(0.0, 0.0)] * size
        """Sums of squares of each rank's part of the latest sum in place."""
        self.failed: tuple[int, BaseException] | None = None
        self._lock = threading.Lock()

    def fail(self, rank: int, error: BaseException) -> None:
        """Let every rank that waits, or will, end with an error."""
        with self._lock:
            self.failed = self.failed or (rank, error)
        self.barrier.abort()


class SimulatedRank(Communicator):
    """One of several ranks that share a process."""

    _min_split = 1 << 16  # threads wait longer for a second exchange than they add up fewer elements

    def __init__(self, rank: int, meeting: _Meeting, shares_state: bool) -> None:
        self.rank, self.size = rank, meeting.barrier.parties
        self.shares_state = shares_state
        self._meeting = meeting

    def gather(self, array: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        # A copy, because this rank may write over the array while others still read it.
        return self._exchange(array.copy(), call)

    def scatter(self, parts: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        given = self._exchange(parts.copy(), call)
        return [each[self.rank] for each in given]

    def all_reduce(
        self, array: np.ndarray[Any, Any], reduction: str, call: Call, out: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        if array.size < self._min_split:
            return super().all_reduce(array, reduction, call, out)
        is_target = out is not None and out.flags.c_contiguous
        target = out if is_target and out is not None else np.empty(array.shape, array.dtype)
        self._reduce(np.ascontiguousarray(array), target, REDUCTIONS[reduction], call, None)
        return target if is_target else copied(target, out)

    def sum_with_squares(
        self, array: np.ndarray[Any, Any], call: Call, squares: Callable[[np.ndarray[Any, Any]], Sequence[float]]
    ) -> float | None:
        if array.size < self._min_split:
            return super().sum_with_squares(array, call, squares)
        return self._reduce(array, array, np.add, call, squares)

    def _reduce(
        self,
        array: np.ndarray[Any, Any],
        target: np.ndarray[Any, Any],
        combine: Callable[..., Any],
        call: Call,
        squares: Callable[[np.ndarray[Any, Any]], Sequence[float]] | None,
    ) -> float | None:
        """Reduce this rank's part of the ranks' arrays, and write it to the targets of all; as `reduce_part` does."""
        both = self._exchange((array.reshape(-1), target.reshape(-1)), call)
        given, targets = zip(*both, strict=True)
        # Nobody reads the totals before any more, because all have come here.
        self._meeting.totals[self.rank] = reduce_part(self.rank, given, targets, combine, squares)
        self._wait()
        return total_of(self._meeting.totals)

    def end(self) -> None:
        """Raise if others still exchange what this rank does not."""
        self._exchange(None, _END)

    def _exchange(self, given: Any, call: Call) -> list[Any]:
        meeting = self._meeting
        calls = meeting.histories[self.rank]
        here = meeting.rounds[len(calls) % 2]
        calls.append(call)
        here[self.rank] = given
        self._wait()
        # Only on failure are histories cut, which grow with each exchange.
        if any(history[len(calls) - 1] != call for history in meeting.histories):
            check_same([history[: len(calls)] for history in meeting.histories])
        return list(here)

    def _wait(self) -> None:
        """Wait until all ranks are here."""
        try:
            self._meeting.barrier.wait()
        except threading.BrokenBarrierError:
            rank, error = self._meeting.failed or (self.rank, None)
            raise CommunicationError(f"rank {rank} failed: {error}") from None


@unnoted  # a call that fails on one rank undoes what this rank has built, not what others have
def run_ranks(functions: Sequence[Callable[[], T]], shares_state: bool = False) -> list[T]:
    """Call each function in a thread of its own as one rank; return their results in order.

    `shares_state` says that they run with one scope.

    Raises
    ------
    CommunicationError
        If the ranks make different exchanges.
    Exception
        What a function raised; of several, the first one's that is not about the failure of another.
    """
    meeting = _Meeting(len(functions))
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException | None] = [None] * len(functions)

    def work(rank: int) -> None:
        communicator = SimulatedRank(rank, meeting, shares_state)
        try:
            with communicating(communicator):
                results[rank] = functions[rank]()
                communicator.end()
        except BaseException as error:
            errors[rank] = error
            meeting.fail(rank, error)

    threads = [
        threading.Thread(target=copy_context().run, args=(work, rank), name=f"rank {rank}", daemon=True)
        for rank in range(len(functions))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # such as Ctrl-C
        meeting.fail(0, error)
        for thread in threads:
            thread.join()
        raise
    if meeting.failed is not None:
        raise meeting.failed[1]
    return results
