"""Give slices bounds that follow from constants as attributes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from minigraph.errors import MinigraphError
from minigraph.ir import Operator, Program, Variable
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.unroll.known_numbers import KnownNumbers

_BOUNDS = ("starts", "ends", "strides")
_TYPES = ("slice", "slice_grad", "strided_slice", "strided_slice_grad")


class NumberBounds(Pass):
    """Turn tensors that bound a slice, and follow from constants, into attributes of the slice.

    The size of the slice is then known before the run, and other passes see it as any other.

    Law: every value keeps its bits. A tensor stays that contradicts the attribute, for the run to report. So does a
    slice under a name that is written several times.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if not any(_slots(op) for type in _TYPES for op in block.ops.of_type(type)):
            return False
        # A name is declared with one type, so that of one of several values cannot become known.
        writes = Counter(name for op in block.ops for name in op.output_arg_names)
        numbers, changed = KnownNumbers(block), False
        for op in block.ops[:]:
            is_own = all(writes[name] == 1 for name in op.output_arg_names)
            attrs = _known_attrs(op, numbers) if is_own and op.type in _TYPES else None
            if attrs is not None:
                tensors = _slots(op).values()
                inputs = {slot: names for slot, names in op.inputs.items() if slot not in tensors}
                made = insert_for(op, op.type, inputs, op.outputs, {**op.attrs, **attrs})
                block.remove(op)
                op, changed = made, True
            elif changed and is_own and any(_is_open(block.find_var(name)) for name in op.output_arg_names):
                # The run reports what does not fit, with the user's line.
                with suppress(MinigraphError):
                    block.infer(op)
            numbers.note(op)
        return changed


def _slots(op: Operator) -> dict[str, str]:
    """The attribute and the slot of each bound that tensors give."""
    slots = [(bound, f"{bound.capitalize()}Tensor{ending}") for bound in _BOUNDS for ending in ("", "List")]
    return {bound: slot for bound, slot in slots if op.inputs.get(slot)}  # a list comes before a vector


def _known_attrs(op: Operator, numbers: KnownNumbers) -> dict[str, list[int]] | None:
    """The attributes that tell the bounds; None if a bound is not known, or there are no tensors."""
    slots = _slots(op)
    known = {bound: numbers.integers(op.inputs[slot]) for bound, slot in slots.items()}
    found = {bound: given for bound, given in known.items() if given is not None}
    if not found or len(found) < len(known):
        return None
    for bound, given in found.items():
        flags, promised = op.attr("infer_flags"), op.attr(bound)
        is_promised = slots[bound].endswith("List") and promised and flags
        if is_promised and any(f != -1 and p != g for f, p, g in zip(flags, promised, given, strict=True)):
            return None
    return {**found, "infer_flags": []}


def _is_open(var: Variable | None) -> bool:
    return var is not None and not var.persistable and (var.tensor_type is None or not var.tensor_type.is_static)
