"""Transpose a weight once for all products with its transpose, as in the backward steps of a network."""

from __future__ import annotations

from collections import defaultdict

from minigraph import unique_name
from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.rewriting import MergeSmall, insert_for, is_matrix, is_read_by_many
from minigraph.passes.values import Value, Values


class TransposeOnce(MergeSmall):
    """Copy the transpose of a weight W for gradients ``D_t @ W'``, which are then products with the copy.

    Products of small matrices take about twice as long with a transposed one. Fewer than `least` gradients are left
    alone, those that give the gradient of W too, and those of more than `most_elements` elements.

    Law: every gradient is the same up to rounding: a library of matrix products may add in another order. Each element
    differs by at most ``2 k eps`` times that of ``|D_t| @ |W|'``, with k columns of D_t.
    """

    def apply(self, program: Program) -> bool:
        if not is_read_by_many(program, "mul_grad", self.least):
            return False
        values = Values(program)
        groups: defaultdict[Value, list[Operator]] = defaultdict(list)
        for op in program.global_block().ops.of_type("mul_grad"):
            if self._fits(op, values):
                groups[values.input(op, "Y")].append(op)
        several = [group for group in groups.values() if len(group) >= self.least]
        for group in several:
            _rewrite(group)
        return bool(several)

    def _fits(self, op: Operator, values: Values) -> bool:
        # The gradient of W wants X as well, which a plain product does not have.
        wants_x_only = op.outputs.get("Y@GRAD", (EMPTY,)) == (EMPTY,) and op.outputs.get("X@GRAD", (EMPTY,)) != (EMPTY,)
        return wants_x_only and all(
            is_matrix(values.block, op.inputs[slot][0], self.most_elements) for slot in ("X", "Y", "Out@GRAD")
        )


def _rewrite(ops: list[Operator]) -> None:
    first = ops[0]
    weight = first.inputs["Y"][0]
    view, copy, shape = (unique_name.generate(f"{weight}@{what}") for what in ("TRANSPOSE", "TRANSPOSED", "SHAPE"))
    insert_for(first, "transpose2", {"X": weight}, {"Out": view, "XShape": shape}, {"axis": [1, 0]})
    # A transpose is a view, which products are slow with; the copy lies row by row.
    insert_for(first, "assign", {"X": view}, {"Out": copy}, {})
    for op in ops:
        insert_for(op, "mul", {"X": op.inputs["Out@GRAD"], "Y": copy}, {"Out": op.outputs["X@GRAD"]}, {})
        op.block.remove(op)
