"""Check fed labels and ids on the processor before a recorded plan runs: recorded kernels cannot raise errors.

Labels mostly come from the processor, where a check does not wait for the device. If one is wrong, the plan runs
without its recording, and its kernel raises the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minigraph.ir.operator import Operator
from minigraph.lowering.steps import Step, Steps, Value

_KINDS = {
    "softmax_with_cross_entropy": ("Label", "Logits"),
    "cross_entropy": ("Label", "X"),
    "cross_entropy_grad": ("Label", "X"),
    "cross_entropy2": ("Label", "X"),
    "fused_mean_loss": ("Label", "X"),
    "lookup_table": ("Ids", "W"),
    "lookup_table_grad": ("Ids", "W"),
    "lookup_table_v2": ("Ids", "W"),
    "lookup_table_v2_grad": ("Ids", "W"),
}
"""Operators whose kernels check numbers: the slot of the numbers, and the slot of what the numbers select from.

Other gradient operators check nothing: their labels are those of the loss.
"""


@dataclass(frozen=True)
class Numbers:
    """Range of the numbers that an operator accepts.

    Attributes
    ----------
    slot : str
        Input that holds the numbers.
    size : int
        A number must be in [0, size).
    ignored : int or None
        Number that is accepted besides.
    """

    slot: str
    size: int
    ignored: int | None

    def fit(self, array: Any) -> bool:
        fits = (array >= 0) & (array < self.size)
        return bool((fits if self.ignored is None else fits | (array == self.ignored)).all())


def numbers_of(op: Operator) -> Numbers | None:
    """The range that the kernel of an operator of known shapes checks; None if it checks nothing."""
    kind = _KINDS.get(op.type)
    # Soft labels are probabilities, which select nothing.
    if kind is None or ("soft_label" in op.definition.attrs and op.attr("soft_label")):
        return None
    slot, source = kind
    known = op.block.var(op.input(source)[0]).tensor_type
    assert known is not None, "a plan knows all shapes"
    shape = known.shape
    if slot == "Ids":
        padding = op.attr("padding_idx")
        # -1 is fluid's word for no padding; any other number may be looked up.
        return Numbers(slot, shape[0], None if padding == -1 else padding)
    axis = op.attr("axis") if "axis" in op.definition.attrs else -1
    return Numbers(slot, shape[axis], op.attr("ignore_index"))


def fed_name(step: Step, slot: str) -> str | None:
    """The name of the feed in an input slot of a step; None if the input is computed or state."""
    value = step.inputs[[each.name for each in step.op.definition.inputs].index(slot)]
    return value.name if isinstance(value, Value) and value.origin == "feed" else None


def checks_of(steps: Steps) -> Iterator[tuple[str, Numbers]]:
    """Names of feeds, each with the range of its numbers."""
    for step in steps.steps:
        numbers = numbers_of(step.op)
        name = None if numbers is None else fed_name(step, numbers.slot)
        if numbers is not None and name is not None:
            yield name, numbers
