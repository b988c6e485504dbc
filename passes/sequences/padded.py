"""Sequences of different lengths as a padded batch: the arrays to feed, and the replacement of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Variable
from minigraph.types import DType

FAR = 1e30
"""Distance of padding below all numbers, so that it is no maximum and has no share in a softmax."""


class Padded:
    """Padded sequences of variables with equal lengths; masks are made when an operator needs them."""

    def __init__(self, block: Block, var: Variable) -> None:
        self.block = block
        self.first = next(iter(block.ops), None)
        """The operator before which everything is made that others use."""
        self.var = var
        self._fed: dict[str, list[int]] = {}
        """Shape of a row of each variable that is fed."""
        self._rows: dict[str, Variable] = {}
        self.add(var)
        self.lengths = block.create_var(
            f"{var.name}.lengths", shape=[-1], dtype="int64", is_data=True, stop_gradient=True
        )

    def made(self, type: str, **fields: Any) -> Variable:
        with self.block.inserting_before(self.first):
            return self.block.emit(type, stop_gradient=True, **fields)

    def add(self, var: Variable) -> None:
        """Let a variable be fed with the lengths of the first one."""
        assert var.tensor_type is not None
        row = list(var.tensor_type.shape[1:])
        var.tensor_type = var.tensor_type.with_shape((-1, -1, *row))
        self._fed[var.name] = row

    def rows_of(self, name: str) -> Variable:
        """The padded rows of a variable that is fed, or a variable as it is."""
        var = self.block.var(name)
        if name not in self._fed:
            return var
        if name not in self._rows:
            rows = self._rows[name] = self.made("reshape2", X=var, shape=[-1, *self._fed[name]])
            rows.stop_gradient = var.stop_gradient
        return self._rows[name]

    @cached_property
    def sizes(self) -> Variable:
        """Numbers of sequences and of places in each, int32[2]."""
        shape = self.made("shape", Input=self.var)
        return self.made("slice", Input=shape, axes=[0], starts=[0], ends=[2])

    @cached_property
    def counts(self) -> Variable:
        """The lengths, float32."""
        return self.made("cast", X=self.lengths, in_dtype=int(DType.INT64), out_dtype=int(DType.FP32))

    @cached_property
    def longest(self) -> Variable:
        """Number of places, int32[1]."""
        return self.made("slice", Input=self.sizes, axes=[0], starts=[1], ends=[2])

    def mask(self, lengths: Variable | None = None) -> Variable:
        """1 before the end of each sequence, else 0, ``[batch, time]``; default of `lengths`: those that are fed."""
        counted = lengths or self.lengths
        return self.made("sequence_mask", X=counted, MaxLenTensor=self.longest, out_dtype=int(DType.FP32))

    @cached_property
    def far(self) -> Variable:
        """0 for places before the end of each sequence, `-FAR` after; ``[batch, time]``."""
        return self.made("scale", X=self.mask(), scale=FAR, bias=-FAR)

    @cached_property
    def reversed_rows(self) -> Variable:
        """Numbers of the rows in the order that reverses each sequence, int64[batch * time]."""
        integers = int(DType.INT64)
        mask = self.made("sequence_mask", X=self.lengths, MaxLenTensor=self.longest, out_dtype=integers)
        ones = self.made("fill_any_like", X=mask, value=1.0, dtype=integers)
        times = self.made("cumsum", X=ones, axis=1, exclusive=True)
        last = self.made("scale", X=self.lengths, scale=1.0, bias=-1.0)
        ahead = self.made("elementwise_add", X=self.made("scale", X=times, scale=-2.0), Y=last, axis=0)
        ahead = self.made("reshape2", X=self.made("elementwise_mul", X=ahead, Y=mask), shape=[-1])
        numbers = self.made("cumsum", X=self.made("reshape2", X=ones, shape=[-1]), axis=0, exclusive=True)
        return self.made("elementwise_add", X=numbers, Y=ahead)


_HINT = "Keep the sequences as they are for programs with this operator, or with gradients."


class PaddedOp:
    """An operator on sequences, and what takes its place.

    Attributes
    ----------
    given : sequence of str
        Inputs of the operator that have sequences.
    delivered : list of str
        Results that have sequences again.
    """

    def __init__(self, block: Block, op: Operator, padded: Padded, given: Sequence[str]) -> None:
        self.block, self.op, self.padded, self.given = block, op, padded, given
        self.delivered: list[str] = []

    def refused(self, why: str, hint: str = _HINT) -> ProgramError:
        return ProgramError(f"PadSequences: {self.op.type} has no padded form: {why}", site=self.op.site, hint=hint)

    def emit(self, type: str, **fields: Any) -> Variable:
        with self.block.inserting_before(self.op):
            return self.block.emit(type, **fields)

    def input(self, slot: str) -> Variable | None:
        """Input of the operator in a slot: the padded rows where it reads what is fed; None without one."""
        names = self.op.inputs.get(slot)
        if not names:
            return None
        return self.padded.rows_of(names[0])

    def steps(self, slot: str) -> Variable:
        """Rows as ``[batch, time, values]``."""
        rows = self.input(slot)
        assert rows is not None
        width = prod((rows.shape or ())[1:])
        if -1 in (rows.shape or ())[1:]:
            raise self.refused(f"the size of the rows of {rows.name} is not known")
        number = {"shape": [1], "dtype": int(DType.INT32), "value": float(width)}
        last = self.emit("fill_constant", **number, stop_gradient=True)
        shape = self.emit("concat", X=[self.padded.sizes, last], stop_gradient=True)
        return self.emit("reshape2", X=rows, Shape=shape, shape=[-1, -1, width])

    def alike(self, mask: Variable, x: Variable) -> Variable:
        """`mask` in the type of `x`."""
        types = {"in_dtype": int(mask.dtype), "out_dtype": int(x.dtype)}
        return mask if mask.dtype is x.dtype else self.padded.made("cast", X=mask, **types)

    def masked(self, steps: Variable, weights: Variable | None = None) -> Variable:
        """`steps` times `weights`, ``[batch, time]``; by default zeros after the ends of sequences."""
        mask = self.alike(weights or self.padded.mask(), steps)
        return self.emit("elementwise_mul", X=steps, Y=mask, axis=0)

    def rewrite(self, **inputs: Variable | None) -> None:
        """Append the operator anew with other inputs, and its results and attributes."""
        given = {slot: [var.name] for slot, var in inputs.items() if var is not None}
        with self.block.inserting_before(self.op):
            self.block.append_op(self.op.type, given, dict(self.op.outputs), dict(self.op.attrs))

    def deliver(self, slot: str, result: Variable, has_sequences: bool = True) -> None:
        """Make `result`, reshaped to rows, what the operator has written."""
        (out,) = self.op.output(slot)
        row = (self.block.var(out).shape or ())[1:]
        shape = self.block.create_var(self.block.free_name(f"{self.op.type}.tmp"))
        with self.block.inserting_before(self.op):
            outputs = {"Out": out, "XShape": shape.name}
            self.block.append_op("reshape2", {"X": result}, outputs, {"shape": [-1, *row]})
        if has_sequences:
            self.delivered.append(out)
