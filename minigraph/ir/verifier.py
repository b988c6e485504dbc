"""Check the invariants of a program, after passes and in tests."""

from __future__ import annotations

from collections import Counter

from minigraph.errors import MinigraphError, OpError, VerifyError
from minigraph.ir.block import Block
from minigraph.ir.clip_order import check_clip_order
from minigraph.ir.effects import body_of, outer_names
from minigraph.ir.operator import Operator, slot_names
from minigraph.ir.other_values import OtherValue, other_value_read
from minigraph.ir.program import Program
from minigraph.ir.role import Role
from minigraph.ir.versions import types_in_order
from minigraph.opdef import SUB_BLOCK, is_update
from minigraph.support.public import public
from minigraph.types import VarKind

_NAMES = "every name is that of a variable"
_SCHEMA = "slots and attributes fit the definition of the operator"
_ORDER = "a value is written before it is read"
_TYPES = "inference run again gives the declared types"
_BLOCKS = "a sub-block is run by one operator of its parent, which names in its slots what the block reads and writes"
_SERVES = "role_vars name variables, and those of a backward operator the gradients that it makes"
_UPDATES = "an operator makes the gradient that an update reads, or it is data or persistable"

_VALUES = "results depend on those values of a name on which they depended before"
_MADE = "what is read or fetched goes on being made"


@public
def verify(program: Program) -> None:
    """Raise unless `program` keeps the invariants of the IR.

    Every name exists; slots and attributes fit the definitions; a value is written before it is read (parameters,
    persistables, data, and variables of the global block that no operator writes come from outside); inference run
    again gives the declared types; gradients are clipped once, when they are complete and before the update reads them.
    In a program with a backward pass, something makes the gradient that an update reads; what ``role_vars`` names
    exists, and a backward operator makes the gradients that it names there. A sub-block follows its parent. One
    operator of the parent runs it, and names in its slots the variables of the parent that the block reads and writes.

    Raises
    ------
    VerifyError
        Naming the operator, the variable and the source line.
    """
    given = _check_blocks(program)
    has_backward = any(op.role & Role.BACKWARD for block in program.blocks for op in block.ops)
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
            if op.role_vars:
                _check_served(op, block)
            if has_backward and is_update(op.definition):
                _check_update(op, block, written)
            _check_results(op, block)
            written.update(op.output_arg_names)
        _check_types(block)
        _check_calls(block)
        check_clip_order(block)


def verify_rewritten(before: Program, after: Program) -> None:
    """Verify `after`, and that it still makes what it reads and fetches of what `before` made.

    In `after` alone, a variable that no operator writes any more looks like one from outside, and one that is written
    several times may have any of its values.

    Raises
    ------
    VerifyError
        As `verify` does.
    """
    verify(after)
    block = after.global_block()
    lost = {name for op in before.global_block().ops for name in op.output_arg_names}
    lost -= {name for op in block.ops for name in op.output_arg_names}
    lost = {name for name in lost if (var := block.find_var(name)) is None or not (var.persistable or var.is_data)}
    for op in block.ops if lost else ():
        for name in op.input_arg_names:
            if name in lost:
                raise VerifyError(
                    f"{op.type} reads {name}, which nobody makes any more", law=_MADE, op=op, names=[name],
                    hint="Replace the uses of a result before the operator goes.",
                )  # fmt: skip
    if after.roots != before.roots:
        raise VerifyError(
            f"program.roots is {after.roots}, and was {before.roots}", law=_MADE,
            hint="Leave program.roots as it is: it names what the user fetches.",
        )  # fmt: skip
    for name in after.roots or ():
        if name in lost:
            raise VerifyError(
                f"{name} is fetched, but nobody makes it any more", law=_MADE, names=[name],
                hint="Keep an operator that writes the names in program.roots.",
            )  # fmt: skip
    for old, new in zip(before.blocks, after.blocks, strict=False):
        found = other_value_read(old, new)
        if found is not None:
            raise _reads_other_value(found)


