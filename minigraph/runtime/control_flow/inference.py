"""Infer the types of what sub-blocks compute from the types of what they are given."""

from __future__ import annotations

from minigraph.errors import MinigraphError
from minigraph.ir import Block, Program, VarKind
from minigraph.ir.effects import body_of, outer_names
from minigraph.ir.type_inference import explain, infer_outputs
from minigraph.ir.versions import Changes
from minigraph.opdef import SUB_BLOCK
from minigraph.runtime.control_flow.call import BlockCall, call_of
from minigraph.runtime.control_flow.unfit import is_unfit, replace_by_error, take_types_of_others


def infer_again(block: Block, changes: Changes, unfit: list[MinigraphError]) -> None:
    """Infer the types of everything that the operators of a block write, and of the sub-blocks that they run.

    Where a variable of a block changes its type, that is noted in `changes`. A sub-block that need not run and does not
    fit is replaced by its error, which is noted in `unfit`.

    Raises
    ------
    MinigraphError
        If an operator does not accept what it is given.
    """
    used: set[str] = set()
    for op in block.ops:
        try:
            if SUB_BLOCK in op.attrs:
                _infer_call(call_of(op), changes, unfit)
                used.update(op.input_arg_names, op.output_arg_names)
                continue
            used.update(*op.inputs.values())
            written = op.outputs.values()
            again = [name for names in written for name in names if name in used]
            old = [(name, block.vars[name].tensor_type) for name in again if name in block.vars]
            if unfit:
                take_types_of_others(op, block)
            infer_outputs(op, block)
            used.update(*written)
        except MinigraphError as error:
            # If an input has no type because only an unfit block writes it, the error of that block tells more.
            lacks = unfit and any(_has_no_type(block, name) for name in op.input_arg_names)
            raise unfit[0] if lacks else explain(error, op, block) from None
        for name, tensor_type in old:
            changes.pop((op, name), None)  # of an inference before, with other types
            if tensor_type is not None and not tensor_type.is_array and block.vars[name].tensor_type != tensor_type:
                changes[op, name] = tensor_type


def _infer_call(call: BlockCall, changes: Changes, unfit: list[MinigraphError]) -> None:
    written = [var for var in map(call.op.block.find_var, call.written) if var is not None]
    given = [var.tensor_type for var in written]
    forward = call.body.forward_block
    if forward is not None and is_unfit(forward) and not is_unfit(call.body):
        replace_by_error(call, unfit[0], changes)
    while True:
        # Until nothing changes: a dimension that differs from run to run becomes unknown, with all that depends on it.
        before = [call._type(name) for name in call.written]
        call.bind_types()
        try:
            infer_again(call.body, changes, unfit)
        except MinigraphError as error:
            if not call.may_stay_out:
                raise
            replace_by_error(call, error, changes)
            unfit.append(error)
            for var, tensor_type in zip(written, given, strict=True):
                var.tensor_type = tensor_type
        if before == [call._type(name) for name in call.written]:
            break
    call.settle_types()


def _has_no_type(block: Block, name: str) -> bool:
    var = block.find_var(name)
    return var is not None and var.tensor_type is None


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
