"""Remove dead operators."""

from __future__ import annotations

from collections.abc import Collection

from minigraph.errors import warn
from minigraph.ir import Block, Operator, Program
from minigraph.ir.dataflow import backward_slice
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import is_random, outputs_in_use
from minigraph.passes.values import Types, Values


class RemoveDeadOps(Pass):
    """Remove the operators that neither fetched nor persistable variables depend on.

    Law: every fetched and every persistable variable keeps its value. An operator that draws random numbers stays,
    because those after it would draw other ones. Unless ``program.roots`` names the variables that are fetched, such as
    ``(loss.name,)``, nothing is removed, and a call warns of that. Executors set it in their private copies.

    `minigraph.lowering.prune.prune` leaves out operators of the user's program; this pass removes those that earlier
    passes have made dead.
    """

    def __call__(self, program: Program) -> Program:
        if program.roots is None:
            warn(
                "RemoveDeadOps removes nothing: set program.roots to the names of what is fetched, such as (loss.name,)"
            )
        return super().__call__(program)

    def apply(self, program: Program) -> bool:
        return remove_dead(program)


def remove_dead(program: Program, trims: bool = False) -> bool:
    """Remove the operators that nothing depends on, and say whether there are any.

    With `trims` others no longer write gradients that nothing depends on.
    """
    if program.roots is None:
        return False
    block, trimmed = program.global_block(), dict[Operator, dict[str, tuple[str, ...]]]()

    def note(op: Operator, wanted: set[str]) -> None:
        trimmed[op] = outputs_in_use(op, block, wanted)

    kept = set(backward_slice(block, program.roots, keeps=is_random, note=note if trims else None))
    for op, outputs in trimmed.items():
        if outputs is not op.outputs:
            op.outputs = outputs
    dead = [op for op in block.ops[:] if op not in kept]  # a list, because the block changes
    left = {} if program.is_concrete else _types_left(block, kept, dead)
    for op in dead:
        block.remove(op)
    for name, last in left.items():
        block.vars[name].tensor_type = last
    return bool(dead)


def _types_left(block: Block, kept: Collection[Operator], dead: Collection[Operator]) -> Types:
    """Types of the last values of names that dead operators have written after others."""
    names = {name for op in dead for name in op.output_arg_names}
    if not names or all([names.isdisjoint(op.output_arg_names) for op in kept]):
        return {}
    return Values(block).types_left(frozenset(dead))
