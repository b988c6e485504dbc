"""Differentiate operators that run a sub-block: build a block of gradients and the operator that runs it.

The block of gradients sees the forward block's variables as a run has left them (`minigraph.runtime.control_flow`
describes what is kept). Inside, the gradient of ``v`` is a new variable ``v@GRAD``, whatever its name outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Variable, VarKind
from minigraph.ir.effects import body_of, is_counter, outer_names
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.opdef.gradient_context import BlockGrad, GradName, OpSpec
from minigraph.runtime.control_flow import saved_by


class Walk(Protocol):
    """The walk over a block, as far as the gradients of its sub-blocks need it."""

    target: Block

    def is_no_grad(self, name: str) -> bool: ...
    def has_gradient(self, name: str) -> bool: ...
    def has_value_before(self, name: str, op: Operator) -> bool: ...
    def variable(self, name: str) -> Variable: ...
    def inside(self, forward: Block) -> Walk: ...
    def inside_needs(self, forward: Block, targets: Sequence[str]) -> set[str]: ...
    def seed_inside(self, name: str) -> None: ...
    def run(self, targets: Sequence[Variable], inputs: set[str] | None) -> None: ...
    def plan_call(
        self, op: Operator, spec: OpSpec, gradients: Block, needed: Iterable[str], counters: Iterable[str] = ()
    ) -> None: ...


def differentiate_call(outer: Walk, op: Operator, rule: BlockGrad) -> None:
    """Plan the gradient of `op` in the pass over the operators around it.

    Raises
    ------
    ProgramError
        If `op` keeps nothing of its runs.
    """
    if op.attrs.get("is_test") or not op.attrs.get("is_train", True):
        raise ProgramError(
            f"{op.type} keeps nothing for a gradient, because it is for tests only", site=op.site,
            hint="Differentiate the program before clone(for_test=True), or leave is_test out.",
        )  # fmt: skip
    if op.type == "recurrent":
        _differentiate_recurrent(outer, op, rule)
    else:
        _differentiate_repeated(outer, op, rule)


# Loops and branches


def _differentiate_repeated(outer: Walk, op: Operator, rule: BlockGrad) -> None:
    forward = body_of(op)
    (slot,), scopes = rule.reads, rule.runs
    _, written = outer_names(forward)
    counters = [name for name in written if is_counter(forward, name)]
    carried = [name for name in written if name not in counters and not outer.is_no_grad(name)]
    reached = [name for name in carried if outer.has_gradient(name)]
    if not reached:
        return
    given = op.inputs.get(slot, ())
    if all(map(outer.is_no_grad, given)) and not any(outer.has_value_before(name, op) for name in reached):
        return
    if op.type == "while":
        reached = _reached_in_a_loop(outer, forward, carried, reached)
    inner = outer.inside(forward)
    for name in reached:
        inner.seed_inside(name)
    inner.run([outer.variable(name) for name in reached], None)
    # A variable that the block overwrites has a gradient of its earlier value, too, if it had one.
    sources = [*given, *(name for name in reached if name not in given and outer.has_value_before(name, op))]
    wanted = [
        name if (name in reached or inner.has_gradient(name)) and not outer.is_no_grad(name) else EMPTY
        for name in sources
    ]
    # A tensor without a gradient gets zeros; for an array that is an empty one, which the run makes itself.
    incoming = [name for name in reached if outer.has_gradient(name) or not _is_array(outer, name)]
    attrs = dict(op.attrs) | {SUB_BLOCK: inner.target.idx}
    outs = list(op.outputs.get("Out", ()))
    d_outs: list[str]
    if op.type == "while":
        d_outs = [GradName.of(name) for name in outs if name in incoming]
        attrs["original_output_grad"] = [str(name) for name in d_outs]
    else:
        d_outs = [GradName.of(name) if name in incoming else EMPTY for name in outs]
    conditions = {"Cond": list(op.inputs["Cond"])} if op.type == "conditional_block" else {}
    inputs: dict[str, Sequence[str]] = {
        **conditions, slot: sources, "Out": outs, "Out" + GRAD_SUFFIX: d_outs, scopes: list(op.outputs[scopes]),
    }  # fmt: skip
    spec = OpSpec(op.type + "_grad", inputs, {slot + GRAD_SUFFIX: _grads(wanted)}, attrs)
    outer.plan_call(op, spec, inner.target, list(_needed(inner.target, forward)), counters)


def _reached_in_a_loop(outer: Walk, forward: Block, carried: Sequence[str], reached: Sequence[str]) -> list[str]:
    """Variables passed from run to run that get a gradient, from after the loop or from a later run."""
    # A gradient may need several runs of the loop to reach a variable, so that this goes on until nothing is new.
    found = list(reached)
    while True:
        needed = outer.inside_needs(forward, found)
        new = [name for name in carried if name in needed and name not in found]
        if not new:
            return [name for name in carried if name in found]
        found += new


# Recurrent networks


def _differentiate_recurrent(outer: Walk, op: Operator, rule: BlockGrad) -> None:
    forward = body_of(op)
    results = list(op.outputs["outputs"])
    if not any(outer.has_gradient(name) for name in results):
        return
    inner = outer.inside(forward)
    flowing = [name for name in results if outer.has_gradient(name) or not _is_array(outer, name)]
    seeded = [*flowing, *op.attr("states")]
    for name in seeded:
        inner.seed_inside(name)
    inner.run([forward.vars[name] for name in seeded], None)
    inputs: dict[str, list[str]] = {slot: list(op.inputs.get(slot, ())) for slot in rule.reads}
    inner_names = {**inputs, "initial_states": list(op.attr("ex_states"))}
    outputs = {}
    for slot, names in inputs.items():
        wanted = [
            name if inner.has_gradient(inside) and not outer.is_no_grad(name) else EMPTY
            for name, inside in zip(names, inner_names[slot], strict=True)
        ]
        outputs[slot + GRAD_SUFFIX] = _grads(wanted)
    scopes = list(op.outputs[rule.runs])
    d_results = [GradName.of(name) if name in flowing else EMPTY for name in results]
    slots: dict[str, Sequence[str]] = {
        **inputs, "outputs": results, rule.runs: scopes, "outputs" + GRAD_SUFFIX: d_results,
        rule.runs + GRAD_SUFFIX: scopes,
    }  # fmt: skip
    spec = OpSpec("recurrent_grad", slots, outputs, dict(op.attrs) | {SUB_BLOCK: inner.target.idx})
    outer.plan_call(op, spec, inner.target, list(_needed(inner.target, forward)))


# Shared parts


def _is_array(outer: Walk, name: str) -> bool:
    return outer.variable(name).kind is VarKind.LOD_TENSOR_ARRAY


def _grads(names: Sequence[str]) -> list[str]:
    return [GradName.of(name) if name != EMPTY else EMPTY for name in names]


def _needed(gradients: Block, forward: Block) -> Iterator[str]:
    """The outer variables that a block of gradients reads as they are when it runs."""
    saved = saved_by(forward).names
    return (name for name in outer_names(gradients)[0] if name not in saved)
