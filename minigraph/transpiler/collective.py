"""Fluid's classes that make programs of one rank out of programs; imports the passes that do it."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph import unique_name
from minigraph.errors import ProgramError
from minigraph.ir import Program, Role
from minigraph.ir.default_programs import default_main_program, default_startup_program
from minigraph.passes.ranks import collective as passes
from minigraph.support.public import public
from minigraph.types import VarKind

__all__ = ["GradAllReduce", "LocalSGD"]


@public
class GradAllReduce:
    """Insert what sums gradients over ranks into a program, see `minigraph.passes.GradAllReduce`.

    Parameters
    ----------
    nrings : int
        Number of groups of connections, which exchanges take in turns.

    Examples
    --------
    >>> import minigraph as fluid
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup):
    ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
    ...     fluid.optimizer.SGD(0.1).minimize(loss)  # doctest: +ELLIPSIS
    ([...)
    >>> ranks = ["127.0.0.1:6170", "127.0.0.1:6171"]
    >>> fluid.transpiler.collective.GradAllReduce(1).transpile(startup, main, 0, ranks, ranks[0], wait_port=False)
    >>> [op.type for op in main.global_block().ops if op.type.startswith("c_")]  # doctest: +NORMALIZE_WHITESPACE
    ['c_sync_calc_stream', 'c_allreduce_sum', 'c_sync_calc_stream', 'c_allreduce_sum', 'c_sync_comm_stream']
    """

    mode = "grad_allreduce"

    def __init__(self, nrings: int = 2) -> None:
        self.nrings = nrings

    def transpile(
        self,
        startup_program: Program | None,
        main_program: Program | None,
        rank: int,
        endpoints: str | Sequence[str],
        current_endpoint: str,
        wait_port: bool,
    ) -> None:
        """Change both programs in place.

        Parameters
        ----------
        startup_program, main_program : Program, optional
            Default: the default programs. The startup program is made to give every rank the parameters of rank 0.
        rank : int
            Number of this rank, from 0.
        endpoints : str or sequence of str
            Addresses of all ranks, at least two, in order; a string has commas between them.
        current_endpoint : str
            Address of this rank.
        wait_port : bool
            In the original, whether rank 0 waits for the others; here the launcher does.

        Raises
        ------
        ProgramError
            If the ranks do not fit, or the program has no backward pass or exchanges already.
        """
        _check_once(main_program or default_main_program())
        addresses = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        startup = startup_program or default_startup_program()
        init_communicators(startup, current_endpoint, addresses, rank, self.nrings)
        passes.broadcast_parameters(startup, self.nrings)
        self._change(startup, main_program or default_main_program(), len(addresses))

    def _change(self, startup: Program, main: Program, ranks: int) -> None:
        passes.GradAllReduce(ranks, self.nrings).apply(main)


@public
class LocalSGD(GradAllReduce):
    """Insert what averages parameters over ranks into a program, see `minigraph.passes.LocalSGD`.

    Parameters
    ----------
    nrings : int
        Number of groups of connections, which exchanges take in turns.
    """

    mode = "local_sgd"
    snapshot_key = passes.SNAPSHOT

    def snapshot_name(self, param_name: str) -> str:
        """Name under which the last common value of a parameter is kept."""
        return param_name + self.snapshot_key

    def _change(self, startup: Program, main: Program, ranks: int) -> None:
        passes.keep_snapshots(startup)
        passes.LocalSGD(ranks, self.nrings).apply(main)


def init_communicators(startup: Program, current: str, endpoints: Sequence[str], rank: int, rings: int) -> None:
    """Append operators that connect the ranks at `endpoints`, and check that they run."""
    _check_ranks(rank, endpoints, current)
    for ring in range(rings):
        _init_communicator(startup, current, endpoints, rank, ring)


def _check_once(main: Program) -> None:
    """Raise if a program was transpiled before: the original then divides and sums its gradients twice."""
    op = passes.exchange_of(main)
    if op is not None:
        raise ProgramError(
            "transpile: the program sums over ranks already", details=[str(op)], site=op.site,
            hint="Call transpile once, or on a clone from before the first call.",
        )  # fmt: skip


def _check_ranks(rank: int, endpoints: Sequence[str], current: str) -> None:
    if len(endpoints) < 2:
        raise ProgramError(
            f"transpile needs the addresses of at least 2 ranks, got {list(endpoints)}",
            hint="Run the program as it is on one rank.",
        )
    if not 0 <= rank < len(endpoints):
        raise ProgramError(f"rank must be from 0 to {len(endpoints) - 1}, got {rank}")
    if current not in endpoints:
        raise ProgramError(f"current_endpoint {current!r} is not among the endpoints {', '.join(endpoints)}")


def _init_communicator(startup: Program, current: str, endpoints: Sequence[str], rank: int, ring: int) -> None:
    block = startup.global_block()
    name = block.create_var(name=unique_name.generate("nccl_id"), persistable=True, type=VarKind.RAW)
    others = [each for each in endpoints if each != current]
    attrs = {"rank": rank, "endpoint": current, "other_endpoints": others, "op_role": Role.FORWARD}
    block.append_op("c_gen_nccl_id", {}, {"Out": name}, attrs)
    block.append_op(
        "c_comm_init",
        {"X": name},
        {},
        {"nranks": len(endpoints), "rank": rank, "ring_id": ring, "op_role": Role.FORWARD},
    )
