"""Lesson 8: add weight decay between the clip and the update."""

from dataclasses import dataclass

from minigraph.ir import Program
from minigraph.passes import Pass


@dataclass(frozen=True)
class AddDecay(Pass):
    """Let each update read its gradient plus ``coeff * parameter``, added after a clip if there is one."""

    coeff: float = 0.1

    def apply(self, program: Program) -> bool:
        return False
