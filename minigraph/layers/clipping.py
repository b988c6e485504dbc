"""Limits on values, as layers; how gradients are clipped in training is `minigraph.clip`.

As in fluid, a name given to these two is that of the result itself, not of a layer with results ``<name>.tmp_<k>``.
"""

from __future__ import annotations

import math
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer

__all__ = ["clamp", "clip", "clip_by_norm"]


@layer
def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Each element limited to [`min`, `max`]; NaN stays. The gradient is 0 at and beyond the bounds."""
    return _clipped("clip", check_floating(x, "clip: x"), name, {"min": min, "max": max})


@layer
def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """``x * max_norm / norm(x)`` if the L2 norm of the whole of `x` exceeds `max_norm`, else `x` bit for bit."""
    return _clipped("clip_by_norm", check_floating(x, "clip_by_norm: x"), name, {"max_norm": max_norm})


def _clipped(op_type: str, x: Variable, name: str | None, attrs: dict[str, Any]) -> Variable:
    helper = LayerHelper(op_type, name)
    return helper.emit(op_type, X=x, into=None if name is None else helper.block.create_var(name=name), **attrs)


@layer
def clamp(
    input: Variable,
    min: float | None = None,
    max: float | None = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Each element limited to [`min`, `max`], of which one may be left out; written to `output` if given.

    Raises
    ------
    ProgramError
        If both bounds are left out.
    """
    check_floating(input, "clamp: input")
    if min is None and max is None:
        raise ProgramError("clamp: at least one of min and max must be given")
    # The operator has both bounds; an infinite one limits nothing.
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    return LayerHelper("clamp", name).emit("clip", X=input, into=output, min=low, max=high)
