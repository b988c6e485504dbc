"""Telemetry of clips as variables of the program: norms, factors, and the number of clipped steps.

A strategy made with ``telemetry=True`` appends one operator for each group of gradients that it clips together. Its
results are persistable: they can be fetched, stay in the scope, and are saved with the state of the optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from minigraph.ir import Block, Parameter, Program, Variable
from minigraph.layer_helper import create_state
from minigraph.support.public import public
from minigraph.unique_name import generate

__all__ = ["ClipTelemetry", "telemetry"]

STATISTICS = "clip_statistics"


@public
@dataclass(frozen=True)
class ClipTelemetry:
    """Variables about the gradients of one group.

    Attributes
    ----------
    params : tuple of str
        The parameters whose gradients they are.
    norm_before : Variable, float64[1]
        Joint norm of the raw gradients in the last step. (Other systems return this one as "the norm", though it is
        above the threshold.)
    norm_after : Variable, float64[1]
        Joint norm of the gradients that the updates read.
    factor : Variable, float64[1]
        ``norm_after / norm_before``; 1 where both are 0.
    steps : Variable, int64[1]
        Number of steps.
    clipped_steps : Variable, int64[1]
        Number of steps in which the clip changed the norm.
    """

    params: tuple[str, ...]
    norm_before: Variable
    norm_after: Variable
    factor: Variable
    steps: Variable
    clipped_steps: Variable


def measure(
    block: Block,
    label: str,
    pairs: Sequence[tuple[Parameter, Variable]],
    clipped: Sequence[Variable],
    p: float,
) -> None:
    """Append the operator that compares the gradients of `pairs` with the clipped ones, taken together."""
    prefix, create = generate(label), partial(create_state, program=block.program, stop_gradient=True)
    steps = create(f"{prefix}.steps", [1], "int64")
    clipped_steps = create(f"{prefix}.clipped_steps", [1], "int64")
    norms = {
        slot: create(f"{prefix}.{name}", [1], "float64")
        for slot, name in (("NormBefore", "norm_before"), ("NormAfter", "norm_after"), ("Factor", "factor"))
    }
    block.append_op(
        STATISTICS,
        {"Before": [grad for _, grad in pairs], "After": list(clipped), "Steps": steps, "ClippedSteps": clipped_steps},
        {**norms, "StepsOut": steps, "ClippedStepsOut": clipped_steps},
        {"p": p, "params": [param.name for param, _ in pairs]},
    )


@public
def telemetry(program: Program) -> list[ClipTelemetry]:
    """Return the telemetry variables of a program, group by group in the order of clipping.

    Examples
    --------
    >>> import numpy as np, minigraph as fluid
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup):
    ...     x = fluid.data("x", [None, 3])
    ...     loss = fluid.layers.mean(fluid.layers.fc(x, 4, bias_attr=False))
    ...     clip = fluid.clip.GradientClipByGlobalNorm(0.5, telemetry=True)
    ...     _ = fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)
    >>> (record,) = fluid.clip.telemetry(main)
    >>> exe, scope = fluid.Executor(), fluid.Scope()
    >>> _ = exe.run(startup, scope=scope)
    >>> feed = {"x": np.ones((1, 3), "float32")}
    >>> fetched = exe.run(main, feed, [record.norm_before, record.norm_after, record.factor], scope=scope)
    >>> [round(float(value[0]), 4) for value in fetched]
    [0.866, 0.5, 0.5774]
    """
    block = program.global_block()
    slots = ("NormBefore", "NormAfter", "Factor", "StepsOut", "ClippedStepsOut")
    return [
        ClipTelemetry(tuple(op.attr("params")), *(block.var(op.outputs[slot][0]) for slot in slots))
        for op in block.ops
        if op.type == STATISTICS
    ]
