"""Programs of one operator."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigraph as fluid
from minigraph.ir import Program, Variable
from minigraph.opdef import definition_of

Arrays = np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]


def append(
    type: str, inputs: dict[str, Arrays], **attrs: Any
) -> tuple[Program, dict[str, list[Variable]], dict[str, Any]]:
    """A program of one operator on variables of the types of `inputs`, its variables by slot, and what to feed it."""
    program, feed = fluid.Program(), {}
    block = program.global_block()
    by_slot: dict[str, list[Variable]] = {}
    for slot, given in inputs.items():
        by_slot[slot] = []
        for i, array in enumerate(given if isinstance(given, list) else [given]):
            name = f"{slot}_{i}"
            floating = array.dtype.kind == "f"
            by_slot[slot].append(
                block.create_var(name=name, shape=array.shape, dtype=array.dtype, stop_gradient=not floating)
            )
            feed[name] = array
    outputs = {}
    for slot in definition_of(type).outputs:
        count = len(by_slot["X"]) if slot.duplicable else 1  # one of several is for each element of X
        outputs[slot.name] = [block.create_var(name=f"{slot.name}_out_{i}") for i in range(count)]
    block.append_op(type, by_slot, outputs, attrs)
    return program, {**by_slot, **outputs}, feed


def run(type: str, inputs: dict[str, Arrays] | None = None, **attrs: Any) -> Any:
    """What one operator computes: an array, or a list of them where it has several outputs."""
    program, variables, feed = append(type, inputs or {}, **attrs)
    outputs = [variables[slot.name][0] for slot in definition_of(type).outputs]
    values = fluid.Executor().run(program, feed=feed, fetch_list=outputs)
    return values if len(values) > 1 else values[0]


def gradient(
    type: str, inputs: dict[str, Arrays], wrt: str, of: str = "Out", cotangent: Any = None, **attrs: Any
) -> Any:
    """The gradient of the output `of`, for ones or `cotangent`, with respect to the input `wrt`."""
    program, variables, feed = append(type, inputs, **attrs)
    target = variables[of][0]
    given = None
    if cotangent is not None:
        given = program.global_block().create_var(name="cotangent", shape=cotangent.shape, dtype=cotangent.dtype)
        feed["cotangent"] = cotangent
    (grad,) = fluid.gradients([target], [variables[wrt][0]], [given])
    return fluid.Executor().run(program, feed=feed, fetch_list=[grad])[0]


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
