"""Policies for gradients that are NaN or infinite, as operators of the program.

==============  ================================================================================================
``propagate``   nothing: such elements are computed with, as in fluid (the default)
``raise``       `minigraph.errors.NonfiniteError` names the parameter and the operator that made the first such value
``zero``        0 replaces each such element, before norms are taken
``skip``        no parameter and no state of the optimizer changes in this step, and a counter goes up
==============  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ClipError, suggest
from minigraph.ir import Block, Parameter, Program, Variable
from minigraph.layer_helper import create_state
from minigraph.passes.gradient_clip import NONFINITE_GUARD, skipping_guards
from minigraph.support.public import public
from minigraph.unique_name import generate

__all__ = ["skipped_steps"]

POLICIES = ("propagate", "raise", "zero", "skip")


def check_policy(policy: Any) -> None:
    """Raise unless `policy` is one of `POLICIES`."""
    if policy not in POLICIES:
        raise ClipError(
            f"nonfinite must be one of {', '.join(POLICIES)}, got {policy!r:.60}",
            hint=suggest(policy, POLICIES) if isinstance(policy, str) else "",
        )


def guard(block: Block, pairs: Sequence[tuple[Parameter, Variable]], policy: str) -> list[tuple[Parameter, Variable]]:
    """Append the guard of the policy; returns the pairs with the guarded gradients."""
    if policy == "propagate":
        return list(pairs)
    layer = generate(NONFINITE_GUARD)
    outs = [block.create_var(name=generate(f"{layer}.tmp")) for _ in pairs]
    found = block.create_var(name=f"{layer}.found", stop_gradient=True)
    inputs: dict[str, Any] = {"X": [grad for _, grad in pairs]}
    outputs: dict[str, Any] = {"Out": outs, "Found": found}
    if policy == "skip":
        inputs["Skipped"] = outputs["SkippedOut"] = create_state(
            f"{layer}.skipped_steps", [1], "int64", program=block.program, stop_gradient=True
        )
    attrs = {"policy": policy, "params": [param.name for param, _ in pairs]}
    block.append_op(NONFINITE_GUARD, inputs, outputs, attrs)
    return [(param, out) for (param, _), out in zip(pairs, outs, strict=True)]


@public
def skipped_steps(program: Program) -> dict[tuple[str, ...], Variable]:
    """Return the numbers of steps skipped for nonfinite gradients, int64[1], by the names of the parameters.

    The counters are persistable: they can be fetched, and they are saved with the state of the optimizer.
    """
    block = program.global_block()
    return {tuple(op.attr("params")): block.var(op.outputs["SkippedOut"][0]) for op in skipping_guards(block)}
