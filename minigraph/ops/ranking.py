"""Losses for ranking: of scores that should be in order."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType, merge_shapes, require, require_floating, require_same_dtype, same_dim


@op(
    "rank_loss", inputs="Label Left Right", outputs="Out",
    grad=fused("Label", "Left", "Right", to="Left Right", lod=False)
)  # fmt: skip
def rank_loss(label: TensorType, left: TensorType, right: TensorType) -> TensorType:
    """``Out = log(1 + exp(Left - Right)) - Label * (Left - Right)``: the cross entropy of left before right.

    Label is 1 if the left one of a pair should have the higher score, 0 if the right one should, and 0.5 if both should
    have the same.

    References
    ----------
    C. Burges et al., Learning to rank using gradient descent, ICML 2005.
    """
    return _pairs(label, left, right, "Label, Left and Right")


@op(
    "margin_rank_loss", inputs="X1 X2 Label", outputs="Activated~ Out",
    grad=fused("Label", "Activated", to="X1 X2", like={"X1": "Activated", "X2": "Activated"}, lod=False),
)  # fmt: skip
def margin_rank_loss(
    x1: TensorType, x2: TensorType, label: TensorType, *, margin: float = 0.0
) -> tuple[TensorType, TensorType]:
    """``Out = max(0, margin - Label * (X1 - X2))``; Activated is 1 where that is positive, else 0.

    Label is 1 where X1 is to have the higher score, -1 where X2 is.
    """
    pairs = _pairs(x1, x2, label, "X1, X2 and Label")
    return pairs, pairs


def _pairs(x: TensorType, y: TensorType, z: TensorType, what: str) -> TensorType:
    require_floating(x, what.partition(",")[0])
    require_same_dtype(what, x, y, z)
    return x.with_shape(merge_shapes(merge_shapes(x.shape, y.shape, what), z.shape, what))


@op("bpr_loss", inputs="X Label", outputs="Y", lod="X", grad=fused("X", "Label", to="X"))
def bpr_loss(x: TensorType, label: TensorType) -> TensorType:
    """The mean of ``log(1 + exp(score - X[label]))`` over the scores of all classes but the label, row by row.

    X is ``[..., classes]``, Label, of integers, and Y are ``[..., 1]``.

    References
    ----------
    B. Hidasi et al., Session-based recommendations with recurrent neural networks, ICLR 2016.
    """
    require_floating(x)
    require(x.rank >= 2 and x.shape[-1] not in (0, 1), f"X must have rows of at least two classes, got {x}")
    require(label.dtype.numpy.kind in "iu", f"Label must hold integers, got {label.dtype}")
    fits = label.rank == x.rank and same_dim(label.shape[-1], 1)
    require(fits, f"Label must have shape {[*x.shape[:-1], 1]}, got {list(label.shape)}")
    rows = merge_shapes(x.shape[:-1], label.shape[:-1], "X and Label, apart from the last dimension,")
    return x.with_shape((*rows, 1))


@op("teacher_student_sigmoid_loss", inputs="X Label", outputs="Y", lod="X", grad=fused("X", "Label", to="X"))
def teacher_student_sigmoid_loss(
    x: TensorType, label: TensorType, *, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> TensorType:
    """Cross entropy of ``sigmoid(X)`` with a click, plus that with the score of a teacher, if there is one.

    Label says both: -2 is no click and -1 a click, without a teacher; 0 to 1 is the teacher's score and no click, 1 to
    2 one more than the score and a click. There is no gradient where X is not between the bounds.
    """
    require_floating(x)
    require_same_dtype("X and Label", x, label)
    require(x.rank == 2 and same_dim(x.shape[1], 1), f"X must have shape [batch, 1], got {x}")
    return x.with_shape(merge_shapes(x.shape, label.shape, "X and Label"))
