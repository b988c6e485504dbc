"""What operators of control flow do: what their sub-block is given, how often it runs, what becomes of its results.

A `Call` describes one operator, for plans and for the interpreter alike; how the sub-block itself is computed is the
affair of either. A call reads variables by name, gives values to the sub-block before each of its runs, takes values
from it afterwards, and writes variables.

A run that a gradient will need leaves a scope behind, in the variable ``StepScopes``: what the gradient's own sub-block
reads of it. These are variables of the sub-block as the run left them, and outer ones that it overwrites as they were
before the run. Counters, outer variables that are incremented and nothing else, are not kept: the gradient's sub-block
counts them back, as in fluid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from minigraph.errors import ExecutionError, MinigraphError, OpError
from minigraph.inference import explain, infer_outputs
from minigraph.ir import Block, Operator, Program, VarKind
from minigraph.kernels.sparse_rows import SparseRows, joined, no_rows
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.sub_blocks import outer_names, slot_names
from minigraph.types import TensorType, product, same_dim

Body: TypeAlias = "Callable[[Sequence[Any]], Sequence[Any]]"
"""Computes a sub-block: the values of `Call.given` to those of `Call.taken`."""


class Call:
    """One operator of control flow.

    Attributes
    ----------
    reads, writes : list of str
        Variables of the operator's block, those it reads and writes; a name is read even where it may not have a value.
    given, taken : list of str
        Variables of the sub-block, or seen from it: what it gets before each run, and what is wanted of it.
    """

    def __init__(self, op: Operator) -> None:
        self.op = op
        body = op.sub_block
        assert body is not None
        self.body = body
        self.touched, self.written = outer_names(body)
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.given: list[str] = []
        self.taken: list[str] = []
        self.private: set[str] = set()
        """Of what is given, values whose memory nobody else writes to as long as what is taken is used."""

    def must_have(self, name: str) -> bool:
        """Whether a variable has to have a value for the operator to run."""
        return name in set(slot_names(self.op.inputs))

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        """The values of `writes` from those of `reads`."""
        raise NotImplementedError

    # Types

    def bind_types(self) -> None:
        """Set the types of the sub-block's variables that the operator gives it."""

    def settle_types(self) -> None:
        """Set the types of what the operator writes, once those of the sub-block are known; raise if they misfit."""

    def _slot(self, name: str) -> tuple[str, ...]:
        return self.op.inputs.get(name, ())

    def _type(self, name: str) -> TensorType | None:
        var = self.op.block.find_var(name)
        return None if var is None else var.tensor_type

    def _inner_type(self, name: str) -> TensorType | None:
        var = self.body.find_var(name)
        return None if var is None else var.tensor_type

    def _gradient_type(self, source: str, name: str) -> TensorType | None:
        """The type of a gradient of `source`, which the sub-block calls `name` and may compute as selected rows."""
        whole, inner = self._type(source), self._inner_type(name)
        return whole.held_as(inner.kind) if whole is not None and inner is not None and inner.is_rows else whole

    def _set_type(self, name: str, tensor_type: TensorType | None) -> None:
        var = self.op.block.find_var(name)
        if var is not None and tensor_type is not None and not var.persistable:
            var.tensor_type = tensor_type


def call_of(op: Operator) -> Call:
    """What an operator of control flow does."""
    return _CALLS[op.type](op)


def _unique(*groups: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in group if name != EMPTY))


# What a run of a sub-block leaves behind


@dataclass(frozen=True)
class Saved:
    """The names of what a scope holds, in order: outer variables from before the run, then the sub-block's own."""

    before: tuple[str, ...] = ()
    local: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.before + self.local


def saved_by(body: Block) -> Saved:
    """What the blocks that are gradients of `body` read of a run of it."""
    readers = [block for block in body.program.blocks if block.forward_block_idx == body.idx]
    if not readers:
        return Saved()
    _, written = outer_names(body)
    changed = {name for name in written if not is_counter(body, name)}
    before: dict[str, None] = {}
    local: dict[str, None] = {}
    for block in readers:
        for name in _unique(*(op.input_arg_names + op.output_arg_names for op in block.ops)):
            if name in block.vars:
                continue
            if name in body.vars:
                local[name] = None
            elif name in changed:
                before[name] = None
    return Saved(tuple(before), tuple(local))


