"""Types of what sub-blocks compute, once what they are given has known types."""

from __future__ import annotations

from minigraph.control_flow.call import Call
from minigraph.control_flow.calls import call_of
from minigraph.errors import MinigraphError
from minigraph.inference import explain, infer_outputs
from minigraph.ir import Block, Program, VarKind
from minigraph.opdef import SUB_BLOCK
from minigraph.sub_blocks import body_of, outer_names


def infer_again(block: Block) -> None:
    """Infer the types of everything that the operators of a block write, and of the sub-blocks that they run.

    Raises
    ------
    MinigraphError
        If an operator does not accept what it is given.
    """
    for op in block.ops:
        try:
            if SUB_BLOCK in op.attrs:
                _infer_call(call_of(op))
            else:
                infer_outputs(op, block)
        except MinigraphError as error:
            raise explain(error, op, block) from None


def _infer_call(call: Call) -> None:
    call.bind_types()
    while True:
        # A dimension that differs from run to run becomes unknown, and what is computed from it too.
        before = [call._type(name) for name in call.written]
        infer_again(call.body)
        if before == [call._type(name) for name in call.written]:
            break
    call.settle_types()


def forget_types(program: Program) -> None:
    """Forget the types of arrays and of what sub-blocks write from inside, before all types are inferred again.

    What they have in common with the types of an earlier inference does not matter.
    """
    for block in program.blocks:
        for var in block.vars.values():
            if var.kind is VarKind.LOD_TENSOR_ARRAY and var.tensor_type is not None:
                var.tensor_type = var.tensor_type.with_shape(()).held_as(VarKind.LOD_TENSOR_ARRAY)
        for op in block.ops:
            if SUB_BLOCK not in op.attrs:
                continue
            for name in outer_names(body_of(op))[1]:
                found = block.find_var(name)
                if found is not None and found.kind is VarKind.LOD_TENSOR and not (found.persistable or found.is_data):
                    found.tensor_type = None
