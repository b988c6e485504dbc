"""Infer the types of what sub-blocks compute from the types of what they are given."""

from __future__ import annotations

from minigraph.errors import MinigraphError
from minigraph.ir import Block, Program, VarKind
from minigraph.ir.effects import body_of, outer_names
from minigraph.ir.type_inference import explain, infer_outputs
from minigraph.ir.versions import Changes
from minigraph.opdef import SUB_BLOCK
from minigraph.runtime.control_flow.call import BlockCall, call_of


def infer_again(block: Block, changes: Changes) -> None:
    """Infer the types of everything that the operators of a block write, and of the sub-blocks that they run.

    Where a variable of a block changes its type, that is noted in `changes`.

    Raises
    ------
    MinigraphError
        If an operator does not accept what it is given.
    """
    used: set[str] = set()
    for op in block.ops:
        try:
            if SUB_BLOCK in op.attrs:
                _infer_call(call_of(op), changes)
                used.update(op.input_arg_names, op.output_arg_names)
                continue
            used.update(*op.inputs.values())
            written = op.outputs.values()
            again = [name for names in written for name in names if name in used]
            old = [(name, block.vars[name].tensor_type) for name in again if name in block.vars]
            infer_outputs(op, block)
            used.update(*written)
        except MinigraphError as error:
            raise explain(error, op, block) from None
        for name, tensor_type in old:
            changes.pop((op, name), None)  # of an inference before, with other types
            if tensor_type is not None and not tensor_type.is_array and block.vars[name].tensor_type != tensor_type:
                changes[op, name] = tensor_type


def _infer_call(call: BlockCall, changes: Changes) -> None:
    while True:
        # Until nothing changes: a dimension that differs from run to run becomes unknown, with all that depends on it.
        before = [call._type(name) for name in call.written]
        call.bind_types()
        infer_again(call.body, changes)
        if before == [call._type(name) for name in call.written]:
            break
    call.settle_types()


def forget_types(program: Program) -> None:
    """Drop the types of arrays and of what sub-blocks write from inside, before all types are inferred again.

    Such a type is what all writes have in common, to which the types of an earlier inference must not count.
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