def is_counter(body: Block, name: str) -> bool:
    """Whether all that a sub-block does to an outer variable is to count with it."""
    writers = [op for op in body.ops if name in op.output_arg_names]
    return bool(writers) and all(
        is_counter(_body(op), name) if SUB_BLOCK in op.attrs else is_count(op, body) for op in writers
    )


def is_count(op: Operator, block: Block) -> bool:
    """Whether an operator increments an integer in place, which a gradient can undo."""
    if op.type != "increment" or op.inputs["X"] != op.outputs["Out"]:
        return False
    var = block.find_var(op.inputs["X"][0])
    return var is not None and not var.dtype.is_floating


def _body(op: Operator) -> Block:
    body = op.sub_block
    assert body is not None
    return body


def _own(value: Any) -> Any:
    """A copy that shares no memory with `value`, which may be gone before the copy is read."""
    return value.copy() if hasattr(value, "copy") else value


def _zeros_like(value: Any, xp: Any) -> Any:
    return [] if isinstance(value, list) else xp.zeros_like(value)


def _holds(value: Any, name: str) -> bool:
    if value is None or value.size != 1:
        found = "no value" if value is None else f"{value.size} elements"
        raise ExecutionError(f"the condition {name} must be one boolean, it has {found}")
    return bool(value.item())


class _Sum:
    """The gradients that runs of a sub-block find: arrays are added up as they come, selected rows all at the end."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._total: Any = None
        self._is_own = False
        """Whether the memory of the total is nobody else's."""
        self._rows: list[SparseRows] = []

    def add(self, part: Any) -> None:
        if isinstance(part, SparseRows):
            self._rows.append(part)
        elif self._is_own:
            self._total += part
        else:
            self._is_own = self._total is not None
            self._total = self._total + part if self._is_own else part

    def total(self, tensor_type: TensorType | None, like: Any) -> Any:
        """The sum; if there was no run, zeros like the array `like`, or no rows of it if that is the type."""
        if self._rows:
            return joined(self._xp, self._rows)
        if self._total is None and like is None:
            return None  # what has no value, in a branch that was not taken, has no gradient
        if tensor_type is not None and tensor_type.is_rows:
            return no_rows(self._xp, like)
        return self._xp.zeros_like(like) if self._total is None else self._total


# Loops and branches


class _Repeated(Call):
    """Forward: ``while`` runs its block as long as the condition holds, ``conditional_block`` at most once."""

    condition: str
    scopes: str
    given_slot: str

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        self.conditions = self._slot(self.condition)
        self.reads = _unique(self.conditions, self._slot(self.given_slot), self.touched)
        (self.scope_name,) = op.outputs[self.scopes]
        self.writes = [*self.written, self.scope_name]
        self.saved = Saved() if op.attrs.get("is_test") else saved_by(self.body)
        self.given = self.touched
        self.taken = [*self.written, *self.saved.local]
        self.private = set(self.written)

    def settle_types(self) -> None:
        if len(self.conditions) == 1:
            tensor_type = self._type(self.conditions[0])
            is_scalar = tensor_type is not None and product(tensor_type.shape) in (1, -1)
            if (self.op.type == "while" or self.op.attr("is_scalar_condition")) and not is_scalar:
                raise OpError(f"the condition must be one boolean, got {tensor_type}")

    def _once(self, body: Body, values: dict[str, Any]) -> tuple[Any, ...]:
        """Run the sub-block, bring `values` up to date and return the scope."""
        before = tuple([values[name] for name in self.saved.before])
        results = list(body([values[name] for name in self.given]))
        values.update(zip(self.written, results, strict=False))
        return (*before, *results[len(self.written) :])

    def _start(self, given: Sequence[Any]) -> dict[str, Any]:
        values = dict(zip(self.reads, given, strict=True))
        # What is kept in a scope, or passed on as it is, may live in memory that is reused.
        values.update({name: _own(values[name]) for name in self.written})
        return values


class _While(_Repeated):
    condition, scopes, given_slot = "Condition", "StepScopes", "X"

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found, scopes = self._start(values), []
        (condition,) = self.conditions
        while _holds(found[condition], condition):
            scopes.append(self._once(body, found))
        return [*(found[name] for name in self.written), scopes]


