"""Refuse programs that use a value while it is exchanged: on a GPU an exchange has a stream of its own."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.ir.dataflow import is_persistable
from minigraph.parallel.wrong import every_op, wrong

_QUEUED = ("c_allreduce", "c_broadcast", "c_allgather", "c_reducescatter")
"""Beginnings of the types of exchanges that run beside the computation, unless `use_calc_stream` is set."""
_LAW = "nothing uses a value while it is exchanged"


def is_queued(op: Operator) -> bool:
    """Whether an exchange runs on the stream of its ring."""
    return op.type.startswith(_QUEUED) and not op.attr("use_calc_stream")


def check_waits(program: Program) -> None:
    """Raise unless computation and exchanges wait for each other, on rings that are connected.

    An exchange begins when ``c_sync_calc_stream`` has waited for what it reads, and has ended after the
    ``c_sync_comm_stream`` of its ring.

    Raises
    ------
    VerifyError
    """
    _check_rings(program)
    walk = _Walk()
    for op in every_op(program.global_block()):
        walk.visit(op)
    for name, exchange in walk.exchanged.items():
        if is_persistable(program.global_block().find_var(name)):
            raise wrong(
                exchange, f"gives {name} a value, for which nothing waits", "the next step may read the old one",
                f"Put c_sync_comm_stream with ring_id={exchange.attr('ring_id')} at the end.", law=_LAW,
            )  # fmt: skip


def _check_rings(program: Program) -> None:
    """Raise if an exchange is on a ring beyond the number of rings: transpilers connect those from 0 on."""
    ops = [op for op in every_op(program.global_block()) if op.type.startswith("c_") and op.has_attr("ring_id")]
    rings = {op.attr("ring_id") for op in ops}
    for op in ops:
        if op.attr("ring_id") >= len(rings):
            raise wrong(
                op, f"is on ring {op.attr('ring_id')}, but the program has {len(rings)} ring{'s' * (len(rings) > 1)}",
                "its exchange has no connection, or ranks take it for another one",
                f"Set ring_id to a number below {len(rings)}.", law="rings are numbered from 0",
            )  # fmt: skip


class _Walk:
    """Exchanges that may not have ended, and values that may not be there yet, from operator to operator."""

    def __init__(self) -> None:
        self.exchanged: dict[str, Operator] = {}
        """Values that are being exchanged, and by what."""
        self.computed: dict[str, Operator] = {}
        """Values that the computation may still write, and by what."""

    def visit(self, op: Operator) -> None:
        if op.type == "c_sync_comm_stream":
            ring = op.attr("ring_id")
            self.exchanged = {name: each for name, each in self.exchanged.items() if each.attr("ring_id") != ring}
        elif op.type == "c_sync_calc_stream":
            self.computed.clear()
        else:
            self._check_exchanged(op)
            self._compute(op)

    def _check_exchanged(self, op: Operator) -> None:
        for name in (*op.input_arg_names, *op.output_arg_names):
            exchange = self.exchanged.get(name)
            if exchange is None or (is_queued(op) and op.attr("ring_id") == exchange.attr("ring_id")):
                continue
            raise wrong(
                op, f"uses {name} while {exchange.type} exchanges it", "it may get the value of one rank",
                f"Put c_sync_comm_stream with ring_id={exchange.attr('ring_id')} in front of it, or give the exchange "
                "use_calc_stream=True.", [f"before: {exchange}"], _LAW,
            )  # fmt: skip

    def _compute(self, op: Operator) -> None:
        if not is_queued(op):
            self.computed.update(dict.fromkeys(op.output_arg_names, op))
            return
        name = op.input("X")[0]
        if name in self.computed and not op.type.startswith("c_broadcast"):  # nothing else waits in startup programs
            raise wrong(
                op, f"exchanges {name}, which {self.computed[name].type} may still compute", "it may be an old value",
                "Put c_sync_calc_stream in front of it, or give it use_calc_stream=True.",
                [f"before: {self.computed[name]}"], _LAW,
            )  # fmt: skip
        self.exchanged.update(dict.fromkeys((name, *op.output_arg_names), op))
