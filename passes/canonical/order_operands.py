"""Write the larger operand of sums and products first."""

from __future__ import annotations

from minigraph.ir import Block, Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.support.sizes import are_equal

_TYPES = ("elementwise_add", "elementwise_add_grad", "elementwise_mul", "elementwise_mul_grad")
_OTHER = {"X": "Y", "Y": "X", "X@GRAD": "Y@GRAD", "Y@GRAD": "X@GRAD"}


class OrderOperands(Pass):
    """Exchange X and Y of ``elementwise_add`` and ``elementwise_mul`` where X is repeated to the shape of Y.

    Likewise for their gradients. Other passes look for Y only where an operand is broadcast.

    Law: every value keeps its bits, but for those by which one NaN differs from another.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        found = [op for type in _TYPES for op in block.ops.of_type(type) if _repeats_x(op, block)]
        for op in found:
            inputs, outputs = (
                {_OTHER.get(slot, slot): names for slot, names in given.items()} for given in (op.inputs, op.outputs)
            )
            insert_for(op, op.type, inputs, outputs, {"axis": -1})
            block.remove(op)
        return bool(found)


def _repeats_x(op: Operator, block: Block) -> bool:
    """Whether X is broadcast to the shape of Y, and Y is not."""
    x, y = (block.vars.get(op.inputs[slot][0]) for slot in "XY")
    if x is None or y is None or x.tensor_type is None or y.tensor_type is None:
        return False
    small, large, axis = x.tensor_type.shape, y.tensor_type.shape, op.attr("axis")
    extra = len(large) - len(small)
    if extra < 0 or -1 in (*small, *large) or axis not in (-1, extra) or max(x.lod_level, y.lod_level) > 0:
        return False
    return not are_equal(small, large) and all(a in (1, b) for a, b in zip(small, large[extra:], strict=True))
