"""Recurrent networks over a padded batch: a `recurrent` operator over time, whose states stay where a sequence ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph.ir import Block, Variable, VarKind
from minigraph.ir.effects import outer_names
from minigraph.passes.sequences.padded import PaddedOp

_NUMBERS = ("identity", "sigmoid", "tanh", "relu")
"""Activations by the numbers that ``gru_unit`` has for them."""

_BY_TIME = [1, 0, 2]

Step = Callable[[Block, Variable, "list[Variable]"], "list[Variable]"]
"""Append a step to the block: from the entry of one time and the states before it, return the states after it."""


def lstm(at: PaddedOp) -> None:
    """The gates of a step are the candidate, the input gate, the forget gate and the output gate."""
    op, weight, bias = at.op, at.input("Weight"), at.input("Bias")
    assert weight is not None and bias is not None
    size = (weight.shape or ())[0]

    def of_bias(start: int, end: int) -> Variable:
        part = at.emit("slice", Input=bias, axes=[1], starts=[start * size], ends=[end * size])
        return at.emit("reshape2", X=part, shape=[(end - start) * size])

    of_cell = [of_bias(4 + k, 5 + k) for k in range(3)] if op.attr("use_peepholes") else None
    entries = at.emit("elementwise_add", X=at.steps("Input"), Y=of_bias(0, 4), axis=2)

    def step(inside: Block, entry: Variable, before: list[Variable]) -> list[Variable]:
        def product(x: Variable, y: Variable) -> Variable:
            return inside.emit("elementwise_mul", X=x, Y=y)

        def gate(number: int, kind: str, cell: Variable | None = None) -> Variable:
            part = inside.emit("slice", Input=gates, axes=[1], starts=[number * size], ends=[(number + 1) * size])
            if of_cell is not None and cell is not None:
                part = inside.emit("elementwise_add", X=part, Y=product(cell, of_cell[number - 1]))
            return _activated(inside, part, op.attr(f"{kind}_activation"))

        hidden, cell = before
        gates = inside.emit("elementwise_add", X=entry, Y=inside.emit("mul", X=hidden, Y=weight))
        added = product(gate(1, "gate", cell), gate(0, "candidate"))
        after = inside.emit("elementwise_add", X=product(gate(2, "gate", cell), cell), Y=added)
        squashed = _activated(inside, after, op.attr("cell_activation"))
        return [product(gate(3, "gate", after), squashed), after]

    first = [at.input("H0"), at.input("C0")]
    for slot, states in zip(("Hidden", "Cell"), _over_time(at, entries, first, size, step), strict=True):
        at.deliver(slot, states)


def gru(at: PaddedOp) -> None:
    op, weight, bias = at.op, at.input("Weight"), at.input("Bias")
    assert weight is not None
    attrs = {name: _NUMBERS.index(op.attr(name)) for name in ("activation", "gate_activation")}

    def step(inside: Block, entry: Variable, before: list[Variable]) -> list[Variable]:
        inputs = {"Input": entry, "HiddenPrev": before[0], "Weight": weight} | ({"Bias": bias} if bias else {})
        slots = ("Gate", "ResetHiddenPrev", "Hidden")
        outputs = {slot: inside.create_var(inside.free_name("gru_unit.tmp")) for slot in slots}
        inside.append_op("gru_unit", inputs, outputs, {**attrs, "origin_mode": op.attr("origin_mode")})
        return [outputs["Hidden"]]

    (states,) = _over_time(at, at.steps("Input"), [at.input("H0")], (weight.shape or ())[0], step)
    at.deliver("Hidden", states)


def _activated(block: Block, x: Variable, name: str) -> Variable:
    return x if name == "identity" else block.emit(name, X=x)


def _over_time(at: PaddedOp, entries: Variable, first: list[Variable | None], size: int, step: Step) -> list[Variable]:
    """The states after each step, [batch, time, size], from those before the first one, zeros by default."""
    block, program = at.block, at.block.program
    mask = at.padded.made("transpose2", X=at.padded.mask(), axis=[1, 0])
    sequences = [at.emit("transpose2", X=entries, axis=_BY_TIME), at.alike(mask, entries)]
    zeros = {"shape": [-1, size], "value": 0.0, "dtype": int(entries.dtype)}
    initial = [
        given or at.emit("fill_constant_batch_size_like", Input=entries, **zeros, stop_gradient=True) for given in first
    ]
    inside = program.create_block(block.idx)
    entry, still = (_like(inside, each.name, each, 1) for each in sequences)
    before = [_like(inside, inside.free_name(f"{at.op.type}@before"), each) for each in initial]
    after = [_kept(inside, old, new, still) for old, new in zip(before, step(inside, entry, before), strict=True)]
    collected = [inside.emit("rnn_memory_helper", X=each, dtype=int(each.dtype)) for each in after]
    for made in inside.ops:
        made.site = at.op.site
    program.rollback()
    outputs = [block.create_var(each.name, shape=[-1, *(each.shape or ())], dtype=each.dtype) for each in collected]
    touched, _ = outer_names(inside)
    with block.inserting_before(at.op):
        block.append_op(
            "recurrent",
            {"inputs": sequences, "initial_states": initial, "parameters": touched},
            {"outputs": outputs, "step_scopes": block.create_var(type=VarKind.STEP_SCOPES)},
            {
                "has_states": True, "ex_states": [each.name for each in before],
                "states": [each.name for each in after], "sub_block": inside, "reverse": at.op.attr("is_reverse"),
            },
        )  # fmt: skip
    return [at.emit("transpose2", X=each, axis=_BY_TIME) for each in outputs]


def _like(inside: Block, name: str, var: Variable, without: int = 0) -> Variable:
    """A variable of the block like an outer one, without its first dimensions."""
    return inside.create_var(name, shape=(var.shape or ())[without:], dtype=var.dtype)


def _kept(inside: Block, old: Variable, new: Variable, still: Variable) -> Variable:
    """`new` for sequences that go on, else `old`."""
    change: Any = inside.emit("elementwise_sub", X=new, Y=old)
    change = inside.emit("elementwise_mul", X=change, Y=still, axis=0)
    return inside.emit("elementwise_add", X=old, Y=change)
