"""Which operator clips which gradient, with which threshold: read off a program by roles and types of operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from minigraph.ir import Operator, Program, Role
from minigraph.passes.gradient_clip import NONFINITE_GUARD


@dataclass(frozen=True)
class ClipStep:
    """One operator that changes a gradient.

    Attributes
    ----------
    op_type : str
    what : str
        In words, with the threshold.
    result : str
        Name of the gradient after it.
    site : str
        The user's line.
    """

    op_type: str
    what: str
    result: str
    site: str

    def __str__(self) -> str:
        return f"{self.op_type}: {self.what} -> {self.result} ({self.site})"


@dataclass(frozen=True)
class ClippedGradient:
    """What happens to the gradient of one parameter; without steps it is not clipped."""

    param: str
    grad: str
    steps: tuple[ClipStep, ...]

    def __str__(self) -> str:
        heading = f"{self.grad} of {self.param}"
        if not self.steps:
            return f"{heading}: not clipped"
        return "\n".join([heading, *(f"  {step}" for step in self.steps)])


@dataclass(frozen=True)
class Explanation:
    """What `explain` has found, gradient by gradient; prints as text."""

    gradients: tuple[ClippedGradient, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.gradients)) or "the program has no gradients of parameters"


def explain(program: Program) -> Explanation:
    """Tell which operators clip which gradients, and how far.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()) as _, fluid.unique_name.guard():
    ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2, bias_attr=False))
    ...     pairs = fluid.clip.GradientClipByNorm(1.0)(fluid.append_backward(loss))
    ...     print(fluid.clip.explain(fluid.default_main_program()))  # doctest: +ELLIPSIS
    fc_0.w_0@GRAD of fc_0.w_0
      clip_by_norm: L2 norm at most 1 -> clip_by_norm_0.tmp_0 (...)
    """
    block = program.global_block()
    producers = {name: op for op in block.ops for name in op.output_arg_names}
    steps: dict[tuple[str, str], list[ClipStep]] = {}
    latest: dict[str, tuple[str, str]] = {}
    """A gradient at some stage of clipping, to the pair that it belongs to."""
    for op in block.ops:
        if op.role & Role.BACKWARD:
            for pair in zip(op.role_vars[::2], op.role_vars[1::2], strict=True):
                steps[pair] = []
                latest[pair[1]] = pair
        elif op.role & Role.CLIP and op.type in _DESCRIPTIONS:
            _note_pairs(op, steps, latest)
            what = _DESCRIPTIONS[op.type](op, producers)
            for before, after in zip(op.input("X"), op.output("Out"), strict=True):
                if before in latest:
                    pair = latest[after] = latest[before]
                    steps[pair].append(ClipStep(op.type, what, after, str(op.site).split(", in: ")[0]))
    return Explanation(tuple(ClippedGradient(*pair, tuple(found)) for pair, found in steps.items()))


def _note_pairs(op: Operator, steps: dict[Any, list[ClipStep]], latest: dict[str, tuple[str, str]]) -> None:
    """Learn of pairs whose backward pass does not name them, such as one of `minigraph.gradients`."""
    for pair in zip(op.role_vars[::2], op.role_vars[1::2], strict=True):
        if pair[1] not in latest:
            steps[pair], latest[pair[1]] = [], pair


Producers = Mapping[str, Operator]
"""What writes each name last."""


def _bounds(op: Operator, producers: Producers) -> str:
    return f"each element from {op.attr('min'):g} to {op.attr('max'):g}"


def _norm(op: Operator, producers: Producers) -> str:
    return f"L2 norm at most {op.attr('max_norm'):g}"


def _axis_norm(op: Operator, producers: Producers) -> str:
    axes = op.attr("axes")
    slices = f"each slice over the dimensions {list(axes)}" if axes else "the whole"
    return f"{_order(op.attr('p'))} norm of {slices} at most {op.attr('max_norm'):g}"


def _unit_ratio(op: Operator, producers: Producers) -> str:
    return f"norm of each unit at most {op.attr('clipping'):g} times that of its weights"


def _fused_global_norm(op: Operator, producers: Producers) -> str:
    limit = _threshold(op.input("ClipNorm")[0], producers)
    return f"{_of_norm(_order(op.attr('p')), len(op.input('X')))} at most {limit}"


def _global_norm(op: Operator, producers: Producers) -> str:
    """Of a product with fluid's factor, ``threshold / max(threshold, norm)``."""
    factor = producers.get(op.input("Y")[0])
    if factor is None or factor.type != "elementwise_div":
        return f"times {op.input('Y')[0]}"
    squares = producers[producers[producers[factor.input("Y")[0]].input("Y")[0]].input("X")[0]].input("X")
    return f"{_of_norm('L2', len(squares))} at most {_threshold(factor.input('X')[0], producers)}"


def _of_norm(order: str, count: int) -> str:
    return f"{order} norm" if count == 1 else f"joint {order} norm of {count} gradients"


def _nonfinite(op: Operator, producers: Producers) -> str:
    return {"raise": "an error", "zero": "0 in its place", "skip": "the update is skipped"}[op.attr("policy")] + (
        " where an element is not finite"
    )


def _threshold(name: str, producers: Producers) -> str:
    """Where a threshold comes from, in words."""
    op = producers.get(name)
    if op is None:
        return name
    if op.type == "fill_constant":
        return f"{float(op.attr('str_value') or op.attr('value')):g}"
    if op.type == "autoclip_threshold":
        return f"their percentile {op.attr('percentile'):g} so far"
    if op.type == "zclip_threshold":
        return f"{op.attr('z_threshold'):g} standard deviations above its running mean"
    return name


def _order(p: float) -> str:
    return "max" if p == math.inf else f"L{p:g}"


_DESCRIPTIONS: Mapping[str, Callable[[Operator, Producers], str]] = {
    "adaptive_clip": _unit_ratio,
    "clip": _bounds,
    "clip_by_axis_norm": _axis_norm,
    "clip_by_global_norm": _fused_global_norm,
    "clip_by_norm": _norm,
    "elementwise_mul": _global_norm,
    NONFINITE_GUARD: _nonfinite,
}
"""The operators that make a clipped gradient of another one."""
