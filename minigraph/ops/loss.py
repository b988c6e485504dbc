"""Softmax and the losses built on it."""

from __future__ import annotations

from minigraph.opdef import fused, op
from minigraph.types import TensorType, merge_shapes, normalize_axis, require, require_floating, require_same_dtype


@op("softmax", inputs="X", outputs="Out", grad=fused("Out", to="X"), backend_attrs={"data_format": "AnyLayout"})
def softmax(x: TensorType, *, axis: int = -1, is_test: bool = False) -> TensorType:
    """``Out = exp(X) / sum(exp(X))`` along `axis`, without overflow. `is_test` changes nothing."""
    require_floating(x)
    normalize_axis(axis, x.rank)
    return x


@op("log_softmax", inputs="X", outputs="Out", grad=fused("Out", to="X"))
def log_softmax(x: TensorType, *, axis: int = -1) -> TensorType:
    """``Out = X - log(sum(exp(X)))`` along `axis`, without overflow or underflow.

    Notes
    -----
    Fluid 1.8 has no such operator; this is that of later releases.
    """
    require_floating(x)
    normalize_axis(axis, x.rank)
    return x


def _loss_shape(x: TensorType, label: TensorType, axis: int, soft_label: bool) -> tuple[int, ...]:
    """Shape of a loss that has one number for each vector of classes along `axis`."""
    axis = normalize_axis(axis, x.rank)
    if soft_label:
        require_same_dtype("input and Label", x, label)
        shape = merge_shapes(x.shape, label.shape, "input and soft Label")
    else:
        require(label.dtype.numpy.kind == "i", f"Label must hold integers unless soft_label is set, got {label.dtype}")
        expected = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        require(label.rank == x.rank, f"Label must have {x.rank} dimensions, the one of the classes being 1, got {list(label.shape)}")
        shape = merge_shapes(expected, label.shape, "Label and input with one class")
    return (*shape[:axis], 1, *shape[axis + 1 :])


@op("cross_entropy", inputs="X Label", outputs="Y", grad=fused("X", "Label", to="X", d_out="Y"))
def cross_entropy(x: TensorType, label: TensorType, *, soft_label: bool = False, ignore_index: int = -100) -> TensorType:
    """``Y = -log(X[Label])`` of probabilities in the last dimension, or ``-sum(Label * log(X))`` for soft labels.

    Rows whose label is `ignore_index` count 0. The logarithm of 0 counts as -1e20.
    """
    require_floating(x)
    return x.with_shape(_loss_shape(x, label, -1, soft_label))


def _without_trailing_zero(x_shape: TensorType) -> TensorType:
    return x_shape.with_shape(x_shape.shape[:-1])


@op(
    "cross_entropy2", inputs="X Label", outputs="Y XShape MatchX",
    grad=fused(
        "Label", "MatchX", "XShape", to="X", d_out="Y", type="cross_entropy_grad2",
        like={"X": ("XShape", _without_trailing_zero)},
    ),
)  # fmt: skip
def cross_entropy2(
    x: TensorType, label: TensorType, *, ignore_index: int = -100
) -> tuple[TensorType, TensorType, TensorType]:
    """``Y = -log(X[Label])`` of probabilities in the last dimension.

    MatchX is ``X[Label]`` and XShape records the shape of X, both for the gradient.
    """
    require_floating(x)
    loss = x.with_shape(_loss_shape(x, label, -1, soft_label=False))
    return loss, x.with_shape((*x.shape, 0)), loss


@op(
    "softmax_with_cross_entropy", inputs="Logits Label", outputs="Softmax~ Loss",
    grad=fused("Label", "Softmax", to="Logits", d_out="Loss", like={"Logits": "Softmax"}),
)  # fmt: skip
def softmax_with_cross_entropy(
    logits: TensorType,
    label: TensorType,
    *,
    soft_label: bool = False,
    numeric_stable_mode: bool = True,
    ignore_index: int = -100,
    axis: int = -1,
) -> tuple[TensorType, TensorType]:
    """``Loss = -log(softmax(Logits)[Label])`` along `axis`, or ``-sum(Label * log(softmax(Logits)))`` for soft labels.

    Computed without overflow whatever `numeric_stable_mode` says.
    """
    require_floating(logits, "Logits")
    return logits, logits.with_shape(_loss_shape(logits, label, axis, soft_label))