def _reads_other_value(found: OtherValue) -> VerifyError:
    op, name, writer = found
    value = "from outside of the block" if writer is None else f"that {writer.type} makes"
    return VerifyError(
        f"{op.type} reads the value of {name} {value}; before the pass its results depend on another one",
        details=[] if writer is None else [f"written by {writer}"], law=_VALUES, op=op, names=[name],
        hint="Read the value before its name is written again, or keep it under a name of its own by an assign.",
    )  # fmt: skip


def _check_blocks(program: Program) -> dict[int, set[str]]:
    """Check the indices of sub-blocks; returns by index the names that each is given."""
    given: dict[int, set[str]] = {}
    for block in program.blocks:
        if block.idx and not (0 <= block.parent_idx < block.idx and -1 <= block.forward_block_idx < block.idx):
            raise VerifyError(
                f"block {block.idx} has the parent {block.parent_idx} and is the gradient of {block.forward_block_idx}",
                law=_BLOCKS,
            )
        for op in block.ops:
            index = op.attrs.get(SUB_BLOCK)
            if index is None:
                continue
            if not 0 < index < len(program.blocks) or program.blocks[index].parent_idx != block.idx:
                raise VerifyError(
                    f"{op.type} runs block {index}, which is no sub-block of block {block.idx}", law=_BLOCKS, op=op
                )
            # Two operators would share the block's variables, which each run overwrites.
            if index in given:
                raise VerifyError(f"{op.type} runs block {index}, which another operator runs", law=_BLOCKS, op=op)
            try:
                given[index] = set(op.definition.call(op).given)
            except OpError as error:
                raise VerifyError(error.message, law=_BLOCKS, op=op) from error
    return given


def _check_call(op: Operator) -> None:
    """An operator of control flow names what its block reads and writes outside; one of gradients may count back."""
    if op.definition.forward is not None:
        return
    named = {*slot_names(op.inputs), *slot_names(op.outputs)}
    for name in outer_names(body_of(op))[0]:
        if name not in named:
            raise VerifyError(
                f"{op.type}: block {op.attrs[SUB_BLOCK]} uses {name}, which no slot names", law=_BLOCKS, op=op
            )


def _check_calls(block: Block) -> None:
    """Raise unless results of sub-blocks have the types that their operators give them."""
    calls = [op for op in block.ops if SUB_BLOCK in op.attrs]
    writes = Counter(name for op in (block.ops if calls else ()) for name in op.output_arg_names)
    for op in calls:
        used = [*op.input_arg_names, *op.output_arg_names]
        # A name that is written again may be declared with the type of another value.
        if any(writes[name] > 1 for name in used):
            continue
        declared = [(var, var.tensor_type) for name in used if (var := block.find_var(name)) is not None]
        try:
            op.definition.call(op).settle_types()
            for var, old in declared:
                new = var.tensor_type
                if old is not None and new is not None and not old.fits(new):
                    raise VerifyError(
                        f"{op.type}: {var.name} is declared {old} but is {new}", law=_TYPES, op=op, names=[var.name]
                    )
        except OpError as error:
            raise VerifyError(f"{op.type}: {error.message}", law=_TYPES, op=op, hint=error.hint) from error
        finally:
            for var, old in declared:
                var.tensor_type = old


def _check_served(op: Operator, block: Block) -> None:
    """Raise unless what `role_vars` names exists, and a backward operator makes the gradients."""
    for name in op.role_vars:
        if block.find_var(name) is None:
            raise VerifyError(
                f"{op.type}: role_vars names {name}, which does not exist", law=_SERVES, op=op, names=[name],
                hint="Name the parameter and the gradient that the operator serves now, or give it no role_vars.",
            )  # fmt: skip
    if op.role & Role.BACKWARD:
        made = set(op.output_arg_names)
        for name in op.role_vars[1::2]:
            if name not in made:
                raise VerifyError(
                    f"{op.type}: role_vars names the gradient {name}, which the operator does not make",
                    law=_SERVES, op=op, names=[name], hint="Let role_vars name only gradients that it writes.",
                )  # fmt: skip


def _check_update(op: Operator, block: Block, written: set[str]) -> None:
    """Raise unless there is something that makes the gradients of an update."""
    for name in op.inputs["Grad"]:
        var = block.find_var(name)
        if name not in written and var is not None and var.block is block and not (var.persistable or var.is_data):
            raise VerifyError(
                f"{op.type} reads the gradient {name}, which nobody makes", law=_UPDATES, op=op, names=[name],
                hint="Keep the operator that makes it; declare it as data if it is fed.",
            )  # fmt: skip