class _Conditional(_Repeated):
    condition, scopes, given_slot = "Cond", "Scope", "Input"

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = self._start(values)
        if self.op.attr("is_scalar_condition"):
            (condition,) = self.conditions
            runs = _holds(found[condition], condition)
        else:
            runs = all(found[name].size for name in self._slot("Input"))
        scopes = [self._once(body, found)] if runs else []
        return [*(found[name] for name in self.written), scopes]


class _RepeatedGrad(Call):
    """Backward: the gradient's block runs once for each scope, the last one first.

    The gradient of what the forward block overwrites goes from run to run; that of what it only reads is summed.
    """

    scopes: str
    inputs: str

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        forward = self.body.forward_block
        assert forward is not None
        self.sources = self._slot(self.inputs)
        wanted = {
            source + GRAD_SUFFIX: (source, outer)
            for source, outer in zip(self.sources, op.outputs.get(self.inputs + GRAD_SUFFIX, ()), strict=False)
            if outer != EMPTY
        }
        self.incoming = dict(zip(self._inner_incoming(), self._slot("Out" + GRAD_SUFFIX), strict=True))
        _, changed = outer_names(forward)
        self.carried = _unique(
            (name for name in self.incoming if name in self.body.vars),
            (name for name, (source, _) in wanted.items() if source in changed or self._is_array(source)),
        )
        # The forward block overwrites these, whatever they were: nothing flows to what they were.
        kept = {name for each in self.body.ops for name in each.output_arg_names}
        self.overwritten = [name for name in self.carried if name not in kept]
        self.summed = [name for name in wanted if name not in self.carried]
        self.wanted = wanted
        self.saved = saved_by(forward)
        self.outer = [name for name in self.touched if name not in self.saved.names]
        self.reads = _unique(slot_names(op.inputs), self.touched)
        self.writes = [*self.written, *(outer for _, outer in wanted.values())]
        self.given = [*self.saved.names, *self.carried, *self.outer]
        self.private = {*self.saved.names, *self.carried, *self.written}
        self.taken = [*self.written, *self.carried, *self.summed]

    def _inner_incoming(self) -> Sequence[str]:
        """What the gradients in the slot ``Out@GRAD`` are called in the sub-block."""
        return [name + GRAD_SUFFIX for name in self._slot("Out")]

    def _is_array(self, name: str) -> bool:
        var = self.op.block.find_var(name)
        return var is not None and var.kind is VarKind.LOD_TENSOR_ARRAY

    def must_have(self, name: str) -> bool:
        return name in self._slot("Out" + GRAD_SUFFIX) or name in self._slot(self.scopes)

    def bind_types(self) -> None:
        for name in self.carried:
            self.body.vars[name].tensor_type = self._inner_type(name[: -len(GRAD_SUFFIX)])

    def settle_types(self) -> None:
        for name, (source, outer) in self.wanted.items():
            self._set_type(outer, self._gradient_type(source, name))

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = dict(zip(self.reads, values, strict=True))
        found.update({name: _own(found[name]) for name in self.written})
        grads: dict[str, Any] = {name: self._first(name, found, xp) for name in self.carried}
        sums = {name: _Sum(xp) for name in self.summed}
        for scope in reversed(found[self._slot(self.scopes)[0]]):
            outer = [found[name] for name in self.outer]
            results = list(body([*scope, *(grads[name] for name in self.carried), *outer]))
            counted, parts = len(self.written), len(self.written) + len(self.carried)
            found.update(zip(self.written, results, strict=False))
            grads.update(zip(self.carried, results[counted:], strict=False))
            grads.update({name: _zeros_like(grads[name], xp) for name in self.overwritten})
            for name, part in zip(self.summed, results[parts:], strict=True):
                sums[name].add(part)
        for name in self.summed:
            grads[name] = sums[name].total(self._inner_type(name), found[self.wanted[name][0]])
        return [*(found[name] for name in self.written), *(grads[name] for name in self.wanted)]

    def _first(self, name: str, found: Mapping[str, Any], xp: Any) -> Any:
        """The gradient that flows into the last run: from the operators behind, none at all if they do not use it."""
        outer = self.incoming.get(name)
        value = None if outer is None else found[outer]
        if value is not None:
            return _own(value)
        source = name[: -len(GRAD_SUFFIX)]
        return [] if self._is_array(source) else xp.zeros_like(found[source])


class _WhileGrad(_RepeatedGrad):
    scopes, inputs = "StepScopes", "X"

    def _inner_incoming(self) -> Sequence[str]:
        names: Sequence[str] = self.op.attr("original_output_grad")
        return names


