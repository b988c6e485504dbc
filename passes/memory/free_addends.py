"""Shorten the lives of addends: the gradient of a sum needs none of them."""

from __future__ import annotations

from minigraph.ir import Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.support.sizes import are_equal

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
                given = None if name == EMPTY else block.vars[name].tensor_type
                # An addend of the same known type was not broadcast, so that `Out@GRAD` has its shape.
                if given is None or wanted is None or not wanted.is_static or name == gradient:
                    continue
                if given.dtype is wanted.dtype and given.kind is wanted.kind and are_equal(given.shape, wanted.shape):
                    op.set_input(slot, [gradient])
                    changed = True
        return changed
