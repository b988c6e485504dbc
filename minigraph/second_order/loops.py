"""Gradients of loops, as loops: one runs again and keeps what went into each run, one goes back over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minigraph.ir import Block, Operator, Variable, VarKind
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.second_order.blocks import empty, had_value_before, new_block, refuse, run_blocks
from minigraph.second_order.rewriting import Rewriting, rewritten_as
from minigraph.sub_blocks import outer_names
from minigraph.types import DType


@rewritten_as("while_grad")
def _while(g: Rewriting) -> Mapping[str, Any]:
    """What the loop overwrites is copied in front of it, so that it can run again."""
    forward, gradients = run_blocks(g, may_carry=True)
    (loop,) = [op for op in g.block.ops if op.sub_block is forward]
    touched, written = outer_names(forward)
    names = {*touched, *written}
    if any(var.kind is VarKind.LOD_TENSOR_ARRAY for var in (*map(g.var, names), *forward.vars.values())):
        refuse(g, "it reads or writes arrays of tensors")
    again = _Again(g, loop, forward, [name for name in written if had_value_before(g, name)])
    results = _back(g, forward, gradients, again)
    empty(gradients)
    return results


class _Again:
    """The loop once more.

    Attributes
    ----------
    kept : dict
        For what goes from run to run, by name, an array of what it was before each run.
    count : Variable
        How many runs there were.
    """

    def __init__(self, g: Rewriting, loop: Operator, forward: Block, carried: Iterable[str]) -> None:
        with g.block.inserting_before(loop, role=loop.role):
            start = {name: g.emit("assign", X=g.var(name)) for name in carried}
        state = {name: g.emit("assign", X=var) for name, var in start.items()}
        self.count = _number(g, 0)
        self.kept = {name: _array(g, var) for name, var in start.items()}
        for name, var in start.items():
            g.block.append_op("write_to_array", {"X": var, "I": self.count}, {"Out": self.kept[name]})
        body = new_block(g)
        values = _copied(body, forward.ops, {name: var.name for name, var in state.items()})
        body.append_op("increment", {"X": self.count}, {"Out": self.count})
        for name, var in state.items():
            body.append_op("write_to_array", {"X": values[name], "I": self.count}, {"Out": self.kept[name]})
            body.append_op("assign", {"X": values[name]}, {"Out": var})
        (condition,) = loop.inputs["Condition"]
        _append_loop(g, body, state[condition], [*state.values(), *self.kept.values(), self.count])


def _back(g: Rewriting, forward: Block, gradients: Block, again: _Again) -> Mapping[str, Any]:
    """The gradients of what the loop overwrites go from run to run; those of what it only reads are added up."""
    sources = list(g.op.inputs.get("X", ()))
    wanted = [
        (source, name) for source, name in zip(sources, g.op.outputs["X" + GRAD_SUFFIX], strict=True) if name != EMPTY
    ]
    incoming = dict(zip(g.attr("original_output_grad"), g.op.inputs["Out" + GRAD_SUFFIX], strict=True))
    _, written = outer_names(forward)
    carried = [name for name in incoming if name in gradients.vars]
    carried += [
        source + GRAD_SUFFIX
        for source, _ in wanted
        if source in written and source + GRAD_SUFFIX not in carried
    ]  # fmt: skip
    flowing = {}
    for name in carried:
        given = incoming.get(name)
        like = g.var(name[: -len(GRAD_SUFFIX)])
        flowing[name] = g.emit("fill_zeros_like", X=like) if given is None else g.emit("assign", X=g.var(given))
    sums = {
        source + GRAD_SUFFIX: g.emit("fill_zeros_like", X=g.var(source))
        for source, _ in wanted
        if source + GRAD_SUFFIX not in flowing
    }
    index = g.emit("increment", X=again.count, step=-1.0)
    first = _number(g, 0)
    goes_on = g.emit("greater_equal", X=index, Y=first)

    body = new_block(g)
    before = {name: body.emit("read_from_array", X=array, I=index).name for name, array in again.kept.items()}
    after = _copied(body, forward.ops, before)
    known = {**after, **before, **{name: var.name for name, var in flowing.items()}}
    found = _copied(body, gradients.ops, known)
    changed = {name for op in gradients.ops for name in op.output_arg_names}
    for name, var in flowing.items():
        # The loop overwrites it whatever it was, unless its block says what flows on.
        value = found[name] if name in changed else body.emit("fill_zeros_like", X=var)
        body.append_op("assign", {"X": value}, {"Out": var})
    for name, var in sums.items():
        total = body.emit("elementwise_add", X=var, Y=body.vars[found[name]])
        body.append_op("assign", {"X": total}, {"Out": var})
    body.append_op("increment", {"X": index}, {"Out": index}, {"step": -1.0})
    body.append_op("greater_equal", {"X": index, "Y": first}, {"Out": goes_on})
    _append_loop(g, body, goes_on, [*flowing.values(), *sums.values(), index, goes_on])
    results = {**flowing, **sums}
    return {
        "X" + GRAD_SUFFIX: [
            None if name == EMPTY else results[source + GRAD_SUFFIX]
            for source, name in zip(sources, g.op.outputs["X" + GRAD_SUFFIX], strict=True)
        ]
    }


def _append_loop(g: Rewriting, body: Block, condition: Variable, outputs: list[Variable]) -> None:
    given = {name: None for name in outer_names(body)[0] if name != condition.name}
    g.block.append_op(
        "while",
        {"X": list(given), "Condition": condition},
        {"Out": outputs, "StepScopes": g.block.create_var(type=VarKind.STEP_SCOPES)},
        {SUB_BLOCK: body.idx},
    )


def _copied(body: Block, ops: Iterable[Operator], known: Mapping[str, str]) -> dict[str, str]:
    """Append copies of `ops`, whose results have names of their own each time; returns the last ones.

    `known` has the names of what is there before.
    """
    names = dict(known)
    for op in ops:
        twin = op._copy()
        twin.inputs = {slot: tuple(names.get(name, name) for name in given) for slot, given in op.inputs.items()}
        twin.outputs = {
            slot: tuple(name if name == EMPTY else _fresh(body, op, name) for name in given)
            for slot, given in op.outputs.items()
        }
        body._link(None, twin)
        for slot, given in op.outputs.items():
            names.update(zip(given, twin.outputs[slot], strict=True))
    return names


def _fresh(body: Block, op: Operator, name: str) -> str:
    var = op.block.find_var(name)
    assert var is not None
    shape, dtype = (None, None) if var.tensor_type is None else (var.shape, var.dtype)
    return body.create_var(
        name=body.free_name(name), shape=shape, dtype=dtype, type=var.kind, stop_gradient=var.stop_gradient
    ).name


def _number(g: Rewriting, value: int) -> Variable:
    return g.emit(
        "fill_constant", shape=[1], dtype=int(DType.INT64), value=float(value), str_value=str(value), stop_gradient=True
    )  # fmt: skip


def _array(g: Rewriting, like: Variable) -> Variable:
    return g.block.create_var(
        name=g.block.free_name(f"{like.name}.kept"), shape=like.shape, dtype=like.dtype,
        type=VarKind.LOD_TENSOR_ARRAY, stop_gradient=like.stop_gradient,
    )  # fmt: skip
