"""Copies of loops and branches, each with a copy of the block that it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minigraph.ir import Block, Operator, Program
from minigraph.ir.effects import body_of, reachable_blocks, rename_in
from minigraph.opdef import SUB_BLOCK


def ops_inside(op: Operator) -> Iterator[Operator]:
    """The operators of the block that `op` runs, and of the blocks in it."""
    body = body_of(op)
    for block in reachable_blocks([op]):
        if block is not body.forward_block:
            yield from block.ops


class BlockCopies:
    """Blocks that were copied together: those of gradients belong to the copies of what they differentiate."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._copies: dict[int, int] = {}
        """Indices of copies, by those of the blocks."""

    def copy(self, op: Operator, names: Mapping[str, str], before: Operator | None) -> Operator:
        """Insert a copy of an operator and of its block, in which variables of its own block have other names.

        It has no `role_vars`: what it makes is a part of a gradient.
        """
        twin = op._copy(op.block)
        op.block._link(before, twin)
        self._give_block(twin, op.block.idx)
        twin.role_vars = ()
        rename_in(twin, names)
        op.block._changed()
        return twin

    def _give_block(self, op: Operator, parent: int) -> None:
        """Let an operator run a copy of its block."""
        index = self._copied(body_of(op), parent)
        op.set_attr(SUB_BLOCK, index)

    def _copied(self, block: Block, parent: int) -> int:
        forward = self._copies.get(block.forward_block_idx, block.forward_block_idx)
        made = Block(self._program, len(self._program.blocks), parent, forward)
        self._program.add_block(made)
        self._copies[block.idx] = made.idx
        made.vars = {name: var._copy_to(made) for name, var in block.vars.items()}
        for op in made.append_copies(list(block.ops)):
            op.role_vars = ()
            if SUB_BLOCK in op.attrs:
                self._give_block(op, made.idx)
        return made.idx
