"""Ranks that train one program together; imports the passes, the executor and the communicators.

`DataParallel` makes a program one of several ranks. ``python -m minigraph launch -n 4 train.py`` starts ranks as
processes that MPI connects, and NCCL where each has a GPU; `simulate` runs them as threads of one process, for tests
and lessons.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from minigraph.parallel.data_parallel import DataParallel
from minigraph.parallel.machine import machine
from minigraph.parallel.norms import NormsOverRanks, compare_norms
from minigraph.parallel.verifying import verify
from minigraph.support.communicator import Communicator, current
from minigraph.support.public import public, refuse_unknown_names
from minigraph.support.simulated_ranks import run_ranks

__all__ = [
    "Communicator",
    "DataParallel",
    "NormsOverRanks",
    "compare_norms",
    "machine",
    "rank",
    "simulate",
    "size",
    "verify",
]

T = TypeVar("T")


def rank() -> int:
    """Number of the running rank, from 0."""
    return current().rank


def size() -> int:
    """Number of ranks; 1 in a process that was not launched as one of several."""
    return current().size


@public
def simulate(function: Callable[[int], T], ranks: int) -> list[T]:
    """Call ``function(rank)`` in a thread for each rank, and return the results in order.

    Raises
    ------
    CommunicationError
        If the ranks make different exchanges.
    Exception
        What the function raised on the rank that failed first.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> from minigraph import parallel
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main):
    ...     x = fluid.data("x", [2])
    ...     total = main.global_block().create_var(name="total")
    ...     _ = main.global_block().append_op("c_allreduce_sum", {"X": x}, {"Out": total})
    >>> def run(rank):
    ...     return fluid.Executor().run(main, {"x": np.full(2, rank, "float32")}, [total])[0].tolist()
    >>> parallel.simulate(run, ranks=4)
    [[6.0, 6.0], [6.0, 6.0], [6.0, 6.0], [6.0, 6.0]]
    """
    return run_ranks([partial(function, number) for number in range(ranks)])


refuse_unknown_names(__name__)
