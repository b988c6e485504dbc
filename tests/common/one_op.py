"""Programs of one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

import minigraph as fluid
from minigraph.ir import Program, Variable
from minigraph.opdef import definition_of

Array = np.ndarray[Any, Any]
Arrays = Array | list[Array]


class OneOp:
    """The program of one operator on variables of the types of given arrays, and what to feed it.

    Variables are named by slot and number: ``X_0``, ``Out_out_0``.

    Parameters
    ----------
    type : str
        Operator type.
    inputs : dict
        Slot to an array or a list of them.
    attrs : dict
        Attributes.
    counts : dict
        How many variables an output slot takes, where it is not as many as the first input slot of several has.
    in_place : dict
        Output slot to the input slot whose variables it writes.
    dtypes : dict
        Output slot to the declared type of its variables.
    """

    def __init__(
        self,
        type: str,
        inputs: Mapping[str, Arrays],
        attrs: Mapping[str, Any],
        counts: Mapping[str, int] | None = None,
        in_place: Mapping[str, str] | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        definition, counts, in_place, dtypes = definition_of(type), counts or {}, in_place or {}, dtypes or {}
        self.program, self.feed = fluid.Program(), {}
        self.block = self.program.global_block()
        self.inputs = {slot: self._declare_slot(slot, given) for slot, given in inputs.items()}
        several = max((len(v) for slot, v in self.inputs.items() if definition.input_slots[slot].duplicable), default=1)
        self.outputs_of: dict[str, list[Variable]] = {}
        for slot in definition.outputs:
            count = counts.get(slot.name, several if slot.duplicable else 0 if slot.dispensable else 1)
            self.outputs_of[slot.name] = (
                self.inputs[in_place[slot.name]]
                if slot.name in in_place
                else [
                    self.block.create_var(name=f"{slot.name}_out_{i}", dtype=dtypes.get(slot.name))
                    for i in range(count)
                ]
            )
        self.op = self.block.append_op(type, self.inputs, self.outputs_of, attrs)
        self.outputs = [var for several in self.outputs_of.values() for var in several]
        self.gradients: list[tuple[Variable, Variable | None]] = []

    @cached_property
    def executor(self) -> fluid.Executor:
        """Runs the program where no other executor is asked for, so that several tests share its plans."""
        return fluid.Executor()

    def _declare_slot(self, slot: str, given: Arrays) -> list[Variable]:
        return [self.declare(f"{slot}_{i}", a) for i, a in enumerate(given if isinstance(given, list) else [given])]

    def declare(self, name: str, array: Array) -> Variable:
        """A variable that is fed `array`; gradients flow to numbers of floating point."""
        self.feed[name] = array
        constant = array.dtype.kind != "f"
        return self.block.create_var(
            name=name, shape=array.shape, dtype=array.dtype, stop_gradient=constant, is_data=True
        )

    def differentiate(self, cotangents: Mapping[str, Array | None], wrt: Sequence[str]) -> None:
        """Append the gradients with respect to input slots, for gradients of outputs by name; None is ones."""
        targets = [var for var in self.outputs if var.name in cotangents]
        given = [
            None if (array := cotangents[target.name]) is None else self.declare(f"cotangent_of_{target.name}", array)
            for target in targets
        ]
        sources = [var for slot in wrt for var in self.inputs[slot]]
        self.gradients = list(zip(sources, fluid.gradients(targets, sources, given), strict=True))

    def fetch(
        self, variables: Sequence[Variable], executor: Any = None, feed: dict[str, Array] | None = None, **words: Any
    ) -> list[Any]:
        """The values of variables."""
        with np.errstate(all="ignore"):
            run = (executor or self.executor).run
            return run(self.program, feed=feed or self.feed, fetch_list=list(variables), **words)

    def run(self, executor: Any = None, feed: dict[str, Array] | None = None) -> dict[str, Array]:
        """Outputs and gradients, by name; of selected rows what they add up to."""
        variables = [*self.outputs, *(grad for _, grad in self.gradients if grad is not None)]
        values = self.fetch(variables, executor, feed)
        return {var.name: np.asarray(value) for var, value in zip(variables, values, strict=True)}


def append(
    type: str, inputs: dict[str, Arrays], **attrs: Any
) -> tuple[Program, dict[str, list[Variable]], dict[str, Any]]:
    """A program of one operator, its variables by slot, and what to feed it."""
    built = OneOp(type, inputs, attrs)
    return built.program, {**built.inputs, **built.outputs_of}, built.feed


def run(type: str, inputs: dict[str, Arrays] | None = None, **attrs: Any) -> Any:
    """What one operator computes: an array, or a list of them where it has several outputs."""
    built = OneOp(type, inputs or {}, attrs)
    values = built.fetch([several[0] for several in built.outputs_of.values() if several])
    return values if len(values) > 1 else values[0]


def gradient(
    type: str, inputs: dict[str, Arrays], wrt: str, of: str = "Out", cotangent: Any = None, **attrs: Any
) -> Any:
    """The gradient of the output `of`, for ones or `cotangent`, with respect to the input `wrt`."""
    built = OneOp(type, inputs, attrs)
    built.differentiate({f"{of}_out_0": cotangent}, [wrt])
    return built.fetch([built.gradients[0][1]])[0]


def central_difference(function: Any, feed: dict[str, Any], name: str, step: float = 1e-6) -> np.ndarray[Any, Any]:
    """The derivative of a number by each element of ``feed[name]``."""
    derivative = np.empty(feed[name].shape)
    for index in np.ndindex(derivative.shape):
        ends = []
        for sign in (1, -1):
            moved = feed[name].copy()
            moved[index] += sign * step
            ends.append(function({**feed, name: moved}))
        derivative[index] = (ends[0] - ends[1]) / (2 * step)
    return derivative
