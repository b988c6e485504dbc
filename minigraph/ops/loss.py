"""Softmax and the losses built on it.

A hard label is the number of a class, a soft one a weight for each class. The loss has one number for each vector of
classes.
"""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import (
    TensorType,
    merge_shapes,
    normalize_axis,
    product,
    require,
    require_floating,
    require_same_dtype,
    same_dim,
)


def _shape_without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _loss_type(x: TensorType, label: TensorType, axis: int, soft_label: bool, name: str = "X") -> TensorType:
    """The type of a loss whose dimension `axis` is 1, after checking that the labels fit."""
    require(x.shape[axis] != 0, f"{name} must have at least one class in dimension {axis}, got {list(x.shape)}")
    if soft_label:
        require_same_dtype(f"{name} and a soft Label", x, label)
        full = merge_shapes(x.shape, label.shape, f"{name} and a soft Label")
        others = _shape_without(full, axis)
    else:
        require(
            label.dtype.numpy.kind in "iu",
            f"a hard Label must hold integers, got {label.dtype}",
            hint="Give numbers of classes, or weights with soft_label=True.",
        )
        fits = label.rank == x.rank and label.shape[axis] in (1, -1)
        expected = [*x.shape[:axis], 1, *x.shape[axis + 1 :]]
        require(fits, f"a hard Label must have shape {expected}, got {list(label.shape)}")
        what = f"{name} and Label, apart from dimension {axis},"
        others = merge_shapes(_shape_without(x.shape, axis), _shape_without(label.shape, axis), what)
    return x.with_shape((*others[:axis], 1, *others[axis:]))


def _loss_of_probabilities(x: TensorType, label: TensorType, soft_label: bool) -> TensorType:
    """The type of the loss over the last dimension, which a hard label may leave out; then the loss does, too."""
    require_floating(x)
    require(x.rank >= 2, f"X must have at least 2 dimensions, rows and classes, got {list(x.shape)}")
    if soft_label or label.rank != x.rank - 1:
        return _loss_type(x, label, x.rank - 1, soft_label)
    loss = _loss_type(x, label.with_shape((*label.shape, 1)), x.rank - 1, soft_label)
    return loss.with_shape(loss.shape[:-1])


@op(
    "softmax", inputs="X", outputs="Out", lod="X",
    grad=fused("Out", lod=False), backend_attrs={"data_format": "AnyLayout"},
)  # fmt: skip
def softmax(x: TensorType, *, axis: int = -1, is_test: bool = False) -> TensorType:
    """``Out = exp(X) / sum(exp(X))`` along `axis`, without overflow. `is_test` changes nothing.

    Notes
    -----
    As in fluid nothing is less than exp(-64) times the largest, about 1e-28, so that ``cross_entropy`` after it has a
    finite loss and gradient. ``log_softmax`` and ``softmax_with_cross_entropy`` need no such limit and have none.
    """
    require_floating(x)
    normalize_axis(axis, x.rank)
    return x


@op("log_softmax", inputs="X", outputs="Out", grad=fused("Out"))
def log_softmax(x: TensorType, *, axis: int = -1) -> TensorType:
    """``Out = X - log(sum(exp(X)))`` along `axis`, without overflow.

    Notes
    -----
    Fluid 1.8 has no such operator; this is that of later releases.
    """
    require_floating(x)
    normalize_axis(axis, x.rank)
    return x


@op("cross_entropy", inputs="X Label", outputs="Y", lod="X", grad=fused("X", "Label", to="X"))
def cross_entropy(
    x: TensorType, label: TensorType, *, soft_label: bool = False, ignore_index: int = -100
) -> TensorType:
    """``Y = -log(X[Label])`` over the last dimension, or ``Y = -sum(Label * log(X))`` for soft labels.

    X holds probabilities. A hard label may leave the last dimension out. Where it is `ignore_index`, loss and gradient
    are 0; any other that is no class is an error when the program runs.

    Notes
    -----
    The logarithm of 0 counts as -1e20 (float16: -65500), as in fluid. A soft label of 0 has gradient 0 even where the
    probability is 0; fluid has NaN there.
    """
    return _loss_of_probabilities(x, label, soft_label)


@op(
    "cross_entropy2", inputs="X Label", outputs="Y XShape MatchX",
    lod={"Y": "X", "XShape": "X"}, grad=fused(
        "MatchX", "Label", "XShape", to="X", type="cross_entropy_grad2",
        like={"X": ("XShape", lambda x_shape: x_shape.with_shape(x_shape.shape[:-1]))},
    ),
)  # fmt: skip
def cross_entropy2(
    x: TensorType, label: TensorType, *, ignore_index: int = -100
) -> tuple[TensorType, TensorType, TensorType]:
    """``Y = -log(X[Label])`` over the last dimension, like ``cross_entropy`` with hard labels.

    MatchX is ``X[Label]``, 0 where ignored; XShape, without elements, keeps the shape of X for the gradient.
    """
    loss = _loss_of_probabilities(x, label, False)
    match = loss.shape if len(loss.shape) == x.rank else (*loss.shape, 1)
    return loss, x.with_shape((*x.shape, 0)), x.with_shape(match)


@op(
    "softmax_with_cross_entropy", inputs="Logits Label", outputs="Softmax~ Loss",
    lod={"Softmax": "Logits", "Loss": "Logits"},
    grad=fused("Softmax", "Label", to="Logits", like={"Logits": "Softmax"}, lod=False),
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
    """``Loss = log(sum(exp(Logits))) - Logits[Label]`` along `axis`, or ``-sum(Label * log(Softmax))`` for soft labels.

    Softmax is that of Logits. Nothing overflows, whatever `numeric_stable_mode`. Where a hard label is `ignore_index`
    the loss is 0; any other that is no class is an error when the program runs.

    Notes
    -----
    The loss is exact however far the logits lie apart; fluid's ends at 64. Two things in the gradient are as in fluid
    on the CPU: soft labels are taken to add up to 1, and where `ignore_index` is itself a class a row that has it keeps
    the gradient of that class. With an `ignore_index` outside of the classes, such as the default, it is 0.
    """
    require_floating(logits, "Logits")
    at = normalize_axis(axis, logits.rank)
    require(
        numeric_stable_mode or at == logits.rank - 1,
        f"numeric_stable_mode=False goes with the last dimension only, got axis={axis}",
        hint="Leave numeric_stable_mode at True.",
    )
    loss = _loss_type(logits, label, at, soft_label, "Logits")
    return logits.with_shape((*loss.shape[:at], logits.shape[at], *loss.shape[at + 1 :])), loss


@op("label_smooth", inputs="X PriorDist", outputs="Out", lod="X", grad=fused(lod=False))
def label_smooth(x: TensorType, prior: TensorType | None, *, epsilon: float = 0.0) -> TensorType:
    """``Out = (1 - epsilon) * X + epsilon * PriorDist``, of labels as probabilities along the last dimension.

    PriorDist, of one element for each class, is the same for all classes unless given.

    References
    ----------
    C. Szegedy et al., Rethinking the Inception architecture for computer vision, CVPR 2016.
    """
    require_floating(x)
    require(x.rank >= 1, f"X must have dimensions, got {x}")
    require(0 <= epsilon <= 1, f"epsilon must be in [0, 1], got {epsilon:g}")
    if prior is not None:
        require_same_dtype("X and PriorDist", x, prior)
        fits = same_dim(product(prior.shape), x.shape[-1])
        require(fits, f"PriorDist must have one element for each of {x.shape[-1]} classes, got {prior}")
    return x
