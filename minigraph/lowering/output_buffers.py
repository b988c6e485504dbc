"""Output buffers: results that go to the caller are computed in memory of their own, so that no run copies them.

State that a run replaces is written to spare arrays of the scope, see `minigraph.executor.state_binding`.
A clip of one gradient that nothing else reads writes over it: that memory is its own, and in the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minigraph.kernels import find_specializer
from minigraph.lowering.costs import size_in_bytes
from minigraph.lowering.flat_buffers import IN_PLACE, FlatBuffers, can_be_placed
from minigraph.lowering.steps import Step, Steps, Value, at_all_sizes, types_of_inputs
from minigraph.runtime.kernel_call import attrs_for_kernel
from minigraph.runtime.place import Place

LEAST_SPARE = 1024
"""Minimum bytes of new state, in one step, that is written to spare arrays: NumPy itself keeps smaller blocks."""


@dataclass(frozen=True, eq=False)
class OutputPlan:
    """Steps that write their results elsewhere than their kernels would."""

    functions: Mapping[Step, Callable[..., Any]] = field(default_factory=dict)
    """Functions called instead of kernels, for steps all of whose results go to the caller."""
    apart: Collection[Value] = frozenset()
    """Results of these steps, which share no memory."""
    over_input: Collection[Step] = frozenset()
    """Steps whose result may take over the memory of their input."""
    to_scope: Mapping[Value, str] = field(default_factory=dict)
    """New state that is written to spare arrays, with the names of the variables, in the order of the arrays."""


NO_OUTPUTS = OutputPlan()


def plan_outputs(steps: Steps, flat: FlatBuffers, place: Place, jit: bool) -> OutputPlan:
    """Let steps that may return their arguments compute in memory of their own, if all their results leave the run.

    An example is a gradient below the threshold of a clip. In the plan, too, such a result shares no memory. Fetched
    results get new memory, and new state that of the state before the present one.
    """
    if place.kind != "cpu":
        return NO_OUTPUTS
    fetched, new_state = set(steps.fetches), set(steps.replaced_state.values())
    functions: dict[Step, Callable[..., Any]] = {}
    apart: set[Value] = set()
    for step in [steps.steps[number] for number in _last_writers(steps)]:
        # Only kernels that may return their arguments make a copy necessary; vectors are not the caller's own.
        if step.kernel.view_of is None or step.in_place:
            continue
        if step in flat.free or flat.inputs.get(step):
            continue
        results = {value for value in step.outputs[0] if value is not None}
        function = _offered(step, place, jit) if results <= fetched or results <= new_state else None
        if function is not None:
            functions[step] = function if results <= fetched else function.for_state()
            apart |= results
    to_scope = _to_scope(steps, flat, functions)
    over_input = {steps.steps[number] for number in _over_input(steps)}
    return OutputPlan(functions, apart | to_scope.keys(), over_input, to_scope)


@at_all_sizes
def _last_writers(steps: Steps) -> Sequence[int]:
    """Numbers of the steps that write what a run fetches or replaces."""
    leaving = {*steps.fetches, *steps.replaced_state.values()}
    return [number for number, step in enumerate(steps.steps) if not leaving.isdisjoint(step.writes)]


def _to_scope(steps: Steps, flat: FlatBuffers, others: Collection[Step]) -> dict[Value, str]:
    """The new state that kernels of all but some steps can write to given arrays, with the names of the variables."""
    name_of = {value: name for name, value in steps.replaced_state.items() if value.tensor_type.shape}
    if not name_of:
        return {}
    in_buffers = {*flat.aliases, *[value for values in flat.buffers for value in values]}
    found: dict[Value, str] = {}
    for step in [steps.steps[number] for number in _last_writers(steps)]:
        if name_of.keys().isdisjoint(step.writes) or step in flat.free or flat.inputs.get(step) or step in others:
            continue
        can = step.writes if _is_clip(step) else can_be_placed(step, steps.storage)
        if any(size_in_bytes(value) >= LEAST_SPARE for value in can):
            found.update({v: name_of[v] for v in can if v in name_of and v not in in_buffers})
    return found


def _is_clip(step: Step) -> bool:
    """Whether a step clips, maybe returning its arguments, and writes to given arrays as well."""
    is_clip = step.op.type in IN_PLACE or step.op.type == "clip_by_global_norm"
    return is_clip and not step.in_place and step.has_known_sizes


@at_all_sizes
def _over_input(steps: Steps) -> Sequence[int]:
    """Numbers of clips that may write over their input: it has memory of its own, and no other step reads it."""
    clips = [number for number, step in enumerate(steps.steps) if step.op.type in IN_PLACE and not step.in_place]
    if not clips:
        return []
    reads = Counter(value for step in steps.steps for value in step.reads)
    shared = steps.storage.shared
    sharing = Counter(shared.values())
    kept = {*steps.fetches, *steps.new_state.values()}

    def is_free(given: object, result: Value) -> bool:
        return (
            isinstance(given, Value)
            and given.origin == "step"  # a feed is the caller's, state the scope's
            and not given.tensor_type.is_rows  # whose kernels take no memory
            and given.tensor_type == result.tensor_type
            and given not in shared  # no view of another value
            and reads[given] == 1
            and sharing[given] == (shared.get(result) is given)  # no value but the result is a view of it
            and given not in kept
        )

    return [number for number in clips if is_free(steps.steps[number].inputs[0], steps.steps[number].writes[0])]


def _offered(step: Step, place: Place, jit: bool) -> Any:
    """A function whose results share no memory with its arguments, if a specializer offers one."""
    if not step.has_known_sizes:
        return None
    kinds = (True, False) if jit else (False,)
    offers = [find_specializer(step.op.type, jit=compiled, own=True) for compiled in kinds]
    types, attrs = types_of_inputs(step), attrs_for_kernel(step.op, step.kernel)
    found = (offer(place.xp, *types, **attrs) for offer in offers if offer is not None)
    return next((function for function in found if function is not None), None)
