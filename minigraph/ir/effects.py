"""Sub-blocks as others see them: which outer variables they touch, and which of them a program still uses.

A sub-block is run by the operator that holds its index. It sees the variables of its parents; a block of gradients also
sees those of the block that it is the gradient of, with the values that they had in the run that is differentiated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK

if TYPE_CHECKING:
    from minigraph.ir.operator import HiddenNames, Operator
    from minigraph.ir.program import Block, Program


def slot_names(slots: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """The names that stand in the slots of an operator."""
    return (name for names in slots.values() for name in names if name != EMPTY)


def hidden_names(op: Operator) -> HiddenNames:
    """What an operator reads and writes that stands in no slot of that side.

    Whatever a sub-block writes outside of itself may also be left as it was, because the block does not run, or runs
    several times: the operator counts as reading it.
    """
    from minigraph.ir.operator import HiddenNames

    outer, changes = _NONE, -1
    if op._block is not None:
        changes = _changes(op._block.program)
        sub_block = op.sub_block
        if sub_block is not None:
            outer = _outer_names(sub_block, changes)
    if op._hidden is not None and op._hidden[0] == changes >= 0 and op._hidden[1] is outer:
        return op._hidden[2]
    kept = (name for slot in op.definition.updates for name in op.outputs.get(slot, ()) if name != EMPTY)
    found = HiddenNames(
        _beyond((*outer.touched, *kept), slot_names(op.inputs)), _beyond(outer.written, slot_names(op.outputs))
    )
    op._hidden = changes, outer, found
    return found


def outer_names(block: Block) -> tuple[list[str], list[str]]:
    """The names of outer variables that a sub-block reads or writes, and of those that it writes, by first use."""
    found = _outer_names(block, _changes(block.program))
    return list(found.touched), list(found.written)


def body_of(op: Operator) -> Block:
    """The sub-block that an operator of control flow runs."""
    body = op.sub_block
    assert body is not None
    return body


class OuterNames(NamedTuple):
    """What a sub-block uses of the variables outside, by first use."""

    touched: tuple[str, ...]
    written: tuple[str, ...]
    incremented: frozenset[str]
    """What is incremented in place, and written by nothing else."""


DEEPEST = 64
"""Maximum depth of blocks in a program that is read; names are looked up in all of them."""

_NONE = OuterNames((), (), frozenset())


def _changes(program: Program) -> int:
    """How many changes there were that might concern any block."""
    return program.version - program.noted_changes


def _outer_names(block: Block, changes: int) -> OuterNames:
    """Those of `outer_names`, worked out again only if the block has changed, or one inside of it.

    `changes` are those of the program, see `_changes`.
    """
    if block._outer is not None and block._outer[0] == changes:
        return block._outer[1]
    local = set(block.vars)
    if block.forward_block is not None:
        local.update(block.forward_block.vars)
    touched: dict[str, None] = {}
    written: dict[str, bool] = {}
    for op in block.ops:
        touched.update((name, None) for name in op.input_arg_names if name not in local)
        sub_block = op.sub_block
        inside = _NONE if sub_block is None else _outer_names(sub_block, changes)
        is_step = _is_in_place_increment(op)
        for name in op.output_arg_names:
            if name not in local:
                touched[name] = None
                written[name] = written.get(name, True) and (is_step or name in inside.incremented)
    incremented = frozenset(name for name, is_only_incremented in written.items() if is_only_incremented)
    found = OuterNames(tuple(touched), tuple(written), incremented)
    block._outer = changes, found
    return found


def is_counter(body: Block, name: str) -> bool:
    """Whether all that a sub-block does to an outer variable is to count with it."""
    return name in _outer_names(body, _changes(body.program)).incremented and _is_integer(body, name)


def is_count(op: Operator, block: Block) -> bool:
    """Whether an operator increments an integer in place, which a gradient can undo."""
    return _is_in_place_increment(op) and _is_integer(block, op.inputs["X"][0])


def _is_in_place_increment(op: Operator) -> bool:
    return op.type == "increment" and op.inputs["X"] == op.outputs["Out"]


def _is_integer(block: Block, name: str) -> bool:
    """Whether that is known; while types are inferred again it need not be."""
    var = block.find_var(name)
    return var is not None and not var.dtype.is_floating


def _beyond(names: Iterable[str], known: Iterable[str]) -> list[str]:
    there = set(known)
    return [name for name in dict.fromkeys(names) if name not in there]


def owners(program: Program) -> dict[int, Operator]:
    """The operator that runs each sub-block, by the index of the block."""
    return {op.attrs[SUB_BLOCK]: op for block in program.blocks for op in block.ops if SUB_BLOCK in op.attrs}


def reachable_blocks(ops: Iterable[Operator]) -> list[Block]:
    """The blocks that operators run, directly or through others, in the order of their indices."""
    found: dict[int, Block] = {}
    pending = [op.sub_block for op in ops]
    while pending:
        block = pending.pop()
        if block is not None and block.idx not in found:
            found[block.idx] = block
            pending += [op.sub_block for op in block.ops if SUB_BLOCK in op.attrs]
    # What a block of gradients is the gradient of may be run by an operator that is not among them.
    for block in list(found.values()):
        if block.forward_block is not None:
            found.setdefault(block.forward_block.idx, block.forward_block)
    return [found[idx] for idx in sorted(found)]


def copy_blocks(blocks: Iterable[Block], target: Program) -> None:
    """Copy sub-blocks to a program that has only a global block yet; their indices stay what they were."""
    from minigraph.ir.program import Block

    for block in blocks:
        while len(target.blocks) < block.idx:
            target.blocks.append(Block(target, len(target.blocks), 0))  # nothing runs it, and it goes later
        copied = Block(target, block.idx, block.parent_idx, block.forward_block_idx)
        target.blocks.append(copied)
        copied.vars = {name: var._copy_to(copied) for name, var in block.vars.items()}
        copied.append_copies(block.ops[:])


def rename(block: Block, names: Mapping[str, str]) -> None:
    """Give variables of a block, and of those around it, other names where its operators use them.

    What is called after them inside of an operator's block is renamed too: the entries of a network's sequences, and in
    a block of gradients ``v@GRAD``.
    """
    for old in [name for name in block.vars if name in names]:
        var = block.vars.pop(old)
        var.name = names[old]
        block.vars[var.name] = var
    for op in block.ops:
        rename_in(op, names)
    block.program.version += 1


def rename_in(op: Operator, names: Mapping[str, str]) -> None:
    """Let an operator, and the block that it runs, use variables of other names."""
    from minigraph.ir.operator import renamed

    inside = op.sub_block
    if inside is not None:
        entries = {*op.inputs.get("inputs", ()), *op.outputs.get("outputs", ())}
        used = {*op.input_arg_names, *op.output_arg_names}
        seen = {
            old: new for old, new in names.items() if old in used and (old in entries or old not in inside.vars)
        }  # fmt: skip
        if inside.forward_block is not None:
            seen |= {
                old + GRAD_SUFFIX: new + GRAD_SUFFIX for old, new in seen.items() if old + GRAD_SUFFIX in inside.vars
            }
            if "original_output_grad" in op.attrs:
                found = [seen.get(name, name) for name in op.attr("original_output_grad")]
                op.set_attr("original_output_grad", found)
        if seen:
            rename(inside, seen)
    op.inputs, op.outputs = renamed(op.inputs, names), renamed(op.outputs, names)


def drop_unused_blocks(program: Program) -> None:
    """Remove the sub-blocks that no operator runs any more, and number the others anew."""
    if len(program.blocks) == 1:
        return
    used = [program.blocks[0], *reachable_blocks(list(program.blocks[0].ops))]
    if len(used) == len(program.blocks):
        return
    index_of = {block.idx: new for new, block in enumerate(used)}
    for block in program.blocks:
        if block.idx not in index_of:
            block.forward_block_idx = -1
    for block in used:
        for op in block.ops:
            if SUB_BLOCK in op.attrs:
                op.attrs = type(op.attrs)({**op.attrs, SUB_BLOCK: index_of[op.attrs[SUB_BLOCK]]})
        block.parent_idx = index_of.get(block.parent_idx, -1 if block.idx == 0 else 0)
        block.forward_block_idx = index_of.get(block.forward_block_idx, -1)
    for block in used:
        block.idx = index_of[block.idx]
    program.blocks[:] = used
    program.current_block_idx = index_of.get(program.current_block_idx, 0)
    program.version += 1
