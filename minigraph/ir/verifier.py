"""Check the invariants of a program, after passes and in tests."""

from __future__ import annotations

from minigraph.errors import MinigraphError, VerifyError
from minigraph.ir.block import Block
from minigraph.ir.clip_order import check_clip_order
from minigraph.ir.effects import body_of, outer_names
from minigraph.ir.operator import Operator, slot_names
from minigraph.ir.program import Program
from minigraph.ir.versions import types_in_order
from minigraph.opdef import SUB_BLOCK
from minigraph.support.public import public
from minigraph.types import VarKind


@public
def verify(program: Program) -> None:
    """Raise unless `program` keeps the invariants of the IR.

    Every name exists; slots and attributes fit the definitions; a value is written before it is read (parameters,
    persistables, data and variables that no operator writes come from outside); inference run again gives the declared
    types; gradients are clipped once, when they are complete and before the update reads them. A sub-block stands below
    its parent and is run by one operator of that, which names in its slots what the block reads and writes of it.

    Raises
    ------
    VerifyError
        Naming the operator, the variable and the source line.
    """
    given = _check_blocks(program)
    for block in program.blocks:
        _check_variables(block)
        written_somewhere = {name for op in block.ops for name in op.output_arg_names}
        written = given.get(block.idx, set())
        for op in block.ops:
            _check_slots(op)
            _check_attrs(op)
            for name in slot_names(op.inputs):
                _check_read(op, block, name, written, written_somewhere)
            if SUB_BLOCK in op.attrs:
                _check_call(op)
            _check_results(op, block)
            written.update(op.output_arg_names)
        _check_types(block)
        check_clip_order(block)


def _check_blocks(program: Program) -> dict[int, set[str]]:
    """Check the indices of sub-blocks; returns by index the names that each is given."""
    given: dict[int, set[str]] = {}
    for block in program.blocks:
        if block.idx and not (0 <= block.parent_idx < block.idx and -1 <= block.forward_block_idx < block.idx):
            raise VerifyError(
                f"block {block.idx} has the parent {block.parent_idx} and is the gradient of {block.forward_block_idx}"
            )
        for op in block.ops:
            index = op.attrs.get(SUB_BLOCK)
            if index is None:
                continue
            if not 0 < index < len(program.blocks) or program.blocks[index].parent_idx != block.idx:
                raise VerifyError(
                    f"{op.type} runs block {index}, which is no sub-block of block {block.idx}", site=op.site
                )
            # Two operators would share the block's variables, which each run overwrites.
            if index in given:
                raise VerifyError(f"{op.type} runs block {index}, which another operator runs", site=op.site)
            given[index] = set(op.definition.call(op).given)
    return given


def _check_call(op: Operator) -> None:
    """An operator of control flow names what its block reads and writes outside; one of gradients may count back."""
    if op.definition.forward is not None:
        return
    named = {*slot_names(op.inputs), *slot_names(op.outputs)}
    for name in outer_names(body_of(op))[0]:
        if name not in named:
            raise VerifyError(f"{op.type}: block {op.attrs[SUB_BLOCK]} uses {name}, which no slot names", site=op.site)


def _check_variables(block: Block) -> None:
    for name, var in block.vars.items():
        if var.block.program is not block.program:
            raise VerifyError(f"block {block.idx} holds {name} of another program")
        if var.name != name or var.block is not block:
            raise VerifyError(f"block {block.idx} holds {var.name} of block {var.block.idx} under the name {name}")


def _check_slots(op: Operator) -> None:
    for slots, used, what in (
        (op.definition.input_slots, op.inputs, "input"),
        (op.definition.output_slots, op.outputs, "output"),
    ):
        for name, names in used.items():
            if name not in slots:
                raise VerifyError(f"{op.type}: unknown {what} slot {name}", site=op.site)
            if len(names) > 1 and not slots[name].duplicable:
                raise VerifyError(f"{op.type}: {what} {name} takes one variable, has {len(names)}", site=op.site)
        for slot in slots.values():
            if not used.get(slot.name) and not slot.dispensable and not slot.intermediate:
                raise VerifyError(f"{op.type}: {what} {slot.name} is missing", site=op.site)


def _check_attrs(op: Operator) -> None:
    """Raise unless attributes are held in their declared types, and only those that differ from their defaults."""
    try:
        converted = op.definition.convert_attrs(op.attrs)
    except MinigraphError as error:
        raise VerifyError(error.message, details=error.details, site=op.site, hint=error.hint) from error
    for name, value in op.attrs.items():
        if name not in converted or repr(converted[name]) != repr(value):
            raise VerifyError(
                f"{op.type}: attribute {name} is held as {value!r}, its default or not of the declared type",
                site=op.site,
                hint="Change attributes with op.set_attr.",
            )


def _check_read(op: Operator, block: Block, name: str, written: set[str], written_somewhere: set[str]) -> None:
    var = block.find_var(name)
    if var is None:
        raise VerifyError(f"{op.type} reads {name}, which does not exist", site=op.site)
    comes_from_outside = var.persistable or var.is_data or name not in written_somewhere or var.block is not block
    if name not in written and not comes_from_outside:
        raise VerifyError(f"{op.type} reads {name} before it is written", site=op.site)
    if var.tensor_type is None and var.kind is not VarKind.STEP_SCOPES:
        raise VerifyError(f"{op.type} reads {name}, whose type is unknown", site=op.site)


def _check_results(op: Operator, block: Block) -> None:
    for name in slot_names(op.outputs):
        if block.find_var(name) is None:
            raise VerifyError(f"{op.type} writes {name}, which does not exist", site=op.site)


def _check_types(block: Block) -> None:
    """A variable is declared with the type of the last value that it is given."""
    last = {name: op for op in block.ops for name in op.output_arg_names}
    try:
        for op, others in types_in_order(block):
            for name, found in others.items():
                if last[name] is op:
                    declared = block.find_var(name)
                    known = declared.tensor_type if declared is not None else None
                    raise VerifyError(
                        f"{op.type}: {name} is declared {known or 'unknown'} but is {found}", site=op.site
                    )
    except VerifyError:
        raise
    except MinigraphError as error:
        raise VerifyError(error.message, details=error.details, site=error.site, hint=error.hint) from error
