"""The operators that gradients flow through, from the targets of a differentiation back to its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minigraph.autodiff.decompositions import has_rule
from minigraph.errors import ProgramError, warn
from minigraph.ir import Block, Operator, Variable


def operators_between(
    block: Block, targets: set[str], inputs: set[str] | None, is_no_grad: Callable[[str], bool]
) -> list[Operator]:
    """The operators to differentiate, in order: those the targets need and, with `inputs`, that the inputs reach."""
    reached = None if inputs is None else _reached_from(block, inputs, is_no_grad)
    needed = set(targets)
    path = []
    for op in reversed(block.ops):
        if needed.isdisjoint(op.output_arg_names) or (reached is not None and op not in reached):
            continue
        if op.definition.grad is None and not has_rule(op):
            _refuse_second_order(op, is_no_grad)
            continue
        path.append(op)
        needed.update(name for name in op.input_arg_names if not is_no_grad(name))
    path.reverse()
    return path


def _reached_from(block: Block, inputs: set[str], is_no_grad: Callable[[str], bool]) -> set[Operator]:
    names, reached = set(inputs), set()
    for op in block.ops:
        if not names.isdisjoint(op.input_arg_names):
            reached.add(op)
            names.update(name for name in op.output_arg_names if not is_no_grad(name))
    return reached


def _refuse_second_order(op: Operator, is_no_grad: Callable[[str], bool]) -> None:
    """Raise for a gradient operator without a rule: to leave it out like a constant would be silently wrong."""
    if op.definition.forward is not None and not all(map(is_no_grad, op.input_arg_names)):
        raise ProgramError(
            f"{op.type} has no gradient rule: the gradient of a gradient cannot pass through {op.definition.forward}",
            details=[str(op)],
            site=op.site,
            hint="Set stop_gradient=True on the first gradient to treat it as a constant.",
        )


def warn_of_stopped_loops(block: Block, path: Sequence[Operator], targets: Sequence[Variable]) -> None:
    """Warn of loop variables that were made as constants: they stop the gradient, which is seldom meant."""
    loops = {name: op for op in block.ops.of_type("while") for name in op.output_arg_names}
    if not loops:
        return
    read = [target.name for target in targets] + [name for op in path for name in op.input_arg_names]
    for name in dict.fromkeys(name for name in read if name in loops):
        var = block.find_var(name)
        assert var is not None
        if var.stop_gradient and not var.persistable and var.tensor_type is not None and var.dtype.is_floating:
            warn(
                f"no gradient flows through the loop made at {loops[name].site}, because its variable {name} has "
                f"stop_gradient=True, as constants have; set it to False before the loop if gradients are wanted"
            )
