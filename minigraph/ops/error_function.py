"""The error function and what is built on it."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType, require_floating


@op("erf", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def erf(x: TensorType) -> TensorType:
    """Error function, ``Out = 2 / sqrt(pi) * integral of exp(-t ** 2) from 0 to X``, to the last digits of the type."""
    require_floating(x)
    return x


@op("gelu", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def gelu(x: TensorType, *, approximate: bool = False) -> TensorType:
    """Gaussian error linear unit, ``Out = X * P(Z <= X)`` with Z standard normal.

    That is ``X * erfc(-X / sqrt(2)) / 2``, which unlike ``1 + erf`` loses no digits where X is negative. With
    `approximate` it is ``X / 2 * (1 + tanh(sqrt(2 / pi) * (X + 0.044715 * X ** 3)))``.

    References
    ----------
    D. Hendrycks and K. Gimpel, Gaussian error linear units (GELUs), arXiv:1606.08415, 2016.
    """
    require_floating(x)
    return x
