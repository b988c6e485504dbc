"""Measured sums: ranks add up squares of gradients while they sum these, and a norm of the sums does not read them.

A norm may do so if it reads just the values that an exchange writes over one vector. Values are written once, so that
nothing changes them in between.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from minigraph.kernels.measured_sums import OF_SQUARES, MeasuredSum
from minigraph.lowering.functions import Function
from minigraph.lowering.instructions import Instruction, Instructions
from minigraph.lowering.steps import Step
from minigraph.types import DType


def measure_sums(instructions: Instructions, over: Collection[Step], jit: bool) -> Instructions:
    """Let the norms of sums over ranks take the squares that the exchanges have added up.

    `over` are the steps that write their results over one vector. With `jit`, compiled loops add up the squares.
    """
    rows = list(instructions.rows)
    for number, row in enumerate(rows):
        if row.step in over and all(value.tensor_type.dtype is DType.FP32 for value in row.step.writes):
            norms = [later for later in range(number, len(rows)) if _is_norm_of(row.step, rows[later])]
            if norms:
                measured = MeasuredSum(jit)
                for each in (number, *norms):
                    rows[each] = _calling(measured, rows[each])
    return replace(instructions, rows=rows)


def _is_norm_of(exchange: Step, row: Instruction) -> bool:
    """Whether an instruction computes the norm of order 2 of all that an exchange has summed."""
    step = row.step
    if step.op.type not in OF_SQUARES or step.in_place or row.function is None or step.op.attr("p") != 2:
        return False
    given = step.inputs[0]
    return isinstance(given, list) and len(given) == len(exchange.writes) and set(given) == set(exchange.writes)


def _calling(measured: MeasuredSum, row: Instruction) -> Instruction:
    """The instruction with a function that measures the sum, or takes what was measured."""
    function = row.function
    assert function is not None
    call = measured.norm(row.step.op.type, function.call) if row.step.op.type in OF_SQUARES else measured.exchange
    measuring = Function(call, f"measured_{function.name}", function.takes_xp, function.constants, function.kind)
    return replace(row, function=measuring)
