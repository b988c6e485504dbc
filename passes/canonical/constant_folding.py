"""Compute constants when a program is lowered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.errors import MinigraphError
from minigraph.ir import Operator, Program
from minigraph.ops.tensor import VALUES_OF
from minigraph.passes.base import Pass
from minigraph.passes.canonical.dead_ops import remove_dead
from minigraph.passes.rewriting import insert_for, is_random
from minigraph.passes.values import Value, Values
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.place import CPUPlace
from minigraph.support.sizes import is_closed
from minigraph.types import DType, VarKind, as_dtype

_MAKE_CONSTANTS = frozenset({"assign_value", "fill_constant"})
_READ_SHAPES_ONLY = frozenset({"fill_any_like", "fill_constant_batch_size_like", "fill_zeros_like", "shape"})


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace operators whose inputs are constants by ``fill_constant`` or ``assign_value``.

    Constants are the results of these two, results computed from constants, and those that depend on known shapes only.

    Law: every value keeps its bits, as the processor computes them. Operators stay if they draw random numbers, or if
    their kernel raises an error, which the run reports. So do results that have more than `max_elements` elements or
    lengths of sequences, do not lie row by row, hold a NaN, whose bits no attribute holds, or have a dimension that the
    program leaves open. A ``fill_constant`` in the shape of a value with such a dimension becomes ``fill_any_like``. An
    input of which only the shape was read may become dead, and its errors with it.
    """

    max_elements: int = 1024

    def apply(self, program: Program) -> bool:
        # Numbering the values takes longer than this look at names.
        if not _may_fold(program):
            return False
        changed = _fill_by_operands(program)
        constants = _Constants(program, self.max_elements)
        for op in program.global_block().ops:
            if not op.inputs and op.type in _MAKE_CONSTANTS:
                constants.note(op)
            elif op.inputs and constants.is_constant(op):
                changed |= constants.replace(op)
        return changed


def _may_fold(program: Program) -> bool:
    """Whether an operator reads only names of constants, or shapes: a quick check that most programs fail."""
    ops = program.global_block().ops
    if not _READ_SHAPES_ONLY.isdisjoint(ops.by_type):
        return True
    names = {name for type in _MAKE_CONSTANTS for op in ops.of_type(type) for name in op.output_arg_names}
    return bool(names) and any(op.inputs and all(map(names.issuperset, op.inputs.values())) for op in ops[:])


def _fill_by_operands(program: Program) -> bool:
    """Fill in the shape of a value with open dimensions by that value, so that no batch becomes a constant."""
    fills = [op for op in program.global_block().ops.of_type("fill_constant") if op.inputs.get("ShapeTensor")]
    if not fills:
        return False
    values, changed = Values(program), False
    for op in fills:
        shape = values.producer(values.input(op, "ShapeTensor"), "shape")
        x = None if shape is None else values.input(shape, "Input")
        var = None if x is None else program.global_block().vars[x.name]
        if x is None or var is None or var.lod_level or not values.is_there(x, op):
            continue
        if is_closed(var.shape or ()) or op.attr("str_value") or op.inputs.get("ValueTensor"):
            continue
        attrs = {"value": op.attr("value"), "dtype": op.attr("dtype")}
        insert_for(op, "fill_any_like", {"X": x.name}, op.outputs, attrs)
        op.block.remove(op)
        changed = True
    return changed and (remove_dead(program) or True)


