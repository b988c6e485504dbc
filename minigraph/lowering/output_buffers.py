"""What goes to the caller is computed in memory of its own where an operator can do that, so that no run copies it.

A clip of one gradient that nothing else reads writes over it: that memory is its own, and in the cache.
"""

from __future__ import annotations

from collections import Counter

from minigraph.kernels import find_specializer
from minigraph.lowering.flat_buffers import IN_PLACE
from minigraph.lowering.instructions import types_of_inputs
from minigraph.lowering.steps import Step, Steps, Value
from minigraph.runtime.kernel_call import attrs_for_kernel
from minigraph.runtime.place import Place


def hand_out(steps: Steps, place: Place, jit: bool) -> None:
    """Let steps that might return their arguments, and all of whose results are fetched, return the caller's own.

    A gradient under the threshold of a clip is such a result. It then has memory of its own in the plan, too.
    """
    if place.kind != "cpu":
        return
    fetched = {id(value) for value in steps.fetches}
    for step in steps.steps:
        if step.kernel.view_of is None or step.in_place or step.is_free or step.has_joined:
            continue
        handed = [value for value in step.outputs[0] if value is not None]
        if all(id(value) in fetched for value in handed) and _offer(step, place, jit):
            for value in handed:
                value.storage = None


def write_over_inputs(steps: Steps, place: Place) -> None:
    """Let clips write over what only they read, if it has memory of its own."""
    clips = [step for step in steps.steps if step.op.type in IN_PLACE and not step.in_place]
    if place.kind != "cpu" or not clips:
        return
    reads = Counter(id(value) for step in steps.steps for value in step.values_read())
    sharing = Counter(id(value.storage) for step in steps.steps for value in step.values_written())
    kept = {id(value) for value in (*steps.fetches, *steps.new_state.values())}
    for step in clips:
        given, (result,) = step.inputs[0], step.values_written()
        step.writes_over = (
            isinstance(given, Value)
            and not given.tensor_type.is_rows  # whose kernels take no memory
            and (given.origin, given.storage, given.tensor_type) == ("step", None, result.tensor_type)
            and reads[id(given)] == 1
            and sharing[id(given)] == (result.storage is given)
            and id(given) not in kept
        )


def _offer(step: Step, place: Place, jit: bool) -> bool:
    """Give `step` the function that is offered for it, if there is one."""
    if not all(value.has_known_size for value in (*step.values_read(), *step.values_written())):
        return False
    for compiled in (True, False) if jit else (False,):
        offer = find_specializer(step.op.type, jit=compiled, own=True)
        if offer is not None and step.handed is None:
            step.handed = offer(place.xp, *types_of_inputs(step), **attrs_for_kernel(step.op, step.kernel))
    return step.handed is not None
