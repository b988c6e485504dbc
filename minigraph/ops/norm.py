"""Norms: of several tensors together, of one, or along a dimension."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import DType, TensorType, normalize_axis, require, require_floating


@op("global_norm", inputs="X", outputs="Out", rows="X", grad=fused("X"))
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


@op("l1_norm", inputs="X", outputs="Out", rows="X", grad=fused("X", lod=False))
def l1_norm(x: TensorType) -> TensorType:
    """Sum of the magnitudes of all elements, of shape [1]."""
    require_floating(x)
    return x.with_shape((1,))


@op("p_norm", inputs="X", outputs="Out", grad=fused("X", "Out", lod=False))
def p_norm(
    x: TensorType, *, porder: float = 2.0, axis: int = -1, epsilon: float = 1e-12, keepdim: bool = False
) -> TensorType:
    """``Out = sum(|X| ** porder) ** (1 / porder)`` along `axis`, without overflow or underflow.

    `porder` is positive and finite. `keepdim` leaves the dimension in the shape as 1. The gradient is
    ``dX = sign(X) * |X| ** (porder - 1) / (Out ** (porder - 1) + epsilon) * dOut``, and 0 for an element that is 0.

    Notes
    -----
    The norm of a vector has shape [1], in fluid none. Fluid rounds ``1 / porder`` to float32, in float64, too.
    """
    require_floating(x)
    require(0 < porder < float("inf"), f"porder must be positive and finite, got {porder:g}")
    at = normalize_axis(axis, x.rank)
    if keepdim:
        return x.with_shape((*x.shape[:at], 1, *x.shape[at + 1 :]))
    return x.with_shape((*x.shape[:at], *x.shape[at + 1 :]) or (1,))


@op("norm", inputs="X", outputs="Norm~ Out", grad=fused("X", "Norm", lod=False))
def norm(x: TensorType, *, axis: int, epsilon: float = 1e-10) -> tuple[TensorType, TensorType]:
    """``Out = X / Norm`` with ``Norm = sqrt(sum(X ** 2) + epsilon)`` along `axis`, without overflow."""
    require_floating(x)
    require(epsilon >= 0, f"epsilon must not be negative, got {epsilon:g}")
    at = normalize_axis(axis, x.rank)
    return x.with_shape((*x.shape[:at], 1, *x.shape[at + 1 :])), x
