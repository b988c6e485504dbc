"""Unroll recurrent networks with a known number of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from minigraph import unique_name
from minigraph.ir import Block, Operator, Program, VarKind
from minigraph.ir.dataflow import backward_slice
from minigraph.ir.operator import renamed
from minigraph.opdef import GRAD_SUFFIX, SUB_BLOCK
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for, is_random, outputs_in_use
from minigraph.passes.values import Values
from minigraph.runtime.control_flow import BlockCall, Recurrent, RecurrentGrad, call_of
from minigraph.types import DType

Names = Mapping[str, str]
"""Variables of a sub-block, each with the one of the block around it that holds its value in one step."""


@dataclass(frozen=True)
class UnrollRecurrent(Pass):
    """Put the operators of each step of a ``recurrent`` in its place, and those of ``recurrent_grad`` likewise.

    A step reads entries by ``slice``; ``stack`` joins outputs, and ``sum`` adds the gradients of parameters. Other
    passes then see a network as if it were written step by step. Networks stay if they have sequences of unknown
    length, arrays or selected rows, float16 parameters with gradients, or branches or loops inside, if they write outer
    variables, or if all their steps have more than `most_operators` operators.

    Law: every value keeps its bits, because the same kernels compute it from the same values, and gradients are added
    in the same order. Random numbers are drawn in the same order.

    Attributes
    ----------
    most_operators : int
    batch_may_be_open : bool
        Whether dimensions other than the number of steps may be unknown, as they are before a run.
    """

    most_operators: int = 4096
    batch_may_be_open: bool = False

    def apply(self, program: Program) -> bool:
        loops = program.global_block().ops.of_type("recurrent")
        if not loops:
            return False
        values = Values(program)
        changed = False
        for op in loops:
            # Whoever else reads the scopes needs the operator itself.
            grads = values.readers[values.output(op, "step_scopes")]
            if all(grad.type == "recurrent_grad" for grad in grads) and self._may_unroll(op, grads, values):
                _unroll(op, grads)
                changed = True
        if changed:
            program.drop_unused_blocks()
        return changed

    def _may_unroll(self, op: Operator, grads: Sequence[Operator], values: Values) -> bool:
        call, backward = _recurrent(op), [_recurrent_grad(grad) for grad in grads]
        length = _length(call, self.batch_may_be_open)
        count = length * sum(len(each.body.ops) for each in (call, *backward))
        if not 0 < count <= self.most_operators or not _is_plain(
            call, {*call.sequences, *call.ex_states}, self.batch_may_be_open
        ):
            return False
        return all(
            _is_plain(each, {*each.results, *each.state_grads}, self.batch_may_be_open)
            and set(each.results).isdisjoint(each.state_grads)
            and all(each.body.vars[name].dtype is not DType.FP16 for name in each.parameters)
            and all(values.is_there(values.read(name, op), each.op) for name in call.initial)
            for each in backward
        )


def _recurrent(op: Operator) -> Recurrent:
    call = call_of(op)
    assert isinstance(call, Recurrent)
    return call


def _recurrent_grad(op: Operator) -> RecurrentGrad:
    call = call_of(op)
    assert isinstance(call, RecurrentGrad)
    return call


def _length(call: Recurrent, batch_may_be_open: bool = True) -> int:
    """Return the number of steps; 0 if it is not known, or a sequence is no tensor of at least two dimensions."""
    variables = call.op.block.vars
    if any(variables[name].kind is not VarKind.LOD_TENSOR for name in (*call.sequences, *call.results)):
        return 0
    shapes = [variables[name].shape or () for name in call.sequences]
    lengths = {shape[0] for shape in shapes if shape}
    if batch_may_be_open:
        lengths.discard(-1)  # of a mask, say, which has as many steps as another sequence
    is_known = all(len(shape) > 1 and (batch_may_be_open or -1 not in shape) for shape in shapes)
    return lengths.pop() if is_known and len(lengths) == 1 else 0


def _is_plain(call: BlockCall, given: set[str], batch_may_be_open: bool) -> bool:
    """Whether the sub-block computes tensors of known shape from others, writing neither outer ones nor `given`."""
    ops, variables = call.body.ops, call.body.vars.values()
    has_tensors = all(
        var.kind is VarKind.LOD_TENSOR and not var.persistable and var.tensor_type is not None
        and (batch_may_be_open or var.tensor_type.is_static) for var in variables
    )  # fmt: skip
    return has_tensors and not call.written and not any(
        SUB_BLOCK in op.attrs or op.definition.has_hidden_names or op.definition.has_effect
        or not given.isdisjoint(op.output_arg_names) for op in ops
    )  # fmt: skip


def _unroll(op: Operator, grads: Iterable[Operator]) -> None:
    call = _recurrent(op)
    order = range(_length(call))
    if op.attr("reverse"):
        order = order[::-1]
    steps = _insert_steps(call, order)
    backward = [_recurrent_grad(grad) for grad in grads]
    op.block.remove(op)
    for each in backward:
        _insert_gradients(each, order, steps)
        each.op.block.remove(each.op)


def _insert_steps(call: Recurrent, order: Sequence[int]) -> dict[int, Names]:
    """Insert all steps before the operator of `call`; returns the names of each."""
    op, tag, found = call.op, unique_name.generate("STEP"), dict[int, Names]()
    states: Sequence[str] = call.initial
    for step in order:
        names = _names(call.body, tag, step) | dict(zip(call.ex_states, states, strict=True))
        for name in call.sequences:
            _insert_entry(op, name, step, names[name])
        _insert_copies(op, call.body.ops, names)
        states = [names[name] for name in call.states]
        found[step] = names
    for name in call.results:
        insert_for(op, "stack", {"X": [found[step][name] for step in sorted(order)]}, {"Y": name}, {"axis": 0})
    return found


def _insert_gradients(call: RecurrentGrad, order: Sequence[int], steps: Mapping[int, Names]) -> None:
    """Insert the gradients of all steps before the operator of `call`."""
    op, tag, found = call.op, unique_name.generate("STEP"), dict[int, Names]()
    states = {name: f"{name}@{tag}" for name in call.ex_state_grads}
    for name, initial in zip(call.ex_state_grads, op.inputs.get("initial_states", ()), strict=True):
        insert_for(op, "fill_zeros_like", {"X": initial}, {"Out": states[name]}, {})
    # What computes gradients that nobody asked for is not repeated in each step.
    needed = _needed(call)
    for step in reversed(order):
        names = {**steps[step], **_names(call.body, tag, step)}
        for name, grad in call.incoming.items():
            _insert_entry(op, grad, step, names[name + GRAD_SUFFIX])
        names |= {after: states[before] for after, before in zip(call.state_grads, call.ex_state_grads, strict=True)}
        _insert_copies(op, needed, names)
        states |= {name: names[name] for name in call.carried}
        found[step] = names
    for name, grad in call.sequences.items():
        insert_for(op, "stack", {"X": [found[step][name] for step in sorted(order)]}, {"Y": grad}, {"axis": 0})
    for name, grad in call.initial.items():
        insert_for(op, "assign", {"X": states[name]}, {"Out": grad}, {})
    for name, grad in call.parameters.items():  # added in the order of `recurrent_grad`, to keep every bit
        insert_for(op, "sum", {"X": [found[step][name] for step in reversed(order)]}, {"Out": grad}, {})


def _needed(call: RecurrentGrad) -> Sequence[Operator]:
    """Return the operators that the gradients leaving a step depend on, without outputs that nothing reads."""
    trimmed: dict[Operator, dict[str, tuple[str, ...]]] = {}

    def note(op: Operator, wanted: set[str]) -> None:
        trimmed[op] = outputs_in_use(op, call.body, wanted)

    needed = backward_slice(call.body, call.taken, is_random, note)
    for op, outputs in trimmed.items():
        op.outputs = outputs
    return needed


def _names(body: Block, tag: str, step: int) -> dict[str, str]:
    return {name: f"{name}@{tag}.{step}" for name in body.vars}


def _insert_entry(op: Operator, name: str, step: int, entry: str) -> None:
    attrs = {"axes": [0], "starts": [step], "ends": [step + 1], "decrease_axis": [0]}
    insert_for(op, "slice", {"Input": name}, {"Out": entry}, attrs)


def _insert_copies(anchor: Operator, ops: Iterable[Operator], names: Names) -> None:
    """Insert copies of operators of a sub-block before `anchor`; they keep their roles and lines."""
    block = anchor.block
    for op in ops:
        twin = op._twin(block)
        twin.inputs, twin.outputs = renamed(op.inputs, names), renamed(op.outputs, names)
        twin.role_vars = tuple([names.get(name, name) for name in op.role_vars])
        for name in op.output_arg_names:
            if names[name] not in block.vars:
                var = block.vars[names[name]] = op.block.vars[name]._copy_to(block)
                var.name = names[name]
        block._link(anchor, twin)
