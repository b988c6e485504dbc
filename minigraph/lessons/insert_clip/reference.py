"""Lesson 7: clip the gradient that each update reads."""

from dataclasses import dataclass

from minigraph.ir import Program, Role
from minigraph.passes import Pass


@dataclass(frozen=True)
class ClipEachGradient(Pass):
    """Let each update read its gradient, scaled down to an L2 norm of at most `max_norm`.

    Law: gradients keep their names and values; one that is short enough reaches its update bit for bit.
    """

    max_norm: float = 2.0

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        done = {name for op in block.ops if op.role & Role.CLIP for name in op.output_arg_names}
        updates = [op for op in block.ops if op.role & Role.OPTIMIZE and {"Param", "Grad"} <= op.inputs.keys()]
        unclipped = [op for op in updates if op.inputs["Grad"][0] not in done]
        for update in unclipped:
            param, grad = update.inputs["Param"][0], update.inputs["Grad"][0]
            role = program.role_guard(Role.OPTIMIZE | Role.CLIP, [param, grad])
            with block.inserting_before(update), role:
                clipped = block.emit("clip_by_norm", X=grad, max_norm=self.max_norm)
            update.replace_input(grad, clipped)
        return bool(unclipped)
