"""Types of operators that have samples, by what a pass is about, and the results that others may read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from minigraph.ir import Variable
from minigraph.opdef import OpDef, definition_of
from minigraph.rewrite.random_programs.rows import SAMPLES
from minigraph.rewrite.random_programs.sampling import Sample


@cache
def by_type() -> dict[str, list[Sample]]:
    """The samples of each type, but for those whose gradients are selected rows."""
    found = defaultdict(list)
    for sample in SAMPLES:
        if not sample.attrs.get("is_sparse"):
            found[sample.op].append(sample)
    return dict(found)


@cache
def all_types() -> tuple[str, ...]:
    """The types that have samples.

    Steps draw control flow, arrays of tensors and sequences. Operators with effects outside of the program are not
    drawn, because no result shows them: ``print``, and ``py_func``, whose function the script of a counter-example
    could not hold. Nor are operators that need other ranks.
    """
    return tuple(sorted(by_type()))


@cache
def forward_types(types: tuple[str, ...]) -> tuple[str, ...]:
    """The types that have samples; for a gradient the type that it is of."""
    found = {definition_of(type).forward or type for type in types}
    return tuple(sorted(found & by_type().keys()))


@cache
def asks_for_training(types: tuple[str, ...]) -> bool:
    """Whether operators of these types stand in programs that train."""
    definitions = [definition_of(type) for type in types]
    return any(each.forward or "Param" in each.input_slots or "clip" in each.type for each in definitions)


def for_readers(definition: OpDef, outputs: Mapping[str, Sequence[Variable]]) -> list[Variable]:
    """Results that others than gradients may read, the main one last, where the next operator looks first."""
    slots = sorted(outputs.keys() - hidden(definition), key=lambda slot: (slot == definition.main_output, slot))
    return [var for slot in slots for var in outputs[slot]]


def hidden(definition: OpDef) -> set[str]:
    """Slots of results that only gradients read; the first dimension of ``XShape`` is 0."""
    return {slot.name for slot in definition.outputs if slot.intermediate}
