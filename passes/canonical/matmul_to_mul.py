"""Turn products with a matrix into one operator type."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for


class MatmulToMul(Pass):
    """Turn a ``matmul`` of rows and a matrix, without transposes and factor, into the ``mul`` that computes the same.

    X has at least two dimensions, of which all but the last count rows, and Y has two; likewise for ``matmul_grad``.
    The merges of products look for ``mul`` only.

    Law: every value keeps its bits: the kernels multiply the same matrices with the same strides.
    """

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        found = [op for type in ("matmul", "matmul_grad") for op in ops.of_type(type) if _is_mul(op)]
        for op in found:
            rank = len(op.block.vars[op.inputs["X"][0]].shape or ())
            type = op.type.replace("matmul", "mul")
            insert_for(op, type, op.inputs, op.outputs, {"x_num_col_dims": rank - 1})
            op.block.remove(op)
        return bool(found)


def _is_mul(op: Operator) -> bool:
    if op.attr("transpose_X") or op.attr("transpose_Y") or op.attr("alpha") != 1:
        return False
    x, y = (op.block.vars[op.inputs[slot][0]].shape or () for slot in "XY")
    return len(x) >= 2 and len(y) == 2 and -1 not in (*x, *y)