class _Constants:
    def __init__(self, program: Program, max_elements: int) -> None:
        self.block = program.global_block()
        self.values = Values(program)
        self.max_elements = max_elements
        self._sources: dict[Value, Operator] = {}
        self._arrays: dict[Value, Any] = {}

    def note(self, op: Operator) -> None:
        """Note the output of `op`, which reads nothing, as a constant; it is computed on demand."""
        # Most constants are read by operators that are not folded, and never computed here.
        self._sources[self.values.output(op, "Out")] = op

    def is_constant(self, op: Operator) -> bool:
        """Whether the results of `op` are known before the run, and are few enough."""
        # What its sub-block reads is not known here, nor are lengths of sequences.
        if op.definition.has_hidden_names or op.definition.handles_lengths:
            return False
        names = op.input_arg_names
        if any(self.block.vars[name].lod_level for name in op.output_arg_names):
            return False
        if op.type in _READ_SHAPES_ONLY and not any(map(self._is_open, names)):
            sized = op.output_arg_names
        elif all(self.values.read(name, op) in self._sources for name in names):
            sized = [*op.output_arg_names, *names]
        else:
            return False
        if is_random(op.type) or any(map(self._is_open, sized)):
            return False
        # A constant for each sample would hold for one batch only.
        if not all(is_closed(self.block.vars[name].shape or ()) for name in sized):
            return False
        return all(self._size(name) <= self.max_elements for name in sized)

    def _is_open(self, name: str) -> bool:
        tensor_type = self.block.vars[name].tensor_type
        return tensor_type is None or tensor_type.kind is not VarKind.LOD_TENSOR or not tensor_type.is_static

    def _size(self, name: str) -> int:
        return math.prod(self.block.vars[name].shape or ())

    def replace(self, op: Operator) -> bool:
        """Replace `op` by constants; returns False if no attribute can hold its results."""
        arrays = self._evaluate(op)
        fills = {name: _constant(array) for name, array in arrays.items()}
        if not fills or any(fill is None for fill in fills.values()):
            return False
        for name, fill in fills.items():
            assert fill is not None
            value = self.values.written(name, op)
            self._sources[value] = insert_for(op, fill[0], {}, {"Out": name}, fill[1])
            self._arrays[value] = arrays[name]
        self.block.remove(op)
        return True

    def _evaluate(self, op: Operator) -> Mapping[str, Any]:
        """Return the results by name; none if the kernel raises an error."""

        def read(name: str) -> Any:
            value = self.values.read(name, op)
            if value not in self._sources:
                var = self.block.vars[name]  # only its shape is read: an array without memory will do
                return np.broadcast_to(np.zeros((), var.dtype.numpy), var.shape or ())
            if value not in self._arrays:
                (self._arrays[value],) = self._evaluate(self._sources[value]).values()
            return self._arrays[value]

        try:
            with np.errstate(all="ignore"):
                return evaluate(op, read, CPUPlace(), None)
        # The run reports it, with the user's line.
        except (MinigraphError, ArithmeticError, ValueError, LookupError):
            return {}


def _constant(array: Any) -> tuple[str, dict[str, Any]] | None:
    """Return type and attributes of an operator that makes `array`; None if there is none, or no array."""
    if array is None:
        return None
    element = as_dtype(array.dtype)
    # Attributes hold elements row by row; a result in another order would round sums differently.
    if not array.ndim or not array.flags.c_contiguous or (element.is_floating and np.isnan(array).any()):
        return None
    attrs = {"shape": list(array.shape), "dtype": int(element)}
    # As bytes, because 0.0 == -0.0.
    rows = np.frombuffer(array.tobytes(), np.dtype((np.void, array.itemsize))) if array.size else array
    if array.size and bool((rows == rows[0]).all()):
        return "fill_constant", {**attrs, **_filling(element, array.flat[0].item())}
    if element not in VALUES_OF:
        return None
    numbers = array.astype(int) if element is DType.BOOL else array
    return "assign_value", {**attrs, VALUES_OF[element]: numbers.ravel().tolist()}


def _filling(element: DType, number: Any) -> dict[str, Any]:
    """Return the attributes that give ``fill_constant`` the number: as a float32 if that is exact, else as text."""
    if element is DType.BOOL or not math.isfinite(number):
        return {"value": float(number)}
    if element.is_floating and number == 0 and math.copysign(1, number) < 0:
        return {"str_value": "-0.0"}
    # The bound keeps the conversion from overflowing.
    if abs(number) < 3e38 and float(np.float32(number)) == number:
        return {"value": float(number)}
    return {"str_value": repr(number)}
