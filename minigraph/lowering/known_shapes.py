"""Shapes that operators read from tensors, as attributes where these tensors are constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from minigraph.ir import Operator, Program
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.place import CPUPlace
from minigraph.types import DType

_SLOTS = {
    "reshape2": ("shape", "ShapeTensor", "Shape"),
    "expand": ("expand_times", "expand_times_tensor", "ExpandTimes"),
    "expand_grad": ("expand_times", "expand_times_tensor", "ExpandTimes"),
}
"""Attribute, slot of a tensor for each number, and slot of a vector (read if the first slot is empty), by type."""

_MOST_NUMBERS = 16
"""Maximum elements of a constant that may be a shape."""


def name_known_shapes(program: Program) -> None:
    """Give operators shapes as attributes instead of constant tensors, so that inference knows their results.

    Law: every value keeps its bits. A constant is written once, by an operator that reads nothing.
    """
    ops = program.global_block().ops
    readers = [op for type in _SLOTS for op in ops.of_type(type) if _slot_in_use(op)]
    if not readers:
        return
    constants = _constants(program)
    for op in readers:
        slot = _slot_in_use(op)
        assert slot is not None
        attr, *slots = _SLOTS[op.type]
        if all(name in constants for name in op.inputs[slot]):
            op.set_attr(attr, [number for name in op.inputs[slot] for number in constants[name]])
            for each in slots:
                if op.inputs.get(each):
                    op.set_input(each, [])


def _slot_in_use(op: Operator) -> str | None:
    return next((slot for slot in _SLOTS[op.type][1:] if op.inputs.get(slot)), None)


def _constants(program: Program) -> Mapping[str, Sequence[int]]:
    """The numbers of short vectors of integers that are constants, by name."""
    block = program.global_block()
    writes = Counter(name for op in block.ops for name in op.output_arg_names)
    found: dict[str, Sequence[int]] = {}
    for type in ("assign_value", "fill_constant"):
        for op in block.ops.of_type(type):
            (name,) = op.output_arg_names
            var = block.vars[name]
            is_constant = writes[name] == 1 and not var.persistable and not any(op.inputs.values())
            is_vector = len(op.attr("shape")) == 1 and var.dtype in (DType.INT32, DType.INT64)
            if is_constant and is_vector and op.attr("shape")[0] <= _MOST_NUMBERS:
                found[name] = evaluate(op, lambda name: None, CPUPlace(), None)[name].tolist()
    return found
