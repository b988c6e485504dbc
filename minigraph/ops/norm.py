"""The length of a gradient, as `minigraph.ops.clip` uses it, on its own."""

from __future__ import annotations

from minigraph.opdef import fused, op
from minigraph.types import DType, TensorType, require, require_floating


@op("global_norm", inputs="X", outputs="Out", grad=fused("X"))
def global_norm(xs: list[TensorType], *, p: float = 2.0) -> TensorType:
    """Joint norm of all elements of all tensors, ``Out = sum(|X[i][j]| ** p) ** (1 / p)``, float[1].

    `p` is any positive number; with infinity ``Out`` is the largest magnitude. The powers neither overflow nor
    underflow, so a norm is infinite only where float cannot hold it or an element is infinite; NaN stays NaN. Empty
    tensors count nothing, and nothing at all has norm 0. ``Out`` has the widest element type of the inputs, float32
    for float16, whose range a norm leaves soon.

    The gradient is ``sign(X) * (|X| / Out) ** (p - 1)``, and 0 for an element that is 0, so for a norm that is 0. For
    `p` infinity the elements that attain the largest magnitude share the gradient equally.

    Notes
    -----
    Fluid has no such operator.
    """
    require_positive_order(p)
    for x in xs:
        require_floating(x)
    return TensorType(max([DType.FP32, *(x.dtype for x in xs)]), (1,))


def require_positive_order(p: float) -> None:
    """Raise unless `p` can be the order of a norm."""
    require(p > 0, f"p must be positive, got {p:g}", hint="2 is the Euclidean norm, inf the largest magnitude.")
