"""Sub-blocks that do not fit what is fed, and fail only when they are run.

A branch that a run does not take, or a loop that ends before its first run, need not fit: Paddle infers the shapes of a
sub-block when it enters it. In an executor's private program such a block holds one operator, which raises the error.
"""

from __future__ import annotations

from typing import Any

from minigraph.errors import ExecutionError, MinigraphError
from minigraph.ir import Block, Operator
from minigraph.ir.versions import Changes
from minigraph.kernels.registry import Kernel
from minigraph.opdef import DECLARED, Attr, OpDef, Slot
from minigraph.runtime.control_flow.call import BlockCall

_ATTRS = {"message": Attr("message", "str"), "details": Attr("details", "list[str]"), "hint": Attr("hint", "str")}

UNFIT = OpDef(
    "unfit_block", (), (Slot("Out", duplicable=True, dispensable=True),), _ATTRS, lambda **attrs: DECLARED, None, {},
    "Raise the error of a block that does not fit, in place of all that computes its results.", has_effect=True,
)  # fmt: skip

_ALTERNATIVES = {"select_input": ("X",), "merge_lod_tensor": ("InTrue", "InFalse")}
"""Operator types that take the results of branches, with the slots of these."""


def is_unfit(block: Block) -> bool:
    """Whether the block has been replaced by its error."""
    first = block.ops.first
    return first is not None and first.definition is UNFIT


def replace_by_error(call: BlockCall, error: MinigraphError, changes: Changes) -> None:
    """Let the sub-block of a call raise `error` instead of what it computes."""
    body = call.body
    # A forward block also keeps values for its gradient. Nothing needs them: that block is replaced, too.
    names = call.written if body.forward_block is None else call.taken
    for block in [body, *_inside(body)]:
        for op in block.ops[:]:
            block.remove(op)
    for key in [key for key in changes if key[0]._block is None]:
        del changes[key]
    attrs = {"message": error.message, "details": tuple(error.details), "hint": error.hint}
    raising = Operator(UNFIT, {}, {"Out": tuple(names)}, attrs, site=error.site)
    body._link(None, raising)


def _inside(outer: Block) -> list[Block]:
    """The blocks that have `outer` around them."""
    found = {outer}
    for block in outer.program.blocks[outer.idx + 1 :]:
        if block.parent_block in found:
            found.add(block)
    return list(found - {outer})


def unfit_kernel(op: Operator) -> Kernel | None:
    """The kernel of an operator `UNFIT`, which raises its error; None for any other."""
    if op.definition is not UNFIT:
        return None

    def fail(xp: Any) -> None:
        raise ExecutionError(op.attr("message"), details=op.attr("details"), site=op.site, hint=op.attr("hint"))

    return Kernel(fail, (), False, False, False, None)


def take_types_of_others(op: Operator, block: Block) -> None:
    """Give inputs of `op` that come from an unfit branch the type of the input that comes from another branch."""
    slots = _ALTERNATIVES.get(op.type)
    if slots is None:
        return
    choices = [block.find_var(name) for slot in slots for name in op.inputs[slot]]
    known = [var.tensor_type for var in choices if var is not None and var.tensor_type is not None]
    for var in choices:
        if known and var is not None and var.tensor_type is None:
            var.tensor_type = known[0]
