"""Exchange between the ranks of data-parallel training: what the original's collective transpilers insert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, dropwhile
from typing import Any

from minigraph.errors import ProgramError, warn
from minigraph.ir import Block, Operator, Parameter, Program, Role, Variable
from minigraph.opdef import GRAD_SUFFIX, is_update
from minigraph.passes.base import Pass

SNAPSHOT = "@SNAPSHOT"
"""Ending of the name under which `LocalSGD` keeps a parameter as it was when the ranks last agreed."""


@dataclass(frozen=True)
class Collective(Pass):
    """Base of the passes that make a program one of several ranks.

    Attributes
    ----------
    ranks : int
        Number of ranks; for 1 there is nothing to change.
    rings : int
        Number of groups of connections, which exchanges take in turns.
    """

    ranks: int
    rings: int = 1

    def __post_init__(self) -> None:
        for what, number in (("ranks", self.ranks), ("rings", self.rings)):
            if number < 1:
                raise ProgramError(f"{self.name}: {what} must be at least 1, got {number}")

    def _turns(self) -> Iterator[dict[str, int]]:
        return ({"ring_id": number % self.rings} for number in count())


def exchange_of(program: Program) -> Operator | None:
    """The first operator that sums a parameter or its gradient over the ranks; None if the program is that of one.

    Running statistics, which are parameters that nothing trains, may be summed in any program.
    """
    block = program.global_block()
    names = {name for op in block.ops if op.role & Role.BACKWARD for name in op.role_vars[1::2]}
    names.update(param.name for param in block.all_parameters() if param.trainable)
    return next((op for op in block.ops.of_type("c_allreduce_sum") if op.inputs["X"][0] in names), None)


@dataclass(frozen=True)
class GradAllReduce(Collective):
    """Divide the gradient of the loss by the number of ranks, and sum each parameter's gradient over the ranks.

    A gradient is summed where the backward pass has made it, so that clips and decays, which come later, see the sum.

    Law: if the loss is a mean over its samples and all ranks have the same number of samples, each rank's updates are
    those of one rank with all samples, apart from rounding.

    Attributes
    ----------
    scales_loss : bool
        Whether to divide; otherwise the sum of the ranks' losses is minimized.

    Raises
    ------
    ProgramError
        If the program has no backward pass.

    References
    ----------
    ``fluid.transpiler.collective.GradAllReduce`` of Paddle 1.8.5, whose operators, order and rings these are.
    """

    scales_loss: bool = True

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        backward = [op for op in block.ops if op.role & Role.BACKWARD]
        if self.ranks == 1 or exchange_of(program) is not None:
            return False
        if not backward:
            raise ProgramError(
                f"{self.name}: the program has no backward pass",
                hint="Call minimize or append_backward on its loss first.",
            )
        if self.scales_loss:
            self._scale(backward)
        reduced = self._reduce(backward)
        if reduced is not None:
            self._wait(block, reduced)
        return True

    def _scale(self, backward: list[Operator]) -> None:
        """Divide the gradient of each loss by the number of ranks."""
        for op in backward:
            if op.role & Role.LOSS:
                attrs = {"scale": 1.0 / self.ranks, "op_role": Role.BACKWARD}
                _in_place(op.block, "scale", op.block.vars[op.output_arg_names[0]], op._next, attrs)

    def _reduce(self, backward: list[Operator]) -> Variable | None:
        """Sum the gradients over the ranks; the first that the program makes is returned."""
        turns = self._turns()
        grad = None
        for op in reversed(backward):
            after = op._next
            for i, name in enumerate(op.role_vars[1::2]):
                grad = op.block.vars[name]
                if i == 0:
                    _in_place(op.block, "c_sync_calc_stream", grad, after, {"op_role": Role.BACKWARD})
                attrs = {**next(turns), "op_role": Role.BACKWARD}
                # The next one goes in front: rings take turns from the end of the program.
                after = _in_place(op.block, "c_allreduce_sum", grad, after, attrs)
        return grad

    def _wait(self, block: Block, reduced: Variable) -> None:
        """Wait for the sums in front of the first update, and of whatever else reads one that nothing has waited for.

        Counters of averages, which are updates too, may stand in front of all operators.
        """
        summed: set[str] = set()
        is_updating = False
        for op in list(dropwhile(lambda op: reduced.name not in op.output_arg_names, block.ops)):
            if op.type == "c_allreduce_sum":
                summed.update(op.output("Out"))
            elif not is_updating and op.role & Role.OPTIMIZE:
                self._wait_before(op, reduced)
                summed, is_updating = set(), True
            elif early := summed.intersection(op.input_arg_names):  # such as an error_clip, or updates by another loss
                self._wait_before(op, block.vars[min(early)])
                summed.clear()

    def _wait_before(self, op: Operator, reduced: Variable) -> None:
        for ring in range(self.rings):
            attrs = {"ring_id": ring, "op_role": Role.BACKWARD}
            _in_place(op.block, "c_sync_comm_stream", reduced, op, attrs)


def feed_gradients_of_losses(program: Program) -> None:
    """Let the gradients of losses be fed, in place of the operators that make them."""
    block = program.global_block()
    for op in list(block.ops):
        if op.role & Role.BACKWARD and op.role & Role.LOSS:
            block.vars[op.output_arg_names[0]].is_data = True
            block.remove(op)


@dataclass(frozen=True)
class LocalSGD(Collective):
    """Let each rank update its own parameters, and replace these by their mean over the ranks.

    The startup program must keep each parameter under its name and ``@SNAPSHOT``, as `keep_snapshots` has it.

    Law: with plain gradient descent and equal numbers of samples, each rank's parameters are those of one rank with
    all samples, but for rounding. It is so with momentum and decays, too, but not with clips: each rank clips its own
    gradients, as in the original.

    Warns
    -----
    UserWarning
        If the program clips gradients.

    References
    ----------
    ``fluid.transpiler.collective.LocalSGD`` of Paddle 1.8.5, whose operators, order and rings these are.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        updates = [op for op in block.ops if is_update(op.definition)]
        if self.ranks == 1 or not updates or exchange_of(program) is not None:
            return False
        if clips := [op for op in block.ops if op.role & Role.CLIP]:
            clipped = dict.fromkeys(name for op in clips for name in op.input_arg_names if name.endswith(GRAD_SUFFIX))
            warn(
                f"{self.name} averages parameters, so that each rank clips its own {', '.join(clipped)}, as in Paddle, "
                "and ranks do not train as one: use GradAllReduce to clip the gradients of all samples (created at "
                f"{clips[0].site})"
            )
        turns = self._turns()
        kept: list[tuple[Variable, Variable]] = []
        role = {"op_role": Role.OPTIMIZE}
        for op in reversed(updates):
            param, after = block.vars[op.input("Param")[0]], op._next
            snapshot = _snapshot(block, param)
            # The mean of the changes instead of that of the parameters, whose sum would lose digits.
            _append(block, "elementwise_sub", {"X": snapshot, "Y": param}, param, after, role)
            _in_place(block, "c_sync_calc_stream", param, after, role)
            _in_place(block, "c_allreduce_sum", param, after, {**next(turns), **role})
            kept.append((param, snapshot))
        for ring in range(self.rings):
            _in_place(block, "c_sync_comm_stream", kept[-1][0], None, {"ring_id": ring, **role})
        for param, snapshot in reversed(kept):
            _in_place(block, "scale", param, None, {"scale": 1.0 / self.ranks, **role})
            _append(block, "elementwise_sub", {"X": snapshot, "Y": param}, param, None, role)
            _append(block, "assign", {"X": param}, snapshot, None, role)
        return True


