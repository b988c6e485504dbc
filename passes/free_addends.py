"""Shorten the lives of addends: the gradient of a sum needs none of them."""

from __future__ import annotations

from minigraph.ir import Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass

_SUMS = frozenset({"elementwise_add_grad", "elementwise_sub_grad"})


class FreeAddends(Pass):
    """Let ``elementwise_add_grad`` and ``elementwise_sub_grad`` read ``Out@GRAD`` in place of addends of its type.

    They need only the type of an addend, for the shape of its gradient. An addend that nothing else reads, such as a
    product to which a bias is added, can then be released in the forward pass.

    Law: every value keeps its bits.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        changed = False
        for op in block.ops:
            if op.type not in _SUMS:
                continue
            (gradient,) = op.inputs["Out@GRAD"]
            wanted = block.vars[gradient].tensor_type
            for slot in "XY":
                (name,) = op.inputs[slot]
                same = name != EMPTY and block.vars[name].tensor_type == wanted
                # An addend of the same known type was not broadcast, so that `Out@GRAD` has its shape.
                if same and wanted is not None and wanted.is_static and name != gradient:
                    op.set_input(slot, [gradient])
                    changed = True
        return changed
