"""A law of passes that run before gradients are appended: the rewritten program trains like the program itself."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph import layers, unique_name
from minigraph.autodiff.backward import append_backward
from minigraph.errors import MinigraphError
from minigraph.ir import Parameter, Program, Role, Variable, VarKind
from minigraph.ir.default_programs import program_guard
from minigraph.ir.verifier import verify
from minigraph.rewrite.cases import Case

_TRAINING = Role.BACKWARD | Role.OPTIMIZE


def trained(program: Program, names: Sequence[str]) -> tuple[Program, dict[str, str]]:
    """A clone with a loss that depends on the variables of these names, and the gradients by what comes from outside.

    Returns
    -------
    tuple of Program and dict
        Its `roots` are copies of the gradients, under names that depend on nothing; and names of gradients by variable.
    """
    twin = program.clone()
    block = twin.global_block()
    with program_guard(twin, Program()), unique_name.guard("later_"):
        parts = [_loss(block.var(name)) for name in names]
        loss = layers.sums(parts) if parts[1:] else parts[0]
        grads = {var.name: grad.name for var, grad in append_backward(loss, _sources(twin))}
        for name, grad in grads.items():
            block.append_op("assign", {"X": grad}, {"Out": block.create_var(_copy(name))})
    verify(twin)
    twin.roots = tuple(map(_copy, grads))
    return twin, grads


def _copy(name: str) -> str:
    return f"gradient/{name}"


def _loss(var: Variable) -> Variable:
    """A number to whose gradient each element of `var` contributes otherwise."""
    x = layers.cast(var, "float64")
    return layers.reshape(layers.mean(layers.elementwise_add(layers.square(x), x)), [1])


def _sources(program: Program) -> list[str]:
    """Names of variables from outside of the program by which there may be gradients."""
    return [
        name
        for name, var in program.global_block().vars.items()
        if _is_floating(var) and not var.stop_gradient
        if var.is_data or (isinstance(var, Parameter) and var.trainable)
    ]


def _is_floating(var: Variable) -> bool:
    return var.kind is VarKind.LOD_TENSOR and var.tensor_type is not None and var.dtype.is_floating


def losses_of(program: Program) -> tuple[str, ...]:
    """Names of fetched values that operators compute and that have a gradient; none if the program trains already."""
    ops = [op for block in program.blocks for op in block.ops]
    if program.backward_passes or any(op.role & _TRAINING for op in ops):
        return ()
    block = program.global_block()
    made = {name for op in block.ops for name in op.output_arg_names}
    known = [block.vars[name] for name in program.roots or () if name in made]
    return tuple(
        var.name
        for var in known
        if _is_floating(var) and not (var.stop_gradient or var.is_data or var.persistable or 0 in (var.shape or ()))
    )


def with_gradients(case: Case) -> tuple[Case, dict[str, str]] | None:
    """The case with gradients appended, and their names by variable; None if the program has none."""
    names = losses_of(case.program)
    try:
        program, grads = trained(case.program, names) if names else (None, {})
    except MinigraphError:  # an operator has no gradient
        return None
    if program is None or not grads:
        return None
    return Case(program, case.feed, case.state, case.seed), grads
