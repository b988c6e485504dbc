"""Loops and branches: blocks that run as long as a condition holds, or at most once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.errors import ExecutionError, OpError
from minigraph.ir import Operator
from minigraph.ir.effects import outer_names
from minigraph.ir.operator import slot_names
from minigraph.opdef import EMPTY, GRAD_SUFFIX
from minigraph.runtime.control_flow.call import BlockCall, Body, Sum, unshared, zeros_like
from minigraph.runtime.control_flow.scopes import Saved, saved_by, unique
from minigraph.types import product


class _Repeated(BlockCall):
    """Forward: ``while`` runs its block as long as the condition holds, ``conditional_block`` at most once."""

    condition: str
    scopes: str
    given_slot: str
    may_stay_out = True

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        self.conditions = self._slot(self.condition)
        self.reads = unique(self.conditions, self._slot(self.given_slot), self.touched)
        (self.scope_name,) = op.outputs[self.scopes]
        self.writes = [*self.written, self.scope_name]
        # Without a gradient nothing is kept.
        self.saved = Saved() if op.attrs.get("is_test") else saved_by(self.body)
        self.given = self.touched
        self.taken = [*self.written, *self.saved.local]
        self.private = set(self.written)

    def _has_scalar_condition(self) -> bool:
        """Whether the condition is one boolean."""
        return True

    def bind_types(self) -> None:
        """None: the block sees the variables themselves."""

    def settle_types(self) -> None:
        if len(self.conditions) == 1:
            tensor_type = self._type(self.conditions[0])
            is_one = tensor_type is not None and product(tensor_type.shape) in (1, -1)
            if self._has_scalar_condition() and not is_one:
                raise OpError(f"the condition must be one boolean, got {tensor_type}")

    def _once(self, body: Body, values: dict[str, Any]) -> tuple[Any, ...]:
        """Run the sub-block, bring `values` up to date and return the scope."""
        # Taken before the run, which replaces them.
        before = tuple([values[name] for name in self.saved.before])
        results = body([values[name] for name in self.given])
        values.update(zip(self.written, results, strict=False))
        return (*before, *results[len(self.written) :])

    def _start(self, given: Sequence[Any]) -> dict[str, Any]:
        values = dict(zip(self.reads, given, strict=True))
        # Copies, because the memory of these values is reused, while scopes and results may keep them.
        values.update({name: unshared(values[name]) for name in self.written})
        return values


class While(_Repeated, type="while"):
    condition, scopes, given_slot = "Condition", "StepScopes", "X"

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found, scopes = self._start(values), []
        (condition,) = self.conditions
        while _holds(found[condition], condition):
            scopes.append(self._once(body, found))
        return [*(found[name] for name in self.written), scopes]


class Conditional(_Repeated, type="conditional_block"):
    condition, scopes, given_slot = "Cond", "Scope", "Input"

    def _has_scalar_condition(self) -> bool:
        return bool(self.op.attr("is_scalar_condition"))

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = self._start(values)
        if self._has_scalar_condition():
            (condition,) = self.conditions
            runs = _holds(found[condition], condition)
        else:
            # Fluid's condition of an `IfElse`: a branch without rows does not run.
            runs = all(found[name].size for name in self._slot("Input"))
        scopes = [self._once(body, found)] if runs else []
        return [*(found[name] for name in self.written), scopes]


class _RepeatedGrad(BlockCall):
    """Backward: the block of gradients runs once for each scope, the last one first.

    Gradients of variables that the forward block overwrites are passed from run to run; gradients of variables that it
    only reads are summed.
    """

    scopes: str
    inputs: str
    may_stay_out = True

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        forward = self._forward_block()
        self.sources = self._slot(self.inputs)
        wanted = {
            source + GRAD_SUFFIX: (source, outer)
            for source, outer in zip(self.sources, op.outputs.get(self.inputs + GRAD_SUFFIX, ()), strict=False)
            if outer != EMPTY
        }
        given = self._pairs(self._inner_incoming(), "Out" + GRAD_SUFFIX)
        self.incoming = {name: outer for name, outer in given if outer != EMPTY}
        _, changed = outer_names(forward)
        self.carried = unique(
            (name for name in self.incoming if name in self.body.vars),
            (name for name, (source, _) in wanted.items() if source in changed or self._is_array(source)),
        )
        # Each run overwrites these whatever their value, so nothing flows to the value before it. Of an array it
        # overwrites one element; a program of Paddle leaves the gradient of that element where it was read.
        kept = {name for each in self.body.ops for name in each.output_arg_names}
        kept.update(name for name in self.carried if self._is_array(name.removesuffix(GRAD_SUFFIX)))
        self.overwritten = [name for name in self.carried if name not in kept]
        self.summed = [name for name in wanted if name not in self.carried]
        self.wanted = wanted
        self.saved = saved_by(forward)
        self.outer = [name for name in self.touched if name not in self.saved.names]
        self.reads = unique(slot_names(op.inputs), self.touched)
        self.writes = [*self.written, *(outer for _, outer in wanted.values())]
        self.given = [*self.saved.names, *self.carried, *self.outer]
        self.private = {*self.saved.names, *self.carried, *self.written}
        self.taken = [*self.written, *self.carried, *self.summed]

    def _inner_incoming(self) -> Sequence[str]:
        """Names in the sub-block of the gradients in the slot ``Out@GRAD``."""
        return [name + GRAD_SUFFIX for name in self._slot("Out")]

    def must_have(self, name: str) -> bool:
        return name in self._slot("Out" + GRAD_SUFFIX) or name in self._slot(self.scopes)

    def bind_types(self) -> None:
        for name in self.carried:
            self.body.vars[name].tensor_type = self._inner_type(name.removesuffix(GRAD_SUFFIX))

    def settle_types(self) -> None:
        for name, (source, outer) in self.wanted.items():
            self._set_type(outer, self._gradient_type(source, name))

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = dict(zip(self.reads, values, strict=True))
        found.update({name: unshared(found[name]) for name in self.written})
        carried = [self._first(name, found, xp) for name in self.carried]
        sums = [Sum(xp) for _ in self.summed]
        counted, parts = len(self.written), len(self.written) + len(self.carried)
        zeroed = [self.carried.index(name) for name in self.overwritten]
        outer = [found[name] for name in self.outer]
        for scope in reversed(found[self._slot(self.scopes)[0]]):
            results = body([*scope, *carried, *outer])
            if counted:
                # Counters go back with each run, so that an earlier run sees its own values.
                found.update(zip(self.written, results, strict=False))
                outer = [found[name] for name in self.outer]
            carried = list(results[counted:parts])
            for place in zeroed:
                carried[place] = zeros_like(carried[place], xp)
            for total, part in zip(sums, results[parts:], strict=True):
                total.add(part)
        grads = dict(zip(self.carried, carried, strict=True))
        for name, total in zip(self.summed, sums, strict=True):
            grads[name] = total.total(self._inner_type(name), found[self.wanted[name][0]])
        return [*(found[name] for name in self.written), *(grads[name] for name in self.wanted)]

    def _first(self, name: str, found: Mapping[str, Any], xp: Any) -> Any:
        """The gradient that flows into the last run from later operators; zeros or an empty array if there is none."""
        outer = self.incoming.get(name)
        value = None if outer is None else found[outer]
        if value is not None:
            return unshared(value)
        source = name.removesuffix(GRAD_SUFFIX)
        return [] if self._is_array(source) else zeros_like(found[source], xp)


class WhileGrad(_RepeatedGrad, type="while_grad"):
    scopes, inputs = "StepScopes", "X"

    def _inner_incoming(self) -> Sequence[str]:
        return self.op.attr("original_output_grad")


class ConditionalGrad(_RepeatedGrad, type="conditional_block_grad"):
    scopes, inputs = "Scope", "Input"


def _holds(value: Any, name: str) -> bool:
    if value is None or value.size != 1:
        found = "no value" if value is None else f"{value.size} elements"
        raise ExecutionError(f"the condition {name} must be one boolean, it has {found}")
    return bool(value.item())
