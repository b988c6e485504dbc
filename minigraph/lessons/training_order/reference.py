"""Lesson 8: add weight decay between the clip and the update."""

from dataclasses import dataclass

from minigraph.ir import Program, Role
from minigraph.passes import Pass


@dataclass(frozen=True)
class AddDecay(Pass):
    """Let each update read its gradient plus ``coeff * parameter``, added after a clip if there is one.

    Law: raw and clipped gradients keep their names and values.
    """

    coeff: float = 0.1

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        done = {name for op in block.ops if op.role & Role.REGULARIZE for name in op.output_arg_names}
        updates = [op for op in block.ops if op.role & Role.OPTIMIZE and {"Param", "Grad"} <= op.inputs.keys()]
        plain = [op for op in updates if op.inputs["Grad"][0] not in done]
        for update in plain:
            param, grad = update.inputs["Param"][0], update.inputs["Grad"][0]
            role = program.role_guard(Role.OPTIMIZE | Role.REGULARIZE, [param, grad])
            with block.inserting_before(update), role:
                decay = block.emit("scale", X=param, scale=self.coeff)
                total = block.emit("sum", X=[grad, decay])
            update.replace_input(grad, total)
        return bool(plain)
