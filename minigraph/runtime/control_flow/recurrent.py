"""Recurrent networks: a block for each entry of sequences, with states that go from one to the next.

A sequence may also be an array: its elements are the entries, which may be arrays themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.errors import ExecutionError, OpError
from minigraph.ir import Operator, VarKind
from minigraph.ir.operator import slot_names
from minigraph.opdef import EMPTY, GRAD_SUFFIX
from minigraph.runtime.control_flow.call import BlockCall, Body, Sum, unshared, zeros_like
from minigraph.runtime.control_flow.scopes import Saved, saved_by, unique
from minigraph.types import same_dim


class Recurrent(BlockCall, type="recurrent"):
    """A block for each entry of the first dimension of sequences; states go from one entry to the next."""

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        self.sequences, self.initial = self._slot("inputs"), self._slot("initial_states")
        self.ex_states, self.states = op.attr("ex_states"), op.attr("states")
        self.first_states = self._pairs(self.ex_states, "initial_states")
        if len(self.states) != len(self.ex_states):
            raise OpError(f"recurrent: states must be {len(self.ex_states)} names, got {len(self.states)}")
        self.results = op.outputs.get("outputs", ())
        self.reads = unique(slot_names(op.inputs), self.touched)
        self.writes = [*self.results, *op.outputs["step_scopes"]]
        self.given = [*self.sequences, *self.ex_states, *self.touched]
        saved = saved_by(self.body) if op.attr("is_train") else Saved()
        self.saved = saved.local
        self.taken = [*self.states, *self.results, *self.saved]
        # The gradient reads sequences and first states, too, so they live as long as the scopes.
        self.private = {*self.sequences, *self.ex_states}

    def bind_types(self) -> None:
        for name in self.sequences:
            whole, entry = self._type(name), self.body.vars[name]
            assert whole is not None
            entry.tensor_type = whole.held_as(entry.kind) if whole.is_array else whole.with_shape(whole.shape[1:])
        for inner, outer in self.first_states:
            self.body.vars[inner].tensor_type = self._type(outer)

    def settle_types(self) -> None:
        for before, after in zip(self.ex_states, self.states, strict=True):
            old, new = self._inner_type(before), self._inner_type(after)
            if old is None or new is None or not old.fits(new):
                raise OpError(
                    f"a state starts as {old} and is updated to {new}",
                    hint="Update the state to the shape and element type that it starts with.",
                )
        length = self._length()
        for name in self.results:
            inner = self._inner_type(name)
            if inner is None:
                continue
            if self._is_array(name):
                self._set_type(name, inner.held_as(VarKind.LOD_TENSOR_ARRAY))
            else:
                self._set_type(name, inner.with_shape((length, *inner.shape)))

    def _length(self) -> int:
        types = [tensor_type for name in self.sequences if (tensor_type := self._type(name)) is not None]
        lengths = [tensor_type.shape[0] for tensor_type in types if not tensor_type.is_array]
        known = [length for length in lengths if length >= 0]
        if known and any(not same_dim(length, known[0]) for length in lengths):
            raise OpError(f"sequences differ in length: {', '.join(map(str, lengths))}")
        return known[0] if known else -1

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = dict(zip(self.reads, values, strict=True))
        length = len(found[self.sequences[0]])
        for name in self.sequences:
            if len(found[name]) != length:
                raise ExecutionError(
                    f"sequences differ in length: {self.sequences[0]} has {length}, {name} {len(found[name])}"
                )
        states = [found[name] for name in self.initial]
        touched = [found[name] for name in self.touched]
        count = len(self.states)
        rows: list[list[Any]] = []
        scopes = []
        for step in _order(length, self.op):
            results = list(body([*(found[name][step] for name in self.sequences), *states, *touched]))
            states = results[:count]
            rows.append(results[count : count + len(self.results)])
            scopes.append(tuple(results[count + len(self.results) :]))
        if self.op.attr("reverse"):
            rows.reverse()
        stacked = [self._stacked(name, [row[i] for row in rows], xp) for i, name in enumerate(self.results)]
        return [*stacked, scopes]

    def _stacked(self, name: str, rows: list[Any], xp: Any) -> Any:
        if self._is_array(name):
            return [unshared(row) for row in rows]
        if rows:
            return xp.stack(rows)
        inner = self._inner_type(name)
        assert inner is not None
        return xp.zeros((0, *(max(dim, 0) for dim in inner.shape)), inner.dtype.numpy)


def _order(length: int, op: Operator) -> range:
    return range(length - 1, -1, -1) if op.attr("reverse") else range(length)


class RecurrentGrad(BlockCall, type="recurrent_grad"):
    """Runs the block of gradients for each step, the last one first; gradients of states go to the step before."""

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        forward = self._forward_block()
        given = self._pairs(self._slot("outputs"), "outputs" + GRAD_SUFFIX)
        self.incoming = {name: grad for name, grad in given if grad != EMPTY}
        self.results = [name + GRAD_SUFFIX for name in self.incoming]
        self.state_grads = [name + GRAD_SUFFIX for name in op.attr("states")]
        self.ex_state_grads = [name + GRAD_SUFFIX for name in op.attr("ex_states")]
        self.sequences = self._wanted("inputs", self._slot("inputs"))
        self.initial = self._wanted("initial_states", op.attr("ex_states"))
        self.parameters = self._wanted("parameters", self._slot("parameters"))
        self.saved = saved_by(forward).local
        self.outer = [name for name in self.touched if name not in self.saved]
        self.reads = unique(slot_names(op.inputs), self.touched)
        self.writes = [*self.sequences.values(), *self.initial.values(), *self.parameters.values()]
        self.given = [*self.saved, *self.results, *self.state_grads, *self.outer]
        # The forward block does not compute the entries of sequences and the states that it began with.
        self.private = {name for each in forward.ops for name in each.output_arg_names}.intersection(self.saved)
        # A state that the step does not read has no gradient for the step before.
        self.carried = [name for name in self.ex_state_grads if name in self.body.vars]
        self.taken = [*self.carried, *self.sequences, *self.parameters]

    def _wanted(self, slot: str, inner: Sequence[str]) -> dict[str, str]:
        """Names of the wanted gradients, in the sub-block and outside."""
        outer = self.op.outputs.get(slot + GRAD_SUFFIX, ())
        return {n + GRAD_SUFFIX: grad for n, grad in zip(inner, outer, strict=False) if grad != EMPTY}

    def bind_types(self) -> None:
        for name in (*self.results, *self.state_grads):
            self.body.vars[name].tensor_type = self._inner_type(name.removesuffix(GRAD_SUFFIX))

    def settle_types(self) -> None:
        for slot in ("inputs", "initial_states", "parameters"):
            for source, grad in zip(self._slot(slot), self.op.outputs.get(slot + GRAD_SUFFIX, ()), strict=False):
                if grad != EMPTY:
                    self._set_type(grad, self._gradient_type(source, source + GRAD_SUFFIX))

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = dict(zip(self.reads, values, strict=True))
        scopes = found[self._slot("step_scopes")[0]]
        rows: list[Any] = [None] * len(scopes)
        sums = {name: Sum(xp) for name in self.parameters}
        states = [zeros_like(found[initial], xp) for initial in self._slot("initial_states")]
        by_name = dict(zip(self.ex_state_grads, states, strict=True))
        order = list(_order(len(scopes), self.op))
        outer = [found[name] for name in self.outer]
        # The gradient of a state needs that of the step after it.
        for step, scope in zip(reversed(order), reversed(scopes), strict=True):
            flowing = [self._flowing(name, found, step, xp) for name in self.incoming]
            results = list(body([*scope, *flowing, *(by_name[name] for name in self.ex_state_grads), *outer]))
            by_name.update(zip(self.carried, results, strict=False))
            rows[step] = results[len(self.carried) : len(self.carried) + len(self.sequences)]
            for name, part in zip(self.parameters, results[len(self.carried) + len(self.sequences) :], strict=True):
                sums[name].add(part)
        sources = {name: found[name.removesuffix(GRAD_SUFFIX)] for name in (*self.sequences, *self.parameters)}
        stacked = [self._stacked([row[i] for row in rows], sources[name], xp) for i, name in enumerate(self.sequences)]
        totals = [total.total(self._inner_type(n), sources[n]) for n, total in sums.items()]
        return [*stacked, *(by_name[name] for name in self.initial), *totals]

    def _flowing(self, name: str, found: Mapping[str, Any], step: int, xp: Any) -> Any:
        """The gradient that flows into the entry of an output; an array of gradients need not have an element."""
        grad = found[self.incoming[name]]
        entry = grad[step] if step < len(grad) else None
        return zeros_like(found[name][step], xp) if entry is None else entry

    def _stacked(self, rows: list[Any], source: Any, xp: Any) -> Any:
        if isinstance(source, list):
            return [unshared(row) for row in rows]
        return xp.stack(rows) if rows else xp.zeros_like(source)
