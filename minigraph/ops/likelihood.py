"""Losses of probabilities and of their logarithms: negative likelihoods."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import (
    DType,
    TensorType,
    merge_shapes,
    require,
    require_floating,
    require_same_dtype,
    same_shape,
)


@op("bce_loss", inputs="X Label", outputs="Out", lod="X", grad=fused("X", "Label", to="X"))
def bce_loss(x: TensorType, label: TensorType) -> TensorType:
    """``Out = -Label * log(X) - (1 - Label) * log(1 - X)``, the cross entropy of probabilities of yes and no.

    Logarithms below -100 count as -100, and the gradient divides by no less than 1e-12, so that nothing is infinite.
    """
    require_floating(x)
    require_same_dtype("X and Label", x, label)
    return x.with_shape(merge_shapes(x.shape, label.shape, "X and Label"))


@op(
    "nll_loss", inputs="X Label Weight", outputs="Out Total_weight?",
    grad=fused("X", "Label", "Weight", to="X", linear=True, lod=False),
)  # fmt: skip
def nll_loss(
    x: TensorType,
    label: TensorType,
    weight: TensorType | None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> tuple[TensorType, TensorType]:
    """``Out = -Weight[Label] * X[Label]`` for logarithms of probabilities X of classes in dimension 1.

    X is [samples, classes], or has two more dimensions; Label, int64, has its shape without the classes. Labels that
    are `ignore_index` count 0. `reduction` is ``none``, ``sum`` or ``mean``, which divides the sum by that of the
    weights that count, Total_weight; the last two give one number.
    """
    require_floating(x)
    require(x.rank in (2, 4), f"X must be [samples, classes] or have two more dimensions, got {x}")
    require(label.dtype is DType.INT64, f"Label must be int64, got {label}")
    expected = (x.shape[0], *x.shape[2:])
    require(same_shape(label.shape, expected), f"Label must have shape {list(expected)}, got {label}")
    if weight is not None:
        require_same_dtype("X and Weight", x, weight)
        require(same_shape(weight.shape, x.shape[1:2]), f"Weight must hold {x.shape[1]} elements, got {weight}")
    known = ("none", "mean", "sum")
    require(reduction in known, f"reduction must be one of {', '.join(known)}, got {reduction!r}")
    return x.with_shape(expected if reduction == "none" else (1,)), x.with_shape((1,))
