"""What of a program a run needs, as a private copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from minigraph.errors import NotFoundError, suggest
from minigraph.ir import Block, Operator, Program, Variable
from minigraph.kernels import find_kernel
from minigraph.opdef import EMPTY, definition_of
from minigraph.sub_blocks import copy_blocks, drop_unused_blocks, reachable_blocks

if TYPE_CHECKING:
    from minigraph.passes.base import Insertion, Pass


def prune(
    program: Program, feed_names: Sequence[str], fetch_names: Sequence[str], first: Pass | None = None
) -> Program:
    """A copy of the global block's operators that a run needs: what is fetched or persisted depends on them.

    Parameters
    ----------
    first : Pass, optional
        A pass that is to be applied to the copy. What it removes is not copied in the first place.

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
        used = _outputs_in_use(op, block, wanted)
        if len(used) < len(op.outputs):
            smaller[op] = used

    kept: Sequence[Operator] = needed(block, fetch_names, lambda type: definition_of(type).has_effect, note)
    inserted: Sequence[Insertion] = ()
    if first is not None and (edits := first.edits(kept, block, fetch_names)) is not None:
        kept, inserted = edits.kept, edits.inserted
    private = Program()
    private.roots = tuple(fetch_names)
    target = private.global_block()
    names = {*feed_names, *fetch_names}
    for op in kept:
        names.update(*op.inputs.values(), *op.outputs.values())
        if op.definition.has_hidden_names:
            names.update(*op.hidden_names)
    for new in inserted:
        names.update(new.names())
    target.vars = {name: var._copy_to(target) for name, var in block.vars.items() if name in names}
    if program.num_blocks > 1:
        copy_blocks(reachable_blocks(kept), private)
    copies = target.append_copies(kept, private=True)
    if smaller:
        for op, copy in zip(kept, copies, strict=True):
            copy.outputs = smaller.get(op, op.outputs)
    copy_of = dict(zip(kept, copies, strict=True)) if inserted else {}
    for new in inserted:
        new._replace(before=copy_of[new.before]).insert()
    drop_unused_blocks(private)
    return private


def _outputs_in_use(op: Operator, block: Block, wanted: set[str]) -> dict[str, tuple[str, ...]]:
    """The output slots of `op` without those of a gradient that is neither wanted later nor persisted."""
    if not any(map(wanted.isdisjoint, op.outputs.values())):
        return op.outputs
    kernel, slots = find_kernel(op.type, "cpu"), op.definition.output_slots
    if kernel is None or not kernel.takes_wanted:
        return op.outputs
    return {
        slot: names
        for slot, names in op.outputs.items()
        if not wanted.isdisjoint(names)
        or slots[slot].duplicable
        or not slots[slot].dispensable
        or any([_is_persistable(block.find_var(name)) for name in names])
    }


def needed(
    block: Block,
    fetch_names: Sequence[str],
    keeps: Callable[[str], bool] = lambda type: False,
    note: Callable[[Operator, set[str]], None] | None = None,
) -> list[Operator]:
    """In order, the operators that fetched and persistable variables depend on, and all of types that `keeps` names.

    `note` is called with each that has several output slots, the last one first, and the names that are wanted behind
    it.
    """
    always = {type for type in block.ops.by_type if keeps(type)}
    wanted = set(fetch_names)
    kept: list[Operator] = []
    for op in reversed(block.ops[:]):
        outputs = op.outputs.values()
        is_wanted = not all(map(wanted.isdisjoint, outputs)) or op.type in always
        hidden = op.hidden_names if op.definition.has_hidden_names else None
        if hidden is not None:
            is_wanted = is_wanted or not wanted.isdisjoint(hidden.written)
        if not is_wanted and not any([_is_persistable(block.find_var(name)) for name in op.output_arg_names]):
            continue
        kept.append(op)
        if note is not None and len(outputs) > 1:
            note(op, wanted)
        wanted.difference_update(*outputs)
        wanted.update(*op.inputs.values())
        if hidden is not None:
            wanted.difference_update(hidden.written)
            wanted.update(op.input_arg_names)
        wanted.discard(EMPTY)
    kept.reverse()
    return kept


def _is_persistable(var: Variable | None) -> bool:
    return var is not None and var.persistable
