"""Copy the operators that a run needs."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph.errors import NotFoundError, suggest
from minigraph.ir import Operator, Program
from minigraph.ir.dataflow import backward_slice
from minigraph.ir.effects import reachable_blocks
from minigraph.opdef import definition_of
from minigraph.passes.recognize.fuse_global_norm import fuse_global_norms
from minigraph.passes.rewriting import outputs_in_use


def prune(program: Program, feed_names: Sequence[str], fetch_names: Sequence[str], fuse_norms: bool = False) -> Program:
    """Copy the global block's operators that a run needs: what is fetched or persisted depends on them.

    Parameters
    ----------
    fuse_norms : bool
        Apply `minigraph.passes.FuseGlobalNorm` on the way, so that what it removes is not copied.

    Raises
    ------
    NotFoundError
        If a fetched name does not exist.
    """
    block = program.global_block()
    for name in fetch_names:
        if block.find_var(name) is None:
            raise NotFoundError(f"fetch: the program has no variable {name!r}", hint=suggest(name, block.vars))
    smaller: dict[Operator, dict[str, tuple[str, ...]]] = {}

    def note(op: Operator, wanted: set[str]) -> None:
        used = outputs_in_use(op, block, wanted)
        if len(used) < len(op.outputs):
            smaller[op] = used

    kept = backward_slice(block, fetch_names, lambda type: definition_of(type).has_effect, note)
    if fuse_norms:
        kept = fuse_global_norms(kept, block, fetch_names)
    private = Program()
    private.roots = tuple(fetch_names)
    target = private.global_block()
    names = {*feed_names, *fetch_names}
    for op in kept:
        names.update(*op.inputs.values(), *op.outputs.values())
        if op.definition.has_hidden_names:
            names.update(*op.hidden_names)
    target.vars = {name: var._copy_to(target) for name, var in block.vars.items() if name in names}
    if program.num_blocks > 1:
        private.copy_blocks(reachable_blocks(kept))
    copies = target.append_copies(kept, private=True)
    if smaller:
        for op, copy in zip(kept, copies, strict=True):
            copy.outputs = smaller.get(op, op.outputs)
    private.drop_unused_blocks()
    return private
