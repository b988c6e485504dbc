"""Turn products with a matrix into one operator type."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for

_TYPES = ("matmul", "matmul_grad")


class MatmulToMul(Pass):
    """Turn a ``matmul`` of rows and a matrix, without transposes and factor, into the ``mul`` that computes the same.

    X has at least two dimensions, of which all but the last count rows, and Y has two; likewise for ``matmul_grad``.
    The merges of products look for ``mul`` only.

    Law: every value keeps its bits: the kernels multiply the same matrices with the same strides.
    """

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if not any(map(ops.of_type, _TYPES)):
            return False
        changed = False
        # In their order: the result of a mul may have a shape that the product after it asks for.
        for op in [op for op in ops if op.type in _TYPES]:
            if not _is_mul(op):
                continue
            rank = len(op.block.vars[op.inputs["X"][0]].shape or ())
            type = op.type.replace("matmul", "mul")
            insert_for(op, type, op.inputs, op.outputs, {"x_num_col_dims": rank - 1})
            op.block.remove(op)
            changed = True
        return changed


def _is_mul(op: Operator) -> bool:
    if op.attr("transpose_X") or op.attr("transpose_Y") or op.attr("alpha") != 1:
        return False
    if op.type == "matmul_grad" and any(op.block.vars[name].lod_level for name in op.input_arg_names):
        return False  # the gradient of a mul has the lengths of what it belongs to
    x, y = (op.block.vars[op.inputs[slot][0]].shape or () for slot in "XY")
    return len(x) >= 2 and len(y) == 2 and -1 not in (*x, *y)