def _check_variables(block: Block) -> None:
    for name, var in block.vars.items():
        if var.block.program is not block.program:
            raise VerifyError(f"block {block.idx} holds {name} of another program", law=_NAMES, names=[name])
        if var.name != name or var.block is not block:
            raise VerifyError(
                f"block {block.idx} holds {var.name} of block {var.block.idx} under the name {name}",
                law=_NAMES, names=[name],
            )  # fmt: skip


def _check_slots(op: Operator) -> None:
    for slots, used, what in (
        (op.definition.input_slots, op.inputs, "input"),
        (op.definition.output_slots, op.outputs, "output"),
    ):
        for name, names in used.items():
            if name not in slots:
                raise VerifyError(f"{op.type}: unknown {what} slot {name}", law=_SCHEMA, op=op)
            if len(names) > 1 and not slots[name].duplicable:
                raise VerifyError(f"{op.type}: {what} {name} takes one variable, has {len(names)}", law=_SCHEMA, op=op)
        for slot in slots.values():
            if not used.get(slot.name) and not slot.dispensable and not slot.intermediate:
                raise VerifyError(f"{op.type}: {what} {slot.name} is missing", law=_SCHEMA, op=op)


def _check_attrs(op: Operator) -> None:
    """Raise unless attributes have their declared types, and none is held that equals its default."""
    try:
        converted = op.definition.convert_attrs(op.attrs)
    except MinigraphError as error:
        raise VerifyError(error.message, details=error.details, law=_SCHEMA, op=op, hint=error.hint) from error
    for name, value in op.attrs.items():
        if name not in converted or repr(converted[name]) != repr(value):
            raise VerifyError(
                f"{op.type}: attribute {name} is held as {value!r}, its default or not of the declared type",
                law=_SCHEMA,
                op=op,
                hint="Change attributes with op.set_attr.",
            )


def _check_read(op: Operator, block: Block, name: str, written: set[str], written_somewhere: set[str]) -> None:
    var = block.find_var(name)
    if var is None:
        raise VerifyError(f"{op.type} reads {name}, which does not exist", law=_NAMES, op=op, names=[name])
    comes_from_outside = var.persistable or var.is_data or var.block is not block
    if name not in written and not comes_from_outside:
        if name in written_somewhere:
            raise VerifyError(f"{op.type} reads {name} before it is written", law=_ORDER, op=op, names=[name])
        if block.idx:  # nobody can feed it
            raise VerifyError(
                f"{op.type} reads {name}, which nobody makes in block {block.idx}", law=_ORDER, op=op, names=[name],
                hint="Keep the operator that makes it in the block, or declare it in a block around.",
            )  # fmt: skip
    if var.tensor_type is None and var.kind is not VarKind.STEP_SCOPES:
        raise VerifyError(f"{op.type} reads {name}, whose type is unknown", law=_TYPES, op=op, names=[name])


def _check_results(op: Operator, block: Block) -> None:
    for name in slot_names(op.outputs):
        if block.find_var(name) is None:
            raise VerifyError(f"{op.type} writes {name}, which does not exist", law=_NAMES, op=op, names=[name])


def _check_types(block: Block) -> None:
    """A variable is declared with the type of the last value that it is given."""
    last = {name: op for op in block.ops for name in op.output_arg_names}
    fits = 0
    """Number of operators whose types fit."""
    try:
        for op, others in types_in_order(block):
            for name, found in others.items():
                if last[name] is op:
                    declared = block.find_var(name)
                    known = declared.tensor_type if declared is not None else None
                    raise VerifyError(
                        f"{op.type}: {name} is declared {known or 'unknown'} but is {found}", law=_TYPES, op=op,
                        names=[name],
                    )  # fmt: skip
            fits += 1
    except VerifyError:
        raise
    except MinigraphError as error:
        raise VerifyError(
            error.message, details=error.details, law=_TYPES, op=block.ops[fits], site=error.site, hint=error.hint
        ) from error
