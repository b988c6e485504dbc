"""Exchange of arrays between the ranks that run one program, and the communicator of the running rank.

Sums of floating-point numbers depend on their order. Every sum over ranks is that of a binary tree over them, so that
its bits depend on nothing else: not on how arrays travel, and not on which rank adds. NCCL alone may add in an order of
its own, unless a program is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from minigraph.errors import CommunicationError, ExecutionError
from minigraph.support.context import holding
from minigraph.support.parts import windows

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
}  # fmt: skip
"""Combination of the arrays of two ranks in `Communicator.all_reduce`."""

_PIECE = 1 << 22
"""Maximum bytes of a piece of the parts that ranks exchange: it stays in the cache until it is added up."""


class Call(NamedTuple):
    """One exchange as the ranks compare it: all must make the same calls in the same order."""

    operator: str
    name: str
    """Variable that is exchanged."""
    ring: int
    dtype: str
    shape: tuple[int, ...]
    """Shape of the array; its first number is -1 where ranks may give different numbers of rows."""

    def __str__(self) -> str:
        if not self.name:
            return self.operator
        return f"{self.operator} of {self.name}: {self.dtype}{list(self.shape)} on ring {self.ring}"


class Communicator(ABC):
    """One rank's end of the exchange.

    A subclass says how arrays travel (`gather`, `scatter`); sums and their order are here.

    Attributes
    ----------
    rank : int
        Number of this rank, from 0.
    size : int
        Number of ranks.
    shares_state : bool
        Whether the ranks run with one scope, as places of one process do.
    """

    rank: int
    size: int
    shares_state = False
    _min_split = 4096
    """Minimum elements of an array that ranks reduce a part each of; of a smaller one each rank gets every array."""
    _xp: Any = np
    """Module of the arrays that are exchanged."""
    _on_device: Communicator | None = None

    def on(self, xp: Any) -> Communicator:
        """The communicator of the same ranks for arrays of the module `xp`."""
        if xp is np:
            return self
        if self._on_device is None:
            self._on_device = self.between_devices(xp)
        return self._on_device

    def between_devices(self, xp: Any) -> Communicator:
        """A new communicator for arrays that are not in memory of the processor."""
        return ThroughHost(self, xp)

    @abstractmethod
    def gather(self, array: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        """The arrays that all ranks give, in the order of ranks; not to be written to.

        Raises
        ------
        CommunicationError
            If another rank makes another call or has ended.
        """

    @abstractmethod
    def scatter(self, parts: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        """Give one of `parts` to each rank; returns the parts that the ranks give to this one.

        The arrays are gone at the next exchange. Errors as in `gather`.
        """

    def allocate(self, size: int) -> np.ndarray[Any, Any]:
        """Memory of `size` bytes, from which exchanges may be faster than from other memory."""
        return np.empty(size, np.uint8)

    def all_gather(
        self, array: np.ndarray[Any, Any], call: Call, out: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        """The arrays of all ranks along the first dimension; in `out` if it is given, for which all are alike."""
        return np.concatenate(self.gather(array, call), out=out)

    def broadcast(self, array: np.ndarray[Any, Any], root: int, call: Call) -> np.ndarray[Any, Any]:
        """The array of rank `root`."""
        return self.gather(array, call)[root].copy()

    def all_reduce(
        self, array: np.ndarray[Any, Any], reduction: str, call: Call, out: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        """The sum (`reduction`: 'sum', 'max', 'min' or 'prod') over all ranks, on every rank the same bits.

        It is written to `out`, which may be the array itself, or to a new array.
        """
        return copied(self._reduced(array, REDUCTIONS[reduction], call), out)

    def _reduced(self, array: np.ndarray[Any, Any], combine: Callable[..., Any], call: Call) -> np.ndarray[Any, Any]:
        flat = array.reshape(-1)
        if flat.size < max(self._min_split, self.size):
            reduced: np.ndarray[Any, Any] = tree(self.gather(flat, call), combine)
            return reduced.reshape(array.shape)
        # Each rank reduces one part, then all get all parts: every element travels twice, whatever the ranks.
        length = -(-flat.size // self.size)
        missing = length * self.size - flat.size
        padded = np.concatenate([flat, flat[:missing]]) if missing else flat
        mine = tree(self.scatter(padded.reshape(self.size, length), call), combine)
        return self.all_gather(mine, call)[: flat.size].reshape(array.shape)

    def sum_with_squares(
        self, array: np.ndarray[Any, Any], call: Call, squares: Callable[[np.ndarray[Any, Any]], Sequence[float]]
    ) -> float | None:
        """Sum a vector over the ranks where it lies; return the sum of the squares of the sums, on all ranks the same.

        Numbers that `squares` gives for a part add up to the sum of its squares. None where it is not quicker to add
        up squares on the way.
        """
        self.all_reduce(array, "sum", call, array)
        return None

    def reduce_scatter(self, array: np.ndarray[Any, Any], call: Call) -> np.ndarray[Any, Any]:
        """The part of this rank, along the first dimension, of the sum over all ranks."""
        parts = array.reshape(self.size, array.shape[0] // self.size, *array.shape[1:])
        reduced: np.ndarray[Any, Any] = tree(self.scatter(parts, call), np.add)
        return reduced

    def reduce_parts(
        self, arrays: Sequence[np.ndarray[Any, Any]], parts: Sequence[np.ndarray[Any, Any]], call: Call
    ) -> None:
        """Write the sums over all ranks of this rank's parts of flat arrays to `parts`, which end in zeros for padding.

        They travel in pieces, so that little memory is needed besides.
        """
        lengths = [part.size for part in parts]
        for begin, rows in self._pieces(sum(lengths), arrays[0].dtype):
            for array, place in windows(arrays, lengths, begin, rows):
                place[: array.size] = array
                place[array.size :] = 0
            mine = tree(self.scatter(rows, call._replace(shape=rows.shape)), np.add)
            for part, place in windows(parts, lengths, begin, mine.reshape(1, -1)):
                part[...] = place

    def gather_parts(
        self, parts: Sequence[np.ndarray[Any, Any]], arrays: Sequence[np.ndarray[Any, Any]], call: Call
    ) -> None:
        """Write the parts of all ranks to flat arrays; the inverse of `reduce_parts`."""
        lengths = [part.size for part in parts]
        for begin, rows in self._pieces(sum(lengths), parts[0].dtype):
            mine = self._xp.empty_like(rows[:1])
            for part, place in windows(parts, lengths, begin, mine):
                place[...] = part
            self.all_gather(mine, call._replace(shape=mine.shape), rows)
            for part, place in windows(arrays, lengths, begin, rows):
                part[...] = place[: part.size]

    def _pieces(self, size: int, dtype: np.dtype[Any]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        """Begins of pieces of parts of `size` elements, and memory for each: a row for each rank."""
        width = max(1, _PIECE // (self.size * dtype.itemsize))
        memory = self._xp.empty(self.size * min(width, size), dtype)
        for begin in range(0, size, width):
            columns = min(width, size - begin)
            yield begin, memory[: self.size * columns].reshape(self.size, columns)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.gather(np.zeros(1, np.int8), Call("barrier", "", 0, "int8", (1,)))


def copied(array: Any, out: Any) -> Any:
    """The array, in `out` if that is not None."""
    if out is None:
        return array
    out[...] = array
    return out


def tree(values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine neighbours until one value is left.

    The tree over 8 values contains those over the first and the last 4, so that ranks which hold several neighbouring
    values may combine their own first.

    Examples
    --------
    >>> tree(["a", "b", "c", "d", "e"], lambda x, y: f"({x}{y})")
    '(((ab)(cd))e)'
    """
    while len(values) > 1:
        pairs = [combine(*values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
        values = pairs + list(values[len(pairs) * 2 :])
    return values[0]


class ThroughHost(Communicator):
    """Exchange of arrays of a GPU by another communicator, in memory of the processor."""

    def __init__(self, host: Communicator, xp: Any) -> None:
        self.rank, self.size = host.rank, host.size
        self._host, self._xp = host, xp

    def gather(self, array: Any, call: Call) -> Sequence[Any]:
        return list(map(self._xp.asarray, self._host.gather(self._xp.asnumpy(array), call)))

    def scatter(self, parts: Any, call: Call) -> Sequence[Any]:
        return list(map(self._xp.asarray, self._host.scatter(self._xp.asnumpy(parts), call)))

    def all_gather(self, array: Any, call: Call, out: Any = None) -> Any:
        return copied(self._xp.asarray(self._host.all_gather(self._xp.asnumpy(array), call)), out)

    def broadcast(self, array: Any, root: int, call: Call) -> Any:
        return self._xp.asarray(self._host.broadcast(self._xp.asnumpy(array), root, call))

    def reduce_scatter(self, array: Any, call: Call) -> Any:
        return self._xp.asarray(self._host.reduce_scatter(self._xp.asnumpy(array), call))

    def _reduced(self, array: Any, combine: Callable[..., Any], call: Call) -> Any:
        return self._xp.asarray(self._host._reduced(self._xp.asnumpy(array), combine, call))

    def barrier(self) -> None:
        self._host.barrier()


class Alone(Communicator):
    """The communicator of a process that has no other ranks."""

    rank, size = 0, 1

    def on(self, xp: Any) -> Communicator:
        return self

    def gather(self, array: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        return [array]

    def scatter(self, parts: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        return list(parts)

    def all_reduce(
        self, array: np.ndarray[Any, Any], reduction: str, call: Call, out: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        return array.copy() if out is None else out

    def reduce_scatter(self, array: np.ndarray[Any, Any], call: Call) -> np.ndarray[Any, Any]:
        return array.copy()


_CURRENT: ContextVar[Communicator | None] = ContextVar("communicator", default=None)
_process: Communicator = Alone()


def current() -> Communicator:
    """The communicator of the running rank."""
    return _CURRENT.get() or _process


def communicate_by(communicator: Communicator) -> None:
    """Make this process one of several ranks."""
    global _process
    _process = communicator


def communicating(communicator: Communicator) -> AbstractContextManager[None]:
    """Let operators that run inside exchange arrays by `communicator`."""
    return holding(_CURRENT, communicator)


_IN_ORDER: ContextVar[bool] = ContextVar("sums in order", default=False)


def sums_in_order() -> bool:
    """Whether sums over ranks must have the order of a binary tree, even if another order would be faster."""
    return _IN_ORDER.get()


def in_order() -> AbstractContextManager[None]:
    """Let sums over ranks have the order of a binary tree."""
    return holding(_IN_ORDER, True)


_SHOWN, _LINES = 5, 24
"""Maximum number of exchanges of a rank that an error shows, and of its lines on all ranks."""


def check_same(histories: Sequence[Sequence[Call]], count: int | None = None) -> None:
    """Raise unless the ranks, whose latest exchanges are `histories`, all make the same one now.

    It is number `count`; by default histories begin with the first exchange.

    Raises
    ------
    CommunicationError
        It names the latest exchanges of every rank.
    """
    if len({history[-1] for history in histories}) == 1:
        return
    alike: dict[tuple[Call, ...], list[int]] = {}
    for rank, history in enumerate(histories):
        alike.setdefault(tuple(history), []).append(rank)
    shown = max(1, min(_SHOWN, _LINES // len(alike) - 1))
    details = []
    for history, ranks in alike.items():
        latest, last = history[-shown:], count or len(history)
        details.append(f"{_named(ranks)}, exchanges {last - len(latest) + 1} to {last}:")
        details += [f"  {call}" for call in latest]
    raise CommunicationError(
        "ranks that run one program make different exchanges",
        details=details,
        hint="Give every rank the same collective operators in the same order, and the same variables to fetch.",
    )


def _named(ranks: Sequence[int]) -> str:
    """Ranks in words, such as "ranks 0 to 6"."""
    first, *_, last = (*ranks, ranks[-1])
    if first == last:
        return f"rank {first}"
    if len(ranks) == last - first + 1:
        return f"ranks {first} to {last}" if len(ranks) > 2 else f"ranks {first} and {last}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {last}"


def check_size(expected: int) -> None:
    """Raise unless there are as many ranks as a program was made for."""
    size = current().size
    if size != expected:
        raise ExecutionError(
            f"the program is for {expected} ranks, but {size} {'run' if size > 1 else 'runs'}",
            hint=f"Start the script by `python -m minigraph launch -n {expected} SCRIPT`.",
        )
