"""Let matrix products transpose their operands themselves."""

from __future__ import annotations

from typing import ClassVar

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values


class TransposeIntoMatmul(Pass):
    """Turn a ``transpose2`` of the last two dimensions in front of a product into ``transpose_X`` or ``transpose_Y``.

    A ``mul`` of matrices becomes the ``matmul`` that computes the same.

    Law: every value is the same up to rounding. A ``matmul`` keeps its bits, because its kernel sees the same array
    with the same strides; the kernel of ``mul`` calls another function, which may add the products of a single row in
    another order. Gradients go on reading the transposed operand.

    Off by default: with NumPy a transpose is a view that costs a fraction of a microsecond.
    """

    changes_rounding: ClassVar[bool] = True

    def apply(self, program: Program) -> bool:
        values = Values(program)
        changed = False
        for op in program.global_block().ops:
            if op.type == "matmul" or (op.type == "mul" and _multiplies_matrices(op, values)):
                sources = {slot: found for slot in "XY" if (found := _untransposed(values, op, slot)) is not None}
                if sources:
                    _read_untransposed(op, sources)
                    changed = True
        return changed


def _multiplies_matrices(op: Operator, values: Values) -> bool:
    return all(len(values.block.vars[op.inputs[slot][0]].shape or ()) == 2 for slot in "XY")


def _untransposed(values: Values, op: Operator, slot: str) -> tuple[Value, bool] | None:
    """Return what the transposes in front of an operand read, and whether their number is odd; None if there is none.

    All are looked through at once, so that a second application finds nothing.
    """
    value, is_odd = values.input(op, slot), False
    found = None
    while (source := _transposed(values, value)) is not None:
        value, is_odd = source, not is_odd
        if values.is_there(value, op):
            found = value, is_odd
    return found


def _transposed(values: Values, value: Value) -> Value | None:
    """Return the value whose last two dimensions are exchanged in this one, if there is one."""
    transpose = values.producer(value, "transpose2")
    if transpose is None or value != values.output(transpose, "Out"):  # XShape can be read, too
        return None
    axis = list(transpose.attr("axis"))
    rank = len(axis)
    swaps_last_two = rank >= 2 and axis == [*range(rank - 2), rank - 1, rank - 2]
    return values.input(transpose, "X") if swaps_last_two else None


def _read_untransposed(op: Operator, sources: dict[str, tuple[Value, bool]]) -> None:
    inputs = {slot: sources[slot][0][0] if slot in sources else op.inputs[slot][0] for slot in "XY"}
    turned = [slot for slot, (_, is_odd) in sources.items() if is_odd]
    if op.type == "mul" and turned:
        flags = {f"transpose_{slot}": True for slot in turned}
        insert_for(op, "matmul", inputs, {"Out": op.outputs["Out"]}, flags)
        op.block.remove(op)
        return
    for slot in sources:
        op.set_input(slot, [inputs[slot]])
    for slot in turned:
        op.set_attr(f"transpose_{slot}", not op.attr(f"transpose_{slot}"))
