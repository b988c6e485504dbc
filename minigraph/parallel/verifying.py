"""Refuse programs of several ranks whose numbers are not those of one rank."""

from __future__ import annotations

from itertools import zip_longest

from minigraph.errors import VerifyError
from minigraph.ir import Operator, Program
from minigraph.parallel.division import check_averages, check_division, check_kept_sums
from minigraph.parallel.sources import check_sources
from minigraph.parallel.spread_walk import SpreadWalk, exchanges
from minigraph.parallel.waits import check_waits
from minigraph.support.public import public


@public
def verify(
    program: Program, *others: Program, statistics: str = "global", ranks: int | None = None, scales_loss: bool = True
) -> None:
    """Raise unless a program of one of several ranks computes what one rank with all samples would.

    What is fed is local to a rank, parameters are the same on every rank, and the gradient of a parameter is one rank's
    part of a sum until it is summed over the ranks. From there each operator says what its results are.

    Parameters
    ----------
    program : Program
        The program of rank 0, as `DataParallel` makes it.
    others : Program
        Those of the other ranks, if they differ: all must make the same exchanges in the same order.
    statistics : {'global', 'local'}
        Whether what the forward pass keeps, such as the statistics of a batch norm, is to be that of all samples.
    ranks : int, optional
        Number of ranks. Default: the number by which gradients are divided.
    scales_loss : bool
        Whether gradients must be divided by the number of ranks, because losses are means over samples.

    Raises
    ------
    VerifyError
        It names the operator, what is wrong, and what to do.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import parallel
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main):
    ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1, bias_attr=False))
    ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
    >>> parallel.verify(parallel.DataParallel(ranks=2)(main))
    >>> parallel.verify(main)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    VerifyError: sgd updates fc_0.w_0 by one rank's part of its gradient
    """
    check_sources(program)
    check = SpreadWalk(program, statistics == "local")
    check.run()
    if check.kept:  # the next step reads what this one has kept
        SpreadWalk(program, keeps_local=True, kept=check.kept).run()
    check_waits(program)
    if check.is_local_sgd:
        check_averages(program, ranks)
    else:
        check_kept_sums(program)
        if scales_loss:
            check_division(program, ranks)
    for rank, other in enumerate(others, 1):
        _check_order(program, other, rank)


def _check_order(program: Program, other: Program, rank: int) -> None:
    """Raise unless two ranks make the same exchanges in the same order."""
    for mine, theirs in zip_longest(exchanges(program), exchanges(other)):
        shown = [None if op is None else (op.type, op.inputs, _ring(op)) for op in (mine, theirs)]
        if shown[0] != shown[1]:
            raise VerifyError(
                f"rank 0 and rank {rank} exchange in different order", op=mine or theirs,
                law="all ranks make the same exchanges in the same order",
                details=[f"rank 0: {mine or 'nothing more'}", f"rank {rank}: {theirs or 'nothing more'}"],
                hint="Make the programs of all ranks from one program, without conditions on the rank.",
            )  # fmt: skip


def _ring(op: Operator) -> int | None:
    """The ring of an exchange; a batch norm has none to choose."""
    return op.attr("ring_id") if "ring_id" in op.definition.attrs else None