def keep_snapshots(startup: Program) -> None:
    """Keep each parameter's first value for `LocalSGD`."""
    block = startup.global_block()
    for param in block.all_parameters():
        _append(block, "assign", {"X": param}, _snapshot(block, param), None, {"op_role": Role.FORWARD})


def broadcast_parameters(startup: Program, rings: int) -> None:
    """Let every rank start with the parameters of rank 0."""
    broadcast(startup, startup.global_block().all_parameters(), rings)


def broadcast(program: Program, variables: Sequence[Variable], rings: int) -> None:
    """Append operators that give every rank the values of rank 0."""
    block = program.global_block()
    for number, var in enumerate(variables):
        attrs = {"ring_id": number % rings, "root": 0, "op_role": Role.FORWARD}
        _in_place(block, "c_broadcast", var, None, attrs)
    for ring in range(rings if variables else 0):
        _in_place(block, "c_sync_comm_stream", variables[-1], None, {"ring_id": ring, "op_role": Role.FORWARD})


def _snapshot(block: Block, param: Parameter | Variable) -> Variable:
    return block.create_var(
        name=param.name + SNAPSHOT, shape=param.shape, dtype=param.dtype, persistable=True, stop_gradient=True
    )


def _in_place(block: Block, type: str, var: Variable, before: Operator | None, attrs: Mapping[str, Any]) -> Operator:
    return _append(block, type, {"X": var}, var, before, attrs)


def _append(
    block: Block, type: str, inputs: Mapping[str, Any], out: Variable, before: Operator | None, attrs: Mapping[str, Any]
) -> Operator:
    """Insert an operator in front of `before`, or at the end if that is None."""
    with block.inserting_before(before):
        return block.append_op(type, dict(inputs), {"Out": out}, dict(attrs))
