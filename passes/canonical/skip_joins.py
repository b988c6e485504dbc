"""Read joined values directly instead of parts of the whole, and drop zeros from sums."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod
from typing import ClassVar

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.parts import Part, Parts, slice_starts
from minigraph.passes.rewriting import redirect
from minigraph.passes.values import Value

_JOINS = {"stack": "X", "concat": "X", "unstack_grad": "Y@GRAD", "slice_grad": "Out@GRAD"}
"""Operators that join values, with the slot of these; the last one joins one with zeros."""

_CUTS = ("slice", "split", "unstack")


class SkipJoins(Pass):
    """Let readers of a part of joined values read the value that was joined there, and drop zeros from sums.

    A network that collects its outputs by ``stack`` and reads the last one by ``slice`` then reads that output itself.
    The gradient of the ``slice`` is zero in all other steps, and these parts are not added.

    Law: every value is the same, but zeros may change their sign, because ``-0.0 + 0.0`` is 0.0. A joined value may
    have another memory layout than a part of the whole, so that later sums and products may round differently.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        is_there = ops.by_type.__contains__
        if not any(map(is_there, _CUTS)) or not any(map(is_there, _JOINS)):
            return False  # the quick way out for most programs
        walk = _Walk(Parts(program))
        for op in ops:
            walk.visit(op)
        return walk.changed


class _Walk:
    """Values that equal earlier ones or zero, during a walk through a block."""

    def __init__(self, values: Parts) -> None:
        self.values = values
        self.changed = False
        self._same: dict[Value, Value] = {}
        self._zeros: set[Value] = set()
        self._pieces: dict[Operator, dict[int, Part]] = {}
        """Joined values by their first element in the whole, by the joining operator."""

    def visit(self, op: Operator) -> None:
        self._read_same(op)
        if op.type in _CUTS:
            for name in op.outputs.get("Out") or op.outputs["Y"]:
                self._note_part(op, name)
        elif op.type in ("sum", "elementwise_add"):
            self._drop_zeros(op)
        elif _makes_zeros(op):
            self._zeros.add(self.values.output(op, "Out"))

    def _read_same(self, op: Operator) -> None:
        names = {}
        for name in () if op.definition.has_hidden_names or not self._same else op.input_arg_names:
            same = self._same.get(self.values.read(name, op))
            if same is not None and self.values.is_there(same, op):
                names[name] = same[0]
        redirect(op, names)
        self.changed |= bool(names)

    def _note_part(self, op: Operator, name: str) -> None:
        """Note which joined value, or zero, the part `name` is that `op` cuts out of a whole."""
        value = self.values.written(name, op)
        part = self.values.part(value)
        if part.whole in self._zeros:
            self._zeros.add(value)
        join = self.values.producer(part.whole, *_JOINS)
        if join is None or part.size < 1:
            return
        if join not in self._pieces:
            self._pieces[join] = {piece.start: piece for piece in _pieces_of(join, self.values)}
        pieces = self._pieces[join]
        piece = pieces.get(part.start)
        if piece is not None and piece.size == part.size:
            self._note(value, piece.whole)
        elif join.type == "slice_grad" and all(_are_apart(part, each) for each in pieces.values()):
            self._zeros.add(value)

    def _note(self, value: Value, same: Value) -> None:
        """Note that `value` is `same`, perhaps in another shape."""
        variables = self.values.block.vars
        if same in self._zeros:
            self._zeros.add(value)
        elif variables[value[0]].tensor_type == variables[same[0]].tensor_type:
            self._same[value] = self._same.get(same, same)

    def _drop_zeros(self, op: Operator) -> None:
        slots = ("X",) if op.type == "sum" else ("X", "Y")
        names = [name for slot in slots for name in op.inputs[slot]]
        rest = [name for name in names if self.values.read(name, op) not in self._zeros]
        variables = self.values.block.vars
        if len(rest) == len(names) or len({variables[name].tensor_type for name in names}) > 1:
            return
        if not rest:
            self._zeros.add(self.values.output(op, "Out"))
            return
        if len(rest) == 1:
            self._note(self.values.output(op, "Out"), self.values.read(rest[0], op))
        if op.type == "sum":
            op.set_input("X", rest)
            self.changed = True


def _pieces_of(join: Operator, values: Parts) -> Iterator[Part]:
    """Yield the places of joined values in the whole, none if they are not consecutive elements there."""
    names = join.inputs[_JOINS[join.type]]
    sizes = [prod(values.block.vars[name].shape or ()) for name in names]
    (whole,) = join.output_arg_names
    shape = values.block.vars[whole].shape or ()
    if join.type == "slice_grad":
        starts = slice_starts(join, shape) if set(join.inputs) == {"Input", "Out@GRAD"} else ()
    elif join.inputs.get("AxisTensor") or prod(shape[: join.attr("axis") % len(shape)]) != 1 or min(sizes) < 1:
        starts = ()
    else:
        starts = list(accumulate(sizes, initial=0))[:-1]
    for name, start, size in zip(names, starts, sizes, strict=False):
        yield Part(values.read(name, join), start, size)


def _are_apart(part: Part, other: Part) -> bool:
    return part.start + part.size <= other.start or other.start + other.size <= part.start


def _makes_zeros(op: Operator) -> bool:
    if op.type == "fill_zeros_like":
        return True
    is_constant = op.type == "fill_constant" and not any(op.inputs.values())
    return is_constant and op.attr("value") == 0 and not op.attr("str_value")
