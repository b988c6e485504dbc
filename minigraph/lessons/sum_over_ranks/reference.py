"""Lesson 11: make a training program one of several ranks."""

from dataclasses import dataclass
from itertools import pairwise

from minigraph.ir import Program, Role
from minigraph.passes import Pass


@dataclass(frozen=True)
class SumOverRanks(Pass):
    """Divide the gradient of the loss by `ranks`, and sum each parameter's gradient over the ranks.

    Law: with as many samples on each rank, every rank's updates are those of one rank with all samples, but for
    rounding.
    """

    ranks: int = 2

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if block.ops.of_type("c_allreduce_sum"):
            return False
        for op, following in pairwise(list(block.ops)):
            if not op.role & Role.BACKWARD:
                continue
            with block.inserting_before(following, role=Role.BACKWARD):
                if op.role & Role.LOSS:
                    grad = op.output_arg_names[0]
                    block.append_op("scale", {"X": grad}, {"Out": grad}, {"scale": 1.0 / self.ranks})
                for grad in op.role_vars[1::2]:
                    block.append_op("c_allreduce_sum", {"X": grad}, {"Out": grad}, {"use_calc_stream": True})
        return True
