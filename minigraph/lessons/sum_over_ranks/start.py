"""Lesson 11: make a training program one of several ranks."""

from dataclasses import dataclass

from minigraph.ir import Program
from minigraph.passes import Pass


@dataclass(frozen=True)
class SumOverRanks(Pass):
    """Divide the gradient of the loss by `ranks`, and sum each parameter's gradient over the ranks."""

    ranks: int = 2

    def apply(self, program: Program) -> bool:
        return False
