"""Exchange of arrays between the ranks that run one program, and the communicator of the running rank.

Sums of floating-point numbers depend on their order. Every sum over ranks is that of a binary tree over them, so that
its bits depend on nothing else: not on how arrays travel, and not on which rank adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from minigraph.errors import CommunicationError, ExecutionError

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
}  # fmt: skip
"""What `Communicator.all_reduce` does with the arrays of two ranks."""

_MIN_SPLIT = 4096
"""Minimum elements of an array that ranks reduce a part each of; of a smaller one each rank gets every array."""


class Call(NamedTuple):
    """One exchange as the ranks compare it: all must make the same calls in the same order."""

    operator: str
    name: str
    """Variable that is exchanged."""
    ring: int
    dtype: str
    shape: tuple[int, ...]
    """Its first number is -1 where ranks may give different numbers of rows."""

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
    """

    rank: int
    size: int

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
        """What the ranks give for this rank: each gives one of `parts` for each rank.

        The arrays are gone at the next exchange. Errors as in `gather`.
        """

    def all_gather(self, array: np.ndarray[Any, Any], call: Call) -> np.ndarray[Any, Any]:
        """The arrays of all ranks along the first dimension."""
        return np.concatenate(self.gather(array, call))

    def broadcast(self, array: np.ndarray[Any, Any], root: int, call: Call) -> np.ndarray[Any, Any]:
        """The array of rank `root`."""
        return self.gather(array, call)[root].copy()

    def all_reduce(self, array: np.ndarray[Any, Any], reduction: str, call: Call) -> np.ndarray[Any, Any]:
        """The sum (`reduction`: 'sum', 'max', 'min' or 'prod') over all ranks, on every rank the same bits."""
        combine = REDUCTIONS[reduction]
        flat = array.reshape(-1)
        if flat.size < max(_MIN_SPLIT, self.size):
            reduced: np.ndarray[Any, Any] = tree(self.gather(flat, call), combine)
            return reduced.reshape(array.shape)
        # Each rank reduces one part, then all get all parts: every element travels twice, whatever the ranks.
        length = -(-flat.size // self.size)
        padded = flat if flat.size == length * self.size else np.resize(flat, length * self.size)
        mine = tree(self.scatter(padded.reshape(self.size, length), call), combine)
        return self.all_gather(mine, call)[: flat.size].reshape(array.shape)

    def reduce_scatter(self, array: np.ndarray[Any, Any], call: Call) -> np.ndarray[Any, Any]:
        """The part of this rank, along the first dimension, of the sum over all ranks."""
        parts = array.reshape(self.size, array.shape[0] // self.size, *array.shape[1:])
        reduced: np.ndarray[Any, Any] = tree(self.scatter(parts, call), np.add)
        return reduced

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.gather(np.zeros(1, np.int8), Call("barrier", "", 0, "int8", (1,)))


def tree(values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """What is left when neighbours are combined until one value is left.

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


class Alone(Communicator):
    """The communicator of a process that has no other ranks."""

    rank, size = 0, 1

    def gather(self, array: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        return [array]

    def scatter(self, parts: np.ndarray[Any, Any], call: Call) -> Sequence[np.ndarray[Any, Any]]:
        return list(parts)

    def all_reduce(self, array: np.ndarray[Any, Any], reduction: str, call: Call) -> np.ndarray[Any, Any]:
        return array.copy()

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


@contextmanager
def communicating(communicator: Communicator) -> Iterator[None]:
    """Let operators that run inside exchange arrays by `communicator`."""
    token = _CURRENT.set(communicator)
    try:
        yield
    finally:
        _CURRENT.reset(token)


_SHOWN = 5
"""Number of exchanges of each rank that an error shows."""


def check_same(histories: Sequence[Sequence[Call]]) -> None:
    """Raise unless the ranks, whose exchanges so far are `histories`, all make the same one now.

    Raises
    ------
    CommunicationError
        It names the latest exchanges of every rank.
    """
    if len({history[-1] for history in histories}) == 1:
        return
    details = []
    for rank, history in enumerate(histories):
        details.append(f"rank {rank}, exchanges {max(1, len(history) - _SHOWN + 1)} to {len(history)}:")
        details += [f"  {call}" for call in history[-_SHOWN:]]
    raise CommunicationError(
        "ranks that run one program make different exchanges",
        details=details,
        hint="Give every rank the same collective operators in the same order, and the same variables to fetch.",
    )


def check_size(expected: int) -> None:
    """Raise unless there are as many ranks as a program was made for."""
    size = current().size
    if size != expected:
        raise ExecutionError(
            f"the program is for {expected} ranks, but {size} {'run' if size > 1 else 'runs'}",
            hint=f"Start the script by `python -m minigraph launch -n {expected} SCRIPT`.",
        )
