"""The values that a run of a sub-block keeps for the sub-block of the gradient.

These are variables of the sub-block as the run left them, and outer ones that it overwrites as they were before the
run. Counters, outer variables that are incremented and nothing else, are not kept: the gradient's sub-block counts them
back, as in fluid.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minigraph.ir import Block
from minigraph.ir.effects import is_counter, outer_names
from minigraph.opdef import EMPTY


@dataclass(frozen=True)
class Saved:
    """The names of what a scope holds, in order: outer variables from before the run, then the sub-block's own."""

    before: tuple[str, ...] = ()
    local: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.before + self.local


def saved_by(body: Block) -> Saved:
    """Names that the gradients of `body` read of a run of it."""
    readers = body.program.gradient_blocks.get(body.idx)
    return saved_for(readers, body) if readers else Saved()


def saved_for(readers: Iterable[Block], body: Block) -> Saved:
    """Names that these blocks of gradients read of a run of `body`."""
    changed = {name for name in outer_names(body)[1] if not is_counter(body, name)}
    before: dict[str, None] = {}
    local: dict[str, None] = {}
    for block in readers:
        for name in unique(*(op.input_arg_names + op.output_arg_names for op in block.ops)):
            if name in block.vars:
                continue
            if name in body.vars:
                local[name] = None
            elif name in changed:
                before[name] = None
    return Saved(tuple(before), tuple(local))


def unique(*groups: Iterable[str]) -> list[str]:
    """Each name once, in order of first use, without the empty one."""
    return list(dict.fromkeys(name for group in groups for name in group if name != EMPTY))
