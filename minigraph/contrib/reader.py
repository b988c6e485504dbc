"""A reader for one of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from minigraph.dygraph.parallel import ParallelEnv
from minigraph.errors import ProgramError
from minigraph.support.public import public, refuse_unknown_names

__path__: list[str] = []  # lets Python ask for fluid's modules in it, see `minigraph.support.fluid_paths`
__all__ = ["distributed_batch_reader"]


@public
def distributed_batch_reader(batch_reader: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    """Give each rank its batch of each round of batches; batches of an unfinished round are left out.

    The environment variables ``PADDLE_TRAINERS_NUM`` and ``PADDLE_TRAINER_ID`` say which rank this is; by default it is
    the only one, which gets all batches.

    Parameters
    ----------
    batch_reader : callable
        Returns an iterator over batches.

    Examples
    --------
    >>> list(distributed_batch_reader(lambda: iter([[1, 2], [3, 4]]))())
    [[1, 2], [3, 4]]
    """
    env = ParallelEnv()
    ranks, rank = env.nranks, env.local_rank
    if not 0 <= rank < ranks:
        raise ProgramError(f"PADDLE_TRAINER_ID is {rank}, PADDLE_TRAINERS_NUM {ranks}", hint="Number ranks from 0.")

    def read() -> Iterator[Any]:
        batches = iter(batch_reader())
        while len(turn := list(islice(batches, ranks))) == ranks:
            yield turn[rank]

    return read


refuse_unknown_names(__name__)
