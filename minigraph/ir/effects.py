"""Effects of sub-blocks: the outer variables that they use, and the blocks that a program uses.

The operator that holds the index of a sub-block runs it. A sub-block sees the variables of its parents; a block of
gradients also sees those of the block that it differentiates, with their values in the differentiated run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minigraph.ir.block import Block
from minigraph.ir.operator import Operator, renamed
from minigraph.opdef import GRAD_SUFFIX, SUB_BLOCK


def outer_names(block: Block) -> tuple[list[str], list[str]]:
    """The names of outer variables that a sub-block uses, and of outer variables that it writes, by first use."""
    found = block.outer_names
    return list(found.touched), list(found.written)


def body_of(op: Operator) -> Block:
    """The sub-block that an operator of control flow runs."""
    body = op.sub_block
    assert body is not None
    return body


def unchanged_names(op: Operator) -> list[str]:
    """Names of the variables that an operator reads and writes without a change, as statistics of a test are."""
    if op.definition.unchanged is None:
        return []
    pairs = op.definition.unchanged(op.attr).items()
    return [
        name
        for out, given in pairs
        for name, before in zip(op.outputs.get(out, ()), op.inputs[given], strict=False)
        if name == before
    ]


DEEPEST = 64
"""Maximum depth of blocks in a program that is read: a name is looked up in all blocks around it."""


def is_counter(body: Block, name: str) -> bool:
    """Whether a sub-block only increments an outer integer in place."""
    return name in body.outer_names.incremented and _is_integer(body, name)


def is_count(op: Operator, block: Block) -> bool:
    """Whether an operator increments an integer in place, which a gradient can undo."""
    return op.is_in_place_increment and _is_integer(block, op.inputs["X"][0])


def _is_integer(block: Block, name: str) -> bool:
    """Whether a variable is known to be an integer."""
    var = block.find_var(name)
    return var is not None and not var.dtype.is_floating


def reachable_blocks(ops: Iterable[Operator]) -> list[Block]:
    """The blocks that operators run, directly or through others, in the order of their indices."""
    found: dict[int, Block] = {}
    pending = [op.sub_block for op in ops]
    while pending:
        block = pending.pop()
        if block is not None and block.idx not in found:
            found[block.idx] = block
            pending += [op.sub_block for op in block.ops if SUB_BLOCK in op.attrs]
    # The forward block of a block of gradients may be run by an operator that is not among them.
    for block in list(found.values()):
        if block.forward_block is not None:
            found.setdefault(block.forward_block.idx, block.forward_block)
    return [found[idx] for idx in sorted(found)]


def rename(block: Block, names: Mapping[str, str]) -> None:
    """Rename variables of a block, and of blocks around it, where the operators of the block use them.

    Names that derive from them inside an operator's block are renamed, too: the entries of a network's sequences, and
    ``v@GRAD`` in a block of gradients.
    """
    for old in [name for name in block.vars if name in names]:
        var = block.vars.pop(old)
        var.name = names[old]
        block.vars[var.name] = var
    for op in block.ops:
        rename_in(op, names)
    block.program.version += 1


def rename_in(op: Operator, names: Mapping[str, str]) -> None:
    """Rename variables in an operator and in the block that it runs."""
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
