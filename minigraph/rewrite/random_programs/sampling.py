"""An operator with the inputs and attributes to try it on, of which `rows` holds many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.ir import Block, Variable
from minigraph.opdef import OpDef, definition_of
from minigraph.opdef.gradient_rules import FusedGrad

ALL_FLOATS = ("float64", "float32", "float16")

Arrays = dict[str, list[np.ndarray[Any, Any]]]


@dataclass(frozen=True, eq=False)
class Sample:
    """An operator with inputs and attributes to try it on.

    Parameters
    ----------
    op : str
        Operator type.
    inputs : dict
        Slot to arrays.
    attrs : dict
        Attributes.
    outputs : dict
        How many variables an output slot takes, where it is not as many as the first input slot of several has.
    wrt : tuple of str
        Slots to differentiate.
    dtypes : tuple of str
        The floating-point types to try; one of them if no input has such a type. float64 has to be among them for the
        gradient to be checked.
    is_random : bool
        The values differ from run to run: only types are compared.
    tolerance : float
        How far the gradient may be from the central difference.
    known : tuple of str
        Slots whose dimensions are never unknown, because they decide how many the result has.
    """

    op: str
    inputs: Arrays
    attrs: dict[str, Any]
    outputs: dict[str, int]
    wrt: tuple[str, ...]
    dtypes: tuple[str, ...]
    is_random: bool
    tolerance: float
    known: tuple[str, ...]

    @property
    def definition(self) -> OpDef:
        return definition_of(self.op)

    def inputs_as(self, dtype: str) -> Arrays:
        """The inputs with floating-point arrays converted to `dtype`."""
        return {
            slot: [array.astype(dtype) if array.dtype.kind == "f" else array for array in arrays]
            for slot, arrays in self.inputs.items()
        }

    def output_counts(self, inputs: Mapping[str, Sequence[Any]]) -> dict[str, int]:
        """The number of variables that each output slot takes."""
        definition = self.definition
        several = max((len(v) for slot, v in inputs.items() if definition.input_slots[slot].duplicable), default=1)
        return {
            slot.name: self.outputs.get(slot.name, several if slot.duplicable else 0 if slot.dispensable else 1)
            for slot in definition.outputs
        }

    def append_to(
        self,
        block: Block,
        inputs: Mapping[str, Sequence[Variable]],
        outputs: Mapping[str, Sequence[Variable]],
        attrs: Mapping[str, Any],
    ) -> list[Variable]:
        """Append the operator; returns its results, which stop gradients where its rule passes none on."""
        block.append_op(self.op, inputs, outputs, attrs)
        rule = self.definition.grad
        passed = rule.d_outputs if isinstance(rule, FusedGrad) else list(outputs)
        for slot, variables in outputs.items():
            for var in variables:
                var.stop_gradient = rule is None or not self.wrt or slot not in passed
        return [var for slot in outputs.values() for var in slot]


def sample(
    op: str,
    *,
    outputs: dict[str, int] | None = None,
    wrt: str | None = None,
    dtypes: Sequence[str] = ALL_FLOATS,
    is_random: bool = False,
    tolerance: float = 1e-6,
    known: str = "",
    **inputs_and_attrs: Any,
) -> Sample:
    """A `Sample`; what is named like an input slot is an input, anything else an attribute.

    `wrt` and `known` hold slot names separated by spaces. Default of `wrt`: all floating-point inputs that the gradient
    rule serves.
    """
    definition = definition_of(op)
    inputs = {
        name: value if isinstance(value, list) else [value]
        for name, value in inputs_and_attrs.items()
        if name in definition.input_slots
    }
    attrs = {name: value for name, value in inputs_and_attrs.items() if name not in inputs}
    rule = definition.grad
    required = [slot.name for slot in definition.inputs if not slot.dispensable]
    served = rule.to if isinstance(rule, FusedGrad) else () if rule is None else required
    floating = tuple(slot for slot in served if slot in inputs and inputs[slot][0].dtype.kind == "f")
    if not any(array.dtype.kind == "f" for arrays in inputs.values() for array in arrays):
        dtypes = dtypes[:1]  # the program is the same in each
    return Sample(
        op,
        inputs,
        attrs,
        outputs or {},
        floating if wrt is None else tuple(wrt.split()),
        tuple(dtypes),
        is_random,
        tolerance,
        tuple(known.split()),
    )


_rng = np.random.default_rng(20)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers."""
    return _rng.standard_normal(shape)


def positive(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers between 0.5 and 2."""
    return _rng.uniform(0.5, 2, shape)


def distinct(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers between -2 and 2, no two alike and none near 0, -1 or 1: clear of kinks and ties."""
    count = int(np.prod(shape))
    grid = np.linspace(-2, 2, 2 * count + 3) + 0.07 / (count + 1)
    grid = grid[np.abs(grid[:, None] - [-1, 0, 1]).min(axis=1) > 0.05 / (count + 1)]
    return _rng.permutation(grid)[:count].reshape(shape)


def ints(low: int, high: int, *shape: int, dtype: str = "int64") -> np.ndarray[Any, Any]:
    """Integers from `low` up to but not including `high`."""
    return _rng.integers(low, high, shape).astype(dtype)


def probabilities(*shape: int) -> np.ndarray[Any, Any]:
    """Positive numbers that add up to 1 along the last dimension."""
    numbers = _rng.uniform(0.05, 1, shape)
    return numbers / numbers.sum(axis=-1, keepdims=True)


def number(value: float) -> np.ndarray[Any, Any]:
    """One number, as a tensor of shape [1]."""
    return np.array([value])


BROADCASTS = [
    ((3, 4), (3, 4), -1), ((2, 3, 4), (4,), -1), ((2, 3, 4), (3,), 1), ((2, 3, 4), (2, 3), 0), ((2, 3, 4), (3, 1), 1),
    ((2, 3), (1,), -1), ((2, 1, 4), (1, 3, 1), -1), ((3,), (2, 3), -1), ((0, 3), (3,), -1), ((2, 3, 4), (2, 3, 1), -1),
]  # fmt: skip
"""Shapes of X and Y, and the axis."""
