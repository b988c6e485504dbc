"""Gradients of branches, as branches: a block computes what the branch computed once more, and its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Variable, VarKind
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.second_order.rewriting import Rewriting, rewritten_as
from minigraph.sub_blocks import outer_names


@rewritten_as("conditional_block_grad")
def _conditional_block(g: Rewriting) -> Mapping[str, Any]:
    """The gradients are zero unless the branch is taken.

    Inside, variables have new names, and the gradients that flow in are read where they are outside.
    """
    gradients = g.op.sub_block
    assert gradients is not None and gradients.forward_block is not None
    forward = gradients.forward_block
    _require_simple(g, forward, gradients)
    body = Block(g.block.program, len(g.block.program.blocks), g.block.idx)
    g.block.program.blocks.append(body)

    incoming = dict(zip(g.op.inputs["Out"], g.op.inputs["Out" + GRAD_SUFFIX], strict=True))
    names = {name + GRAD_SUFFIX: d_out for name, d_out in incoming.items() if d_out != EMPTY}
    _, written = outer_names(forward)
    outside = {name: g.var(name) for name in written}
    for name, var in {**forward.vars, **outside, **gradients.vars}.items():
        if name not in names:
            names[name] = _twin(body, var).name
    for op in (*forward.ops, *gradients.ops):
        body._link(None, _renamed(op, names))

    found: list[Variable | None] = []
    for source, wanted in zip(g.op.inputs["Input"], g.op.outputs["Input" + GRAD_SUFFIX], strict=True):
        if wanted == EMPTY:
            found.append(None)
            continue
        result = _zeros_for(g, g.var(source))
        body.append_op("assign", {"X": names[source + GRAD_SUFFIX]}, {"Out": result})
        found.append(result)
    results = [var for var in found if var is not None]
    given = [name for name in outer_names(body)[0] if name not in {var.name for var in results}]
    g.block.append_op(
        "conditional_block",
        {"Cond": g.op.inputs["Cond"], "Input": given},
        {"Out": results, "Scope": g.block.create_var(type=VarKind.STEP_SCOPES)},
        {SUB_BLOCK: body.idx, "is_scalar_condition": True},
    )
    return {"Input" + GRAD_SUFFIX: found}


def _zeros_for(g: Rewriting, source: Variable) -> Variable:
    """Zeros like `source`, which may have no value if it is a gradient that flows into a branch that is not taken."""
    shape = source.shape or (-1,)
    if -1 in shape:
        return g.emit("fill_zeros_like", X=source)
    return g.emit("fill_constant", shape=list(shape), dtype=int(source.dtype), value=0.0)


def _twin(body: Block, var: Variable) -> Variable:
    shape, dtype = (None, None) if var.tensor_type is None else (var.shape, var.dtype)
    return body.create_var(
        name=body.free_name(var.name), shape=shape, dtype=dtype, type=var.kind, stop_gradient=var.stop_gradient
    )


def _renamed(op: Operator, names: Mapping[str, str]) -> Operator:
    twin = op._copy()
    twin.inputs, twin.outputs = (
        {slot: tuple(names.get(name, name) for name in given) for slot, given in slots.items()}
        for slots in (op.inputs, op.outputs)
    )
    return twin


def _require_simple(g: Rewriting, forward: Block, gradients: Block) -> None:
    """Raise where the branch cannot be computed once more: what it read must be there as it was."""

    def refuse(reason: str) -> None:
        raise ProgramError(
            f"the gradient of a gradient cannot pass through this branch: {reason}", details=[str(g.op)], site=g.op.site
        )

    if not g.attr("is_scalar_condition"):
        refuse("its condition is that its inputs have elements")
    if any(op.sub_block is not None for op in (*forward.ops, *gradients.ops)):
        refuse("it has branches or loops of its own")
    _, written = outer_names(forward)
    overwritten = _read(forward, written) or _read(gradients, written)
    if overwritten:
        refuse(f"it overwrites {overwritten[0]}, which it reads")
    is_behind = False
    for op in g.block.ops:
        if op is g.op:
            break
        if is_behind:
            changed = [name for name in op.output_arg_names if name in outer_names(forward)[0] and name not in written]
            if changed:
                refuse(f"{op.type} overwrites {changed[0]}, which it reads")
        is_behind = is_behind or op.sub_block is forward


def _read(block: Block, names: Sequence[str]) -> list[str]:
    return [name for op in block.ops for name in op.input_arg_names if name in names]