class _ConditionalGrad(_RepeatedGrad):
    scopes, inputs = "Scope", "Input"


# Recurrent networks


class _Recurrent(Call):
    """A block for each entry of the first dimension of sequences; states go from one entry to the next."""

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        self.sequences, self.initial = self._slot("inputs"), self._slot("initial_states")
        self.ex_states, self.states = op.attr("ex_states"), op.attr("states")
        self.results = op.outputs["outputs"]
        self.reads = _unique(slot_names(op.inputs), self.touched)
        self.writes = [*self.results, *op.outputs["step_scopes"]]
        self.given = [*self.sequences, *self.ex_states, *self.touched]
        saved = saved_by(self.body) if op.attr("is_train") else Saved()
        self.saved = saved.local
        self.taken = [*self.states, *self.results, *self.saved]
        # The gradient reads sequences and first states too, so they are there as long as the scopes are.
        self.private = {*self.sequences, *self.ex_states}

    def bind_types(self) -> None:
        for name in self.sequences:
            whole = self._type(name)
            assert whole is not None
            self.body.vars[name].tensor_type = whole.with_shape(whole.shape[1:])
        for inner, outer in zip(self.ex_states, self.initial, strict=True):
            self.body.vars[inner].tensor_type = self._type(outer)

    def settle_types(self) -> None:
        for before, after in zip(self.ex_states, self.states, strict=True):
            old, new = self._inner_type(before), self._inner_type(after)
            if old is None or new is None or not old.fits(new):
                raise OpError(
                    f"a state starts as {old} and is updated to {new}",
                    hint="A state keeps its shape and element type from step to step.",
                )
        length = self._length()
        for name in self.results:
            inner = self._inner_type(name)
            if inner is not None:
                self._set_type(name, inner.with_shape((length, *inner.shape)))

    def _length(self) -> int:
        lengths = [tensor_type.shape[0] for name in self.sequences if (tensor_type := self._type(name)) is not None]
        known = [length for length in lengths if length >= 0]
        if known and any(not same_dim(length, known[0]) for length in lengths):
            raise OpError(f"sequences differ in length: {', '.join(map(str, lengths))}")
        return known[0] if known else -1

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = dict(zip(self.reads, values, strict=True))
        length = found[self.sequences[0]].shape[0]
        for name in self.sequences:
            if found[name].shape[0] != length:
                raise ExecutionError(
                    f"sequences differ in length: {self.sequences[0]} has {length}, {name} {found[name].shape[0]}"
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
        if rows:
            return xp.stack(rows)
        inner = self._inner_type(name)
        assert inner is not None
        return xp.zeros((0, *(max(dim, 0) for dim in inner.shape)), inner.dtype.numpy)


def _order(length: int, op: Operator) -> range:
    return range(length - 1, -1, -1) if op.attr("reverse") else range(length)


class _RecurrentGrad(Call):
    """The gradient's block for each step, the last one first; the gradients of states go from one to the one before."""

    def __init__(self, op: Operator) -> None:
        super().__init__(op)
        forward = self.body.forward_block
        assert forward is not None
        self.incoming = self._slot("outputs" + GRAD_SUFFIX)
        self.results = [name + GRAD_SUFFIX for name in self._slot("outputs")]
        self.state_grads = [name + GRAD_SUFFIX for name in op.attr("states")]
        self.ex_state_grads = [name + GRAD_SUFFIX for name in op.attr("ex_states")]
        self.sequences = self._wanted("inputs", self._slot("inputs"))
        self.initial = self._wanted("initial_states", op.attr("ex_states"))
        self.parameters = self._wanted("parameters", self._slot("parameters"))
        self.saved = saved_by(forward).local
        self.outer = [name for name in self.touched if name not in self.saved]
        self.reads = _unique(slot_names(op.inputs), self.touched)
        self.writes = [*self.sequences.values(), *self.initial.values(), *self.parameters.values()]
        self.given = [*self.saved, *self.results, *self.state_grads, *self.outer]
        self.private = set(self.saved) - {*self._slot("inputs"), *op.attr("ex_states")}
        self.carried = [name for name in self.ex_state_grads if name in self.body.vars]
        self.taken = [*self.carried, *self.sequences, *self.parameters]

    def _wanted(self, slot: str, inner: Sequence[str]) -> dict[str, str]:
        """Names of gradients in the sub-block and outside, of those that are wanted."""
        outer = self.op.outputs.get(slot + GRAD_SUFFIX, ())
        return {n + GRAD_SUFFIX: grad for n, grad in zip(inner, outer, strict=False) if grad != EMPTY}

    def bind_types(self) -> None:
        for name in (*self.results, *self.state_grads):
            self.body.vars[name].tensor_type = self._inner_type(name[: -len(GRAD_SUFFIX)])

    def settle_types(self) -> None:
        for slot in ("inputs", "initial_states", "parameters"):
            for source, grad in zip(self._slot(slot), self.op.outputs.get(slot + GRAD_SUFFIX, ()), strict=False):
                if grad != EMPTY:
                    self._set_type(grad, self._gradient_type(source, source + GRAD_SUFFIX))

    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        found = dict(zip(self.reads, values, strict=True))
        scopes = found[self._slot("step_scopes")[0]]
        sources = dict(zip((n + GRAD_SUFFIX for n in self._slot("inputs")), self._slot("inputs"), strict=True))
        rows: list[Any] = [None] * len(scopes)
        sums = {name: _Sum(xp) for name in self.parameters}
        states = [self._zeros(initial, found, xp) for initial in self._slot("initial_states")]
        by_name = dict(zip(self.ex_state_grads, states, strict=True))
        order = list(_order(len(scopes), self.op))
        outer = [found[name] for name in self.outer]
        for step, scope in zip(reversed(order), reversed(scopes), strict=True):
            flowing = [found[name][step] for name in self.incoming]
            results = list(body([*scope, *flowing, *(by_name[name] for name in self.ex_state_grads), *outer]))
            by_name.update(zip(self.carried, results, strict=False))
            rows[step] = results[len(self.carried) : len(self.carried) + len(self.sequences)]
            for name, part in zip(self.parameters, results[len(self.carried) + len(self.sequences) :], strict=True):
                sums[name].add(part)
        stacked = [
            xp.stack([row[i] for row in rows]) if rows else xp.zeros_like(found[sources[name]])
            for i, name in enumerate(self.sequences)
        ]
        parameters = dict(
            zip((n + GRAD_SUFFIX for n in self._slot("parameters")), self._slot("parameters"), strict=True)
        )
        totals = [total.total(self._inner_type(n), found[parameters[n]]) for n, total in sums.items()]
        return [*stacked, *(by_name[name] for name in self.initial), *totals]

    def _zeros(self, name: str, found: Mapping[str, Any], xp: Any) -> Any:
        return xp.zeros_like(found[name])


_CALLS: dict[str, type[Call]] = {
    "while": _While,
    "while_grad": _WhileGrad,
    "conditional_block": _Conditional,
    "conditional_block_grad": _ConditionalGrad,
    "recurrent": _Recurrent,
    "recurrent_grad": _RecurrentGrad,
}


# Types


def infer_again(block: Block) -> None:
    """Infer the types of everything that the operators of a block write, and of the sub-blocks that they run.

    Raises
    ------
    MinigraphError
        If an operator does not accept what it is given.
    """
    for op in block.ops:
        try:
            if SUB_BLOCK in op.attrs:
                _infer_call(call_of(op))
            else:
                infer_outputs(op, block)
        except MinigraphError as error:
            raise explain(error, op, block) from None


def _infer_call(call: Call) -> None:
    call.bind_types()
    while True:
        # A dimension that differs from run to run becomes unknown, and what is computed from it too.
        before = [call._type(name) for name in call.written]
        infer_again(call.body)
        if before == [call._type(name) for name in call.written]:
            break
    call.settle_types()


def forget_types(program: Program) -> None:
    """Forget the types of arrays and of what sub-blocks write from inside, before all types are inferred again.

    What they have in common with the types of an earlier inference does not matter.
    """
    for block in program.blocks:
        for var in block.vars.values():
            if var.kind is VarKind.LOD_TENSOR_ARRAY and var.tensor_type is not None:
                var.tensor_type = var.tensor_type.with_shape(()).held_as(VarKind.LOD_TENSOR_ARRAY)
        for op in block.ops:
            if SUB_BLOCK not in op.attrs:
                continue
            for name in outer_names(_body(op))[1]:
                found = block.find_var(name)
                if found is not None and found.kind is VarKind.LOD_TENSOR and not (found.persistable or found.is_data):
                    found.tensor_type = None
