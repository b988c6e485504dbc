"""Losses of single numbers."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType, merge_shapes, require, require_floating, require_same_dtype, same_dim


@op(
    "sigmoid_cross_entropy_with_logits",
    inputs="X Label",
    outputs="Out",
    lod="X",
    grad=fused("X", "Label", to="X", lod=False),
)
def sigmoid_cross_entropy_with_logits(
    x: TensorType, label: TensorType, *, normalize: bool = False, ignore_index: int = -100
) -> TensorType:
    """``Out = log(1 + exp(X)) - X * Label``, the cross entropy of the probability ``sigmoid(X)``, without overflow.

    Where the whole part of Label is `ignore_index`, loss and gradient are 0. `normalize` divides by the number of the
    other elements.

    Notes
    -----
    Where everything is ignored, fluid divides by 0.
    """
    require_floating(x)
    require_same_dtype("X and Label", x, label)
    return x.with_shape(merge_shapes(x.shape, label.shape, "X and Label"))


@op(
    "huber_loss",
    inputs="X Y",
    outputs="Residual~ Out",
    lod="X",
    grad=fused("Residual", to="X Y", like=dict.fromkeys("XY", "Residual"), lod=False),
)
def huber_loss(x: TensorType, y: TensorType, *, delta: float) -> tuple[TensorType, TensorType]:
    """``Out = Residual ** 2 / 2`` with ``Residual = Y - X``, beyond `delta` ``delta * (|Residual| - delta / 2)``.

    References
    ----------
    P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35, 1964.
    """
    require(delta > 0, f"delta must be positive, got {delta:g}")
    residual = _pair(x, y)
    return residual, residual


@op(
    "smooth_l1_loss", inputs="X Y InsideWeight OutsideWeight", outputs="Diff~ Out",
    grad=fused("InsideWeight", "OutsideWeight", "Diff", to="X Y", like=dict.fromkeys("XY", "Diff"), lod=False),
)  # fmt: skip
def smooth_l1_loss(
    x: TensorType,
    y: TensorType,
    inside_weight: TensorType | None,
    outside_weight: TensorType | None,
    *,
    sigma: float = 1.0,
) -> tuple[TensorType, TensorType]:
    """The sum over each sample of a smooth ``|Diff|``, with ``Diff = InsideWeight * (X - Y)``.

    Out, float[batch, 1], adds ``OutsideWeight * (sigma * Diff) ** 2 / 2`` where ``|Diff| < 1 / sigma ** 2``, else
    ``OutsideWeight * (|Diff| - 1 / (2 * sigma ** 2))``. The weights, both or none, have the shape of X.

    References
    ----------
    R. Girshick, Fast R-CNN, ICCV 2015.
    """
    diff = _pair(x, y)
    require(x.rank >= 2, f"X must have at least 2 dimensions, samples and features, got {x}")
    require(
        (inside_weight is None) == (outside_weight is None),
        "InsideWeight and OutsideWeight go together, got only one of them",
        hint="Give ones for the other.",
    )
    for slot, weight in (("InsideWeight", inside_weight), ("OutsideWeight", outside_weight)):
        if weight is not None:
            require_same_dtype(f"X and {slot}", x, weight)
            diff = x.with_shape(merge_shapes(diff.shape, weight.shape, f"X and {slot}"))
    return diff, x.with_shape((diff.shape[0], 1))


@op(
    "log_loss",
    inputs="Predicted Labels",
    outputs="Loss",
    lod="Predicted",
    grad=fused("Predicted", "Labels", to="Predicted", lod=False),
)
def log_loss(predicted: TensorType, labels: TensorType, *, epsilon: float) -> TensorType:
    """``Loss = -Labels * log(Predicted + epsilon) - (1 - Labels) * log(1 - Predicted + epsilon)``, float[batch, 1]."""
    loss = _pair(predicted, labels, "Predicted and Labels")
    require(
        loss.rank == 2 and same_dim(loss.shape[1], 1),
        f"Predicted must have shape [rows, 1], got {list(predicted.shape)}",
        hint="Use layers.reshape.",
    )
    return loss


@op("kldiv_loss", inputs="X Target", outputs="Loss", grad=fused("X", "Target", to="X", lod=False))
def kldiv_loss(x: TensorType, target: TensorType, *, reduction: str = "mean") -> TensorType:
    """Kullback-Leibler divergence ``Target * (log(Target) - X)`` of probabilities Target from logarithms X of others.

    It is 0 where Target is not positive. `reduction` is ``none``, or ``mean``, ``sum`` or ``batchmean`` (the sum
    divided by the size of the first dimension), which give one number.

    References
    ----------
    S. Kullback and R. A. Leibler, On information and sufficiency, Annals of Mathematical Statistics 22, 1951.
    """
    loss = _pair(x, target, "X and Target")
    known = ("none", "mean", "sum", "batchmean")
    require(reduction in known, f"reduction must be one of {', '.join(known)}, got {reduction!r}")
    require(reduction != "batchmean" or x.rank >= 1, f"X must have dimensions, got {x}")
    return loss if reduction == "none" else x.with_shape((1,))


def _pair(x: TensorType, y: TensorType, slots: str = "X and Y") -> TensorType:
    """The type of two floating-point tensors that are alike."""
    require_floating(x, slots.split()[0])
    require_same_dtype(slots, x, y)
    return x.with_shape(merge_shapes(x.shape, y.shape, slots))
