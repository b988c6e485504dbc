"""Limits on values, as layers; how gradients are clipped in training is `minigraph.clip`."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Each element limited to [`min`, `max`]; NaN stays. The gradient is 0 at and beyond the bounds."""
    helper = LayerHelper("clip", name)
    return helper.unary("clip", {"X": check_floating(x, "clip: x")}, min=min, max=max)


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """``x * max_norm / norm(x)`` if the L2 norm of the whole of `x` exceeds `max_norm`, else `x` bit for bit."""
    helper = LayerHelper("clip_by_norm", name)
    return helper.unary("clip_by_norm", {"X": check_floating(x, "clip_by_norm: x")}, max_norm=max_norm)
