"""Types of an operator's results, and errors that say which operator they are about."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from minigraph.errors import (
    CommunicationError,
    ExecutionError,
    MemoryUseError,
    MinigraphError,
    NonfiniteError,
    NotFoundError,
    OpError,
    suggest,
)
from minigraph.ir.operator import Operator
from minigraph.ir.variable import Variable
from minigraph.opdef import DECLARED, EMPTY
from minigraph.opdef.lengths import counterpart
from minigraph.support.undo import note
from minigraph.types import TensorType, VarKind


class Namespace(Protocol):
    """The part of a block that inference uses."""

    vars: dict[str, Variable]

    def find_var(self, name: str) -> Variable | None: ...

    def create_var(self, *, name: str, type: VarKind) -> Variable: ...


def infer_outputs(op: Operator, block: Namespace) -> None:
    """Run the inference of an operator without a sub-block and write the result to its output variables.

    Raises
    ------
    NotFoundError
        If the operator names a variable that does not exist.
    OpError
        If the inputs do not fit, or an output variable is declared otherwise.
    """
    local = block.vars.get
    inputs = []
    has_lengths = op.definition.handles_lengths
    for slot, names in op.inputs.items():
        types = []
        for name in names:
            var = local(name)
            tensor_type = None if var is None else var.tensor_type
            types.append(tensor_type or _type_read(op, block, slot, name))
            if var is None or var.lod_level:
                has_lengths = True
        inputs.append((slot, tuple(types)))
    inferred = op.definition.inferred(tuple(inputs), op.attrs)
    for slot, names in op.outputs.items():
        found = inferred[slot]
        if found is DECLARED:
            continue
        if len(names) != len(found):
            raise OpError(f"{op.type}: {slot} takes {len(found)} variables here, got {len(names)}")
        for name, tensor_type in zip(names, found, strict=True):
            var = local(name)
            # The two usual cases without a call: a new variable, and one that has this type already.
            if var is not None and var.tensor_type is None:
                var.tensor_type = tensor_type
            elif name != EMPTY and (var is None or var.tensor_type != tensor_type):
                _write_type(op, block, name, tensor_type)
    if has_lengths:
        _infer_lod_levels(op, block)


def _infer_lod_levels(op: Operator, block: Namespace) -> None:
    """Write the numbers of levels of sequences to the output variables."""

    def levels(slot: str, at: int = 0, results: int = 0) -> Sequence[None]:
        names = op.inputs.get(slot, ())
        var = block.find_var(names[counterpart(at, results, len(names))]) if names else None
        return (None,) * (0 if var is None else var.lod_level)

    def rows(name: str) -> Sequence[int]:
        var = block.find_var(name)
        return () if var is None or var.shape is None else var.shape[:1]

    counts = {slot: len(levels(slot)) for slot in op.definition.input_slots}
    for slot, source in op.definition.lod.items():
        results = op.outputs.get(slot, ())
        for at, name in enumerate(results):
            var = block.find_var(name)
            if var is None or var.is_data:
                continue
            has_none = source.kind == "rows" and rows(name) != rows(op.inputs[source.slots[0]][0])
            of = partial(levels, at=at, results=len(results))
            var.lod_level = 0 if has_none else len(source.levels(of, (None,) * source.count(counts, op.attrs)))


def _type_read(op: Operator, block: Namespace, slot: str, name: str) -> TensorType | None:
    """The type of an input, None where it is left out."""
    if name == EMPTY:
        return None
    var = block.find_var(name)
    if var is None:
        raise NotFoundError(f"{op.type}: {slot} names {name!r}, which does not exist", hint=suggest(name, block.vars))
    if var.tensor_type is None:
        raise OpError(f"{op.type}: {slot} reads {name}, which nothing has written yet")
    return var.tensor_type


def _write_type(op: Operator, block: Namespace, name: str, tensor_type: TensorType) -> None:
    var = block.find_var(name)
    if var is None:
        block.create_var(name=name, type=tensor_type.kind).tensor_type = tensor_type
        return
    declared = var.tensor_type
    note(setattr, var, "tensor_type", declared)
    # An array has several elements, and an outer variable its value before: both types must agree.
    if declared is not None and (var.kind is VarKind.LOD_TENSOR_ARRAY or var.block is not block):
        var.tensor_type = _in_common(op, var, declared, tensor_type)
        return
    if declared is not None and declared != tensor_type:
        is_bound = var.persistable or var.is_data
        if not (tensor_type.dtype.is_floating or var.is_data or (is_bound and declared.dtype.is_floating)):
            # As in fluid, integers and masks stay what they are, whatever the variable was created as: the counts of
            # `accuracy` are int32 in a tensor of int64.
            declared = declared.with_dtype(tensor_type.dtype)
        is_fixed = is_bound and (declared.shape or var.is_data)  # a persistable of `create_tensor` has no shape yet
        if declared.dtype is not tensor_type.dtype or (is_fixed and not declared.fits(tensor_type)):
            raise OpError(
                f"{op.type}: the result is {tensor_type} but {name} is declared {var.tensor_type}",
                hint="Write to another variable, or declare this one accordingly.",
            )
        if is_fixed:
            var.tensor_type = declared
            return
    var.tensor_type = tensor_type


def _in_common(op: Operator, var: Variable, declared: TensorType, written: TensorType) -> TensorType:
    """The common type of the values of an array, or of a variable that a sub-block writes from inside."""
    is_array = var.kind is VarKind.LOD_TENSOR_ARRAY
    if is_array and not (declared.shape and written.shape):
        # Nothing has been written to one of them before, and what is written first decides, as in fluid.
        return declared if declared.shape else written
    if not declared.shape and declared.with_shape(written.shape) == written and not _is_written(var):
        return written  # a tensor of `create_tensor` has no shape yet
    if (declared.dtype, declared.rank, declared.kind) != (written.dtype, written.rank, written.kind):
        if is_array and written.is_array:
            declared, written = declared.held_as(VarKind.LOD_TENSOR), written.held_as(VarKind.LOD_TENSOR)
        what = f"the array {var.name} holds" if is_array else f"outside of the sub-block {var.name} is"
        raise OpError(
            f"{op.type}: the result is {written} but {what} {declared}",
            hint="Write to another variable: this one must keep its element type and number of dimensions.",
        )
    if var.persistable:
        return declared
    shape = (a if a == b else -1 for a, b in zip(declared.shape, written.shape, strict=True))
    return declared.with_shape(shape).held_as(declared.kind)


def _is_written(var: Variable) -> bool:
    return any(var.name in op.output_arg_names for op in var.block.ops)


def explain(error: MinigraphError, op: Operator, block: Namespace) -> MinigraphError:
    """`error` with the operator's type, the types of its inputs and the user's line filled in."""
    if not error.message.startswith(op.type + ":"):
        error.message = f"{op.type}: {error.message}"
    if not error.details:
        error.details = tuple(
            f"{slot} = {name if (var := block.find_var(name)) is None else var}"
            for slot, names in op.inputs.items()
            for name in names
        )
    if error.site is None:
        error.site, error.is_of_other_line = op.site, True
    return error


def blame(error: Exception, op: Operator | None) -> MinigraphError:
    """An `ExecutionError` that names the failed operator, its variables and the user's line.

    An error that has a line already, because it was raised in a sub-block of `op`, stays as it is.
    """
    if isinstance(error, MemoryUseError) or (isinstance(error, ExecutionError) and error.site is not None):
        return error
    message = error.message if isinstance(error, MinigraphError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, MinigraphError) else ""
    if not isinstance(error, MinigraphError) and "NoneType" in message:
        hint = hint or "Assign a value before any branch or loop that writes one of these: it did not run."
    if isinstance(error, NonfiniteError):
        found: ExecutionError = NonfiniteError(message, error.param, details=error.details, hint=hint)
    elif isinstance(error, CommunicationError):
        found = CommunicationError(message, details=error.details, hint=hint)
    else:
        found = ExecutionError(message, hint=hint)
    return explain(found, op, op.block) if op is not None else found
