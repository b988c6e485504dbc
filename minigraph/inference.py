"""Types of an operator's results, and errors that say which operator they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minigraph.errors import MinigraphError, NotFoundError, OpError, suggest
from minigraph.opdef import EMPTY
from minigraph.operator import Operator
from minigraph.types import TensorType

if TYPE_CHECKING:
    from minigraph.ir import Block


def infer_outputs(op: Operator, block: Block) -> None:
    """Run the operator's inference and write the result to its output variables.

    Raises
    ------
    NotFoundError
        If the operator names a variable that does not exist.
    OpError
        If the inputs do not fit, or an output variable is declared otherwise.
    """
    inputs = {}
    for slot, names in op.inputs.items():
        types = []
        for name in names:
            var = block.find_var(name) if name != EMPTY else None
            if var is None and name != EMPTY:
                raise NotFoundError(
                    f"{op.type}: {slot} names {name!r}, which does not exist", hint=suggest(name, block.vars)
                )
            if var is not None and var.tensor_type is None:
                raise OpError(f"{op.type}: {slot} reads {name}, which nothing has written yet")
            types.append(var.tensor_type if var is not None else None)
        inputs[slot] = types
    inferred = op.definition.infer_types(inputs, op.attrs)
    for slot, names in op.outputs.items():
        if len(names) != len(inferred[slot]):
            raise OpError(f"{op.type}: {slot} takes {len(inferred[slot])} variables here, got {len(names)}")
        for name, tensor_type in zip(names, inferred[slot], strict=True):
            if name != EMPTY:
                _write_type(op, block, name, tensor_type)


def _write_type(op: Operator, block: Block, name: str, tensor_type: TensorType) -> None:
    var = block.find_var(name)
    if var is None:
        block.create_var(name=name, shape=tensor_type.shape, dtype=tensor_type.dtype, type=tensor_type.kind)
        return
    declared = var.tensor_type
    if declared is not None and declared != tensor_type:
        is_bound = var.persistable or var.is_data
        if declared.dtype is not tensor_type.dtype or (is_bound and not declared.fits(tensor_type)):
            raise OpError(
                f"{op.type}: the result is {tensor_type} but {name} is declared {declared}",
                hint="Write to another variable, or declare this one accordingly.",
            )
        if is_bound:
            return
    var.tensor_type = tensor_type


def explain(error: MinigraphError, op: Operator, block: Block) -> MinigraphError:
    """`error` with the operator's type, the types of its inputs and the user's line filled in."""
    if not error.message.startswith(op.type + ":"):
        error.message = f"{op.type}: {error.message}"
    if not error.details:
        error.details = tuple(
            f"{slot} = {name if (var := block.find_var(name)) is None else var}"
            for slot, names in op.inputs.items()
            for name in names
        )
    error.site = error.site or op.site
    return error
