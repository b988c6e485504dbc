"""Gradients of branches and of recurrent networks, as such: blocks that compute a run once more, and its gradients.

Inside of the new blocks variables have new names. What was read must be there as it was; otherwise, and for blocks that
run blocks of their own, an error says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Block, Variable, VarKind
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.second_order.rewriting import Rewriting, rewritten_as
from minigraph.sub_blocks import outer_names, slot_names


@rewritten_as("conditional_block_grad")
def _conditional_block(g: Rewriting) -> Mapping[str, Any]:
    """The gradients are zero unless the branch is taken."""
    forward, gradients = run_blocks(g)
    if not g.attr("is_scalar_condition"):
        refuse(g, "its condition is that its inputs have elements")
    body = new_block(g)
    # The gradients that flow in are read where they are outside.
    incoming = zip(g.op.inputs["Out"], g.op.inputs["Out" + GRAD_SUFFIX], strict=True)
    names = {name + GRAD_SUFFIX: d_out for name, d_out in incoming if d_out != EMPTY}
    outside = {name: g.var(name) for name in outer_names(forward)[1]}
    _add_twins(body, names, {**forward.vars, **outside, **gradients.vars})
    _add_copies(body, names, (forward, gradients))

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
    empty(gradients)
    return {"Input" + GRAD_SUFFIX: found}


@rewritten_as("recurrent_grad")
def _recurrent(g: Rewriting) -> Mapping[str, Any]:
    """A network that goes the other way: through the steps, the states before them and the gradients of the results.

    The states before each step are computed once more. Gradients of parameters are collected step by step and added up.
    """
    forward, gradients = run_blocks(g)
    sequences, before = list(g.op.inputs["inputs"]), list(g.attr("ex_states"))
    incoming = dict(zip(g.op.inputs["outputs"], g.op.inputs["outputs" + GRAD_SUFFIX], strict=True))
    kept = _states_before(g, forward) if before else []

    body = new_block(g)
    names = {name: name for name in sequences} | {name + GRAD_SUFFIX: d_out for name, d_out in incoming.items()}
    names |= dict(zip(before, [var.name for var in kept], strict=True))
    for name in (*sequences, *incoming.values(), *(var.name for var in kept)):
        _entry(body, g.var(name))
    _add_twins(body, names, {**forward.vars, **gradients.vars})
    _add_copies(body, names, (forward, gradients))
    after = []
    for name, state in zip(before, kept, strict=True):
        if name + GRAD_SUFFIX in gradients.vars:
            after.append(body.emit("assign", X=names[name + GRAD_SUFFIX]))
        else:
            after.append(body.emit("fill_zeros_like", X=body.vars[state.name]))

    collected: list[Variable] = []

    def collect(value: Variable) -> Variable:
        collected.append(_sequence(g, value))
        body.append_op("assign", {"X": value}, {"Out": _entry(body, collected[-1])})
        return collected[-1]

    is_reverse = g.attr("reverse")
    results: dict[str, Any] = {}
    for slot, inside in (("inputs", sequences), ("initial_states", before), ("parameters", None)):
        sources = list(g.op.inputs.get(slot, ())) if inside is None else inside
        found = results[slot + GRAD_SUFFIX] = []
        for i, (source, wanted) in enumerate(zip(sources, g.op.outputs.get(slot + GRAD_SUFFIX, ()), strict=False)):
            if wanted == EMPTY:
                found.append(None)
            elif slot == "initial_states":
                found.append(collect(after[i]))
            else:
                found.append(collect(body.vars[names[source + GRAD_SUFFIX]]))
    initial = [g.emit("fill_zeros_like", X=g.var(name)) for name in g.op.inputs.get("initial_states", ())]
    d_states = [names[name + GRAD_SUFFIX] for name in g.attr("states")]
    given = [*sequences, *(var.name for var in kept), *incoming.values()]
    _append_network(g, body, given, initial, collected, d_states, after, reverse=not is_reverse)

    first = {"starts": [-1], "ends": [2**31 - 1]} if is_reverse else {"starts": [0], "ends": [1]}
    for slot, change in {
        "initial_states": lambda x: g.emit("slice", Input=x, axes=[0], decrease_axis=[0], **first),
        "parameters": lambda x: g.sum(x, [0]),
    }.items():
        results[slot + GRAD_SUFFIX] = [None if x is None else change(x) for x in results[slot + GRAD_SUFFIX]]
    empty(gradients)
    return results


def _states_before(g: Rewriting, forward: Block) -> list[Variable]:
    """What the states were before each step, as sequences."""
    body = new_block(g)
    names = {name: name for name in g.op.inputs["inputs"]}
    for name in names:
        _entry(body, g.var(name))
    _add_twins(body, names, forward.vars)
    _add_copies(body, names, (forward,))
    before = [body.vars[names[name]] for name in g.attr("ex_states")]
    kept = [_sequence(g, var) for var in before]
    for var, sequence in zip(before, kept, strict=True):
        body.append_op("assign", {"X": var}, {"Out": _entry(body, sequence)})
    after = [body.vars[names[name]] for name in g.attr("states")]
    initial = [g.var(name) for name in g.op.inputs["initial_states"]]
    names_before = [var.name for var in before]
    _append_network(g, body, list(g.op.inputs["inputs"]), initial, kept, names_before, after, g.attr("reverse"))
    return kept


def _append_network(
    g: Rewriting,
    body: Block,
    sequences: Sequence[str],
    initial: Sequence[Variable],
    outputs: Sequence[Variable],
    before: Sequence[str],
    after: Sequence[Variable],
    reverse: bool,
) -> None:
    g.block.append_op(
        "recurrent",
        {"inputs": sequences, "initial_states": initial, "parameters": outer_names(body)[0]},
        {"outputs": outputs, "step_scopes": g.block.create_var(type=VarKind.STEP_SCOPES)},
        {
            "has_states": bool(before), "ex_states": list(before), "states": [var.name for var in after],
            SUB_BLOCK: body.idx, "reverse": reverse,
        },
    )  # fmt: skip


def _sequence(g: Rewriting, entry: Variable) -> Variable:
    """A new variable outside for what `entry` is in each step."""
    steps = (g.var(g.op.inputs["inputs"][0]).shape or (-1,))[0]
    name = g.block.free_name(f"{entry.name}.steps")
    return g.block.create_var(name=name, shape=(steps, *(entry.shape or ())), dtype=entry.dtype)


def _entry(body: Block, sequence: Variable) -> Variable:
    """In a step an entry has the name of the sequence."""
    assert sequence.shape is not None
    return body.create_var(
        name=sequence.name, shape=sequence.shape[1:], dtype=sequence.dtype, stop_gradient=sequence.stop_gradient
    )


# What they share


def run_blocks(g: Rewriting, may_carry: bool = False) -> tuple[Block, Block]:
    """The forward block and that of its gradients, once it is certain that they can be run again."""
    gradients = g.op.sub_block
    assert gradients is not None and gradients.forward_block is not None
    forward = gradients.forward_block
    if any(op.sub_block is not None for op in (*forward.ops, *gradients.ops)):
        refuse(g, "it has branches or loops of its own")
    for var in (*forward.vars.values(), *gradients.vars.values()):
        if var.tensor_type is not None and var.tensor_type.is_rows:
            refuse(g, f"{var.name} is selected rows")
    touched, written = outer_names(forward)
    overwritten = _read(forward, written) or _read(gradients, written)
    if overwritten and not may_carry:
        refuse(g, f"it overwrites {overwritten[0]}, which it reads")
    read = {*touched, *slot_names(g.op.inputs)} - {*written}
    is_behind = False
    for op in g.block.ops:
        if op is g.op:
            break
        changed = [name for name in op.output_arg_names if is_behind and name in read and had_value_before(g, name)]
        if changed:
            refuse(g, f"{op.type} overwrites {changed[0]}, which it reads")
        is_behind = is_behind or op.sub_block is forward
    return forward, gradients


def had_value_before(g: Rewriting, name: str) -> bool:
    """Whether a variable had a value before the forward operator."""
    gradients = g.op.sub_block
    assert gradients is not None
    for other in g.block.ops:
        if other.sub_block is gradients.forward_block:
            break
        if name in other.output_arg_names:
            return True
    var = g.var(name)
    return var.persistable or var.is_data or var.block is not g.block


def refuse(g: Rewriting, reason: str) -> None:
    what = {"conditional_block": "branch", "while": "loop"}.get(g.op.definition.forward or "", "network")
    raise ProgramError(
        f"the gradient of a gradient cannot pass through this {what}: {reason}", details=[str(g.op)], site=g.op.site
    )


def _read(block: Block, names: Sequence[str]) -> list[str]:
    return [name for op in block.ops for name in op.input_arg_names if name in names]


def new_block(g: Rewriting) -> Block:
    body = Block(g.block.program, len(g.block.program.blocks), g.block.idx)
    g.block.program.blocks.append(body)
    return body


def empty(gradients: Block) -> None:
    """Empty the block that no operator runs any more."""
    for op in list(gradients.ops):
        gradients.remove(op)
    gradients.vars.clear()


def _add_twins(body: Block, names: dict[str, str], variables: Mapping[str, Variable]) -> None:
    """Make a variable for each of `variables` that has no name in the block yet."""
    for name, var in variables.items():
        if name not in names:
            shape, dtype = (None, None) if var.tensor_type is None else (var.shape, var.dtype)
            twin = body.create_var(
                name=body.free_name(name), shape=shape, dtype=dtype, type=var.kind, stop_gradient=var.stop_gradient
            )
            names[name] = twin.name


def _add_copies(body: Block, names: Mapping[str, str], blocks: Iterable[Block]) -> None:
    """Append the operators of `blocks`, with other names."""
    for op in (op for block in blocks for op in block.ops):
        twin = op._copy()
        twin.inputs, twin.outputs = (
            {slot: tuple(names.get(name, name) for name in given) for slot, given in slots.items()}
            for slots in (op.inputs, op.outputs)
        )
        body._link(None, twin)


def _zeros_for(g: Rewriting, source: Variable) -> Variable:
    """Zeros like `source`, which may have no value if it is a gradient that flows into a branch that is not taken."""
    shape = source.shape or (-1,)
    if -1 in shape:
        return g.emit("fill_zeros_like", X=source)
    return g.emit("fill_constant", shape=list(shape), dtype=int(source.dtype), value=0.0)
