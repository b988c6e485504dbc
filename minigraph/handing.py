"""What goes to the caller is computed in memory of its own where an operator can do that, so that no run copies it."""

from __future__ import annotations

from minigraph.instructions import types_of_inputs
from minigraph.kernels import find_specializer
from minigraph.lowering import Step, Steps, attrs_for_kernel
from minigraph.place import Place


def hand_out(steps: Steps, place: Place, jit: bool) -> None:
    """Let steps that might return their arguments, and all of whose results are fetched, return the caller's own.

    A gradient under the threshold of a clip is such a result. It then has memory of its own in the plan, too.
    """
    if place.kind != "cpu":
        return
    fetched = {id(value) for value in steps.fetches}
    for step in steps.steps:
        if step.kernel.view_of is None or step.in_place or step.is_free or step.joined:
            continue
        handed = [value for value in step.outputs[0] if value is not None]
        if all(id(value) in fetched for value in handed) and _offer(step, place, jit):
            for value in handed:
                value.storage = None


def _offer(step: Step, place: Place, jit: bool) -> bool:
    """Give `step` the function that is offered for it, if there is one."""
    if not all(value.has_known_size for value in (*step.values_read(), *step.values_written())):
        return False
    for compiled in (True, False) if jit else (False,):
        offer = find_specializer(step.op.type, jit=compiled, own=True)
        if offer is not None and step.handed is None:
            step.handed = offer(place.xp, *types_of_inputs(step), **attrs_for_kernel(step.op, step.kernel))
    return step.handed is not None
