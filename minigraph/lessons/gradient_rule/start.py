"""Lesson 9: the gradient of ``clip_by_norm``, in layers."""

from minigraph.ir import Variable


def gradient(x: Variable, d_out: Variable, max_norm: float) -> Variable | None:
    """Return the gradient with respect to `x`, if that of ``clip_by_norm(x, max_norm)`` is `d_out`."""
    return None
