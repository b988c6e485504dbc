"""Unroll loops that run a known number of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from minigraph.ir import Operator, Program, VarKind
from minigraph.opdef import GRAD_SUFFIX, SUB_BLOCK
from minigraph.passes.base import Pass
from minigraph.passes.canonical.dead_ops import remove_dead
from minigraph.passes.rewriting import insert_for, redirect
from minigraph.passes.unroll.copies import Copies, is_array
from minigraph.passes.unroll.known_numbers import KnownNumbers
from minigraph.passes.values import Values
from minigraph.runtime.control_flow import BlockCall, call_of
from minigraph.runtime.control_flow.repeated import While, WhileGrad
from minigraph.types import DType

_TENSORS = (VarKind.LOD_TENSOR, VarKind.LOD_TENSOR_ARRAY)


@dataclass(frozen=True)
class UnrollLoops(Pass):
    """Put the operators of each run of a ``while`` in its place, and those of ``while_grad`` likewise.

    The condition must follow from constants, as that of a loop with a counter does. What a run writes of the variables
    around the loop gets a name of its own in each run, but for arrays; ``sum`` adds the gradients of what the loop only
    reads. Loops stay if they do not run at all, write persistable variables, have branches or loops inside, handle
    sequences of unknown length or gradients that are selected rows or float16, or have more than `most_operators`
    operators in all their runs.

    Law: every value keeps its bits, because the same kernels compute it from the same values, and gradients are added
    in the same order. Random numbers are drawn in the same order.

    Attributes
    ----------
    most_operators : int
    """

    keeps_roles: ClassVar[bool] = False
    """A counter that the gradients count again is left to them, though a clone for tests has none."""
    most_operators: int = 4096

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if not block.ops.of_type("while"):
            return False
        values, numbers, changed = Values(program), KnownNumbers(block), False
        op: Operator | None = block.ops[0]
        while op is not None:
            loop = self._loop(op, values, numbers) if op.type == "while" else None
            if loop is not None:
                op = loop.unroll()
                changed = True
            else:
                numbers.note(op)
                op = op._next
        if changed:
            program.drop_unused_blocks()
            remove_dead(program, trims=True)  # such as gradients that flow out of the first run
        return changed

    def _loop(self, op: Operator, values: Values, numbers: KnownNumbers) -> _Loop | None:
        """Describe a loop that may be unrolled."""
        grads = values.readers[values.output(op, "StepScopes")]
        if not all(grad.type == "while_grad" for grad in grads):
            return None
        call, backward = _while(op), [_while_grad(grad) for grad in grads]
        if not all(map(_is_plain, (call, *backward))):
            return None
        if not all(_has_plain_gradients(each, call, values) for each in backward):
            return None
        most = self.most_operators // sum(len(each.body.ops) or 1 for each in (call, *backward))
        runs = numbers.runs(call.body.ops[:], call.conditions[0], most)
        return _Loop(call, backward, runs, values) if 0 < runs <= most else None


def _while(op: Operator) -> While:
    call = call_of(op)
    assert isinstance(call, While)
    return call


def _while_grad(op: Operator) -> WhileGrad:
    call = call_of(op)
    assert isinstance(call, WhileGrad)
    return call


def _is_plain(call: BlockCall) -> bool:
    """Whether the sub-block computes tensors and arrays, without other effects than on variables around it."""
    variables = [*call.body.vars.values(), *map(call.op.block.find_var, call.written)]
    has_tensors = all(
        var is not None and var.kind in _TENSORS and not var.persistable and not var.lod_level for var in variables
    )
    return has_tensors and not any(
        SUB_BLOCK in op.attrs or op.definition.has_effect or (op.definition.updates and op.type != "write_to_array")
        for op in call.body.ops
    )


def _has_plain_gradients(grad: WhileGrad, call: While, values: Values) -> bool:
    """Whether the gradients are tensors, and what the sub-block reads around it is what the loop has left."""
    block, variables = grad.op.block, grad.body.vars
    is_made = all(values.producer(values.read(outer, grad.op)) is not None for outer in grad.incoming.values())
    is_left = all(
        values.is_there(values.written(name, call.op), grad.op) for name in grad.outer if name in call.written
    )
    summed = [variables.get(name) for name in grad.summed]
    return (
        is_made
        and is_left
        and all(var is not None and var.kind is VarKind.LOD_TENSOR and var.dtype is not DType.FP16 for var in summed)
        and not any(is_array(block, name) for name in grad.saved.before)
    )


@dataclass(eq=False)
class _Loop:
    call: While
    backward: list[WhileGrad]
    runs: int
    values: Values

    def unroll(self) -> Operator:
        """Replace the loop and its gradients; returns the first operator in its place."""
        op = self.call.op
        before, results = op._prev, self._results()
        copies = Copies(self.call, op, self.call.written, {})
        saved = {name for grad in self.backward for name in grad.saved.before}
        for name in sorted(saved):
            copies.start(name, "assign", name)
        scopes = []
        for run in range(self.runs):
            old = {name: copies.latest[name] for name in saved}
            names = copies.append(run, {})
            scopes.append({name: names[name] for name in self.call.body.vars if name in names} | old)
        self._deliver(copies.latest, results)
        for grad in self.backward:
            self._append_gradients(grad, copies.latest, scopes)
        first = op.block.ops[0] if before is None else before._next
        op.block.remove(op)
        assert first is not None
        return first

    def _results(self) -> dict[str, list[Operator] | None]:
        """The operators that read what the loop leaves in each tensor; None if others may read it as well."""
        op, values = self.call.op, self.values
        grads = [grad.op for grad in self.backward]
        found: dict[str, list[Operator] | None] = {}
        for name in self.call.written:
            value = values.written(name, op)
            readers = [each for each in values.readers[value] if each not in grads]
            is_open = values.is_live_out(value) or any(each.definition.has_hidden_names for each in readers)
            if not is_array(op.block, name):
                found[name] = None if is_open else readers
        return found

    def _deliver(self, latest: Mapping[str, str], results: Mapping[str, list[Operator] | None]) -> None:
        """Let later operators read what the last run has written."""
        for name, readers in results.items():
            if readers is None:
                insert_for(self.call.op, "assign", {"X": latest[name]}, {"Out": name}, {})
            for reader in readers or ():
                redirect(reader, {name: latest[name]})

    def _append_gradients(self, grad: WhileGrad, final: Mapping[str, str], scopes: Sequence[Mapping[str, str]]) -> None:
        op = grad.op
        # Counters, which the sub-block counts back, begin as the loop has left them, or are copies that were kept.
        counters = {name: final.get(name, name) for name in grad.written}
        copies = Copies(grad, op, (*grad.written, *grad.carried), counters)
        for name in grad.carried:
            source, outer = name.removesuffix(GRAD_SUFFIX), grad.incoming.get(name)
            if is_array(op.block, source):
                copies.start_array(name, outer)
            elif outer is not None:
                copies.latest[name] = outer
            else:
                copies.start(name, "fill_zeros_like", final.get(source, source))
        parts: dict[str, list[str]] = {name: [] for name in grad.summed}
        for run in reversed(range(self.runs)):
            names = copies.append(run, {**final, **scopes[run]})
            for name, found in parts.items():
                found.append(names[name])
            for name in grad.overwritten:
                copies.start(name, "fill_zeros_like", copies.latest[name])
        for name, (_, outer) in grad.wanted.items():
            if name in parts:  # added in the order of `while_grad`, to keep every bit
                insert_for(op, "sum", {"X": parts[name]}, {"Out": outer}, {})
            else:
                insert_for(op, "assign", {"X": copies.latest[name]}, {"Out": outer}, {})
        for name in grad.written:
            insert_for(op, "assign", {"X": copies.latest[name]}, {"Out": name}, {})
        op.block.remove(op)
