"""Losses, which training makes small."""

from __future__ import annotations

from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, constant, emit, fed_integers, layer
from minigraph.layers.indexing import one_hot
from minigraph.layers.reduce import reduce_mean, reduce_sum
from minigraph.support.arguments import as_float
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "cross_entropy", "dice_loss", "huber_loss", "kldiv_loss", "label_smooth", "log_loss", "mse_loss",
    "sigmoid_cross_entropy_with_logits", "smooth_l1", "softmax_with_cross_entropy", "square_error_cost",
]  # fmt: skip


@layer
def cross_entropy(input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100) -> Variable:
    """``-log(input[label])`` of probabilities, row by row.

    Parameters
    ----------
    input : Variable, float[..., classes]
        Probabilities.
    label : Variable, int64[..., 1], or float[..., classes] when `soft_label`
    ignore_index : int
        Rows with this label count 0.
    """
    check_floating(input, "cross_entropy: input")
    if soft_label:
        return emit("cross_entropy", X=input, Label=label, soft_label=True, ignore_index=ignore_index)
    # Fluid's operator for hard labels.
    return emit("cross_entropy2", X=input, Label=fed_integers(label), ignore_index=ignore_index)


@layer
def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Variable | tuple[Variable, Variable]:
    """Cross entropy of ``softmax(logits)`` along `axis`, without overflow; and that softmax, if asked for."""
    check_floating(logits, "softmax_with_cross_entropy: logits")
    if not soft_label:
        fed_integers(label)
    softmax, loss = LayerHelper("softmax_with_cross_entropy").emit_all(
        "softmax_with_cross_entropy", Logits=logits, Label=label, soft_label=soft_label, ignore_index=ignore_index,
        numeric_stable_mode=numeric_stable_mode, axis=axis,
    )  # fmt: skip
    return (loss, softmax) if return_softmax else loss


@layer
def square_error_cost(input: Variable, label: Variable) -> Variable:
    """``(input - label) ** 2``, element by element."""
    helper = LayerHelper("square_error_cost")
    x, y = check_floating(input, "square_error_cost: input"), check_floating(label, "square_error_cost: label")
    return helper.emit("square", X=helper.emit("elementwise_sub", X=x, Y=y))


@layer
def mse_loss(input: Variable, label: Variable) -> Variable:
    """Mean of ``(input - label) ** 2``."""
    return reduce_mean(square_error_cost(input, label))


@layer
def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = -100, name: str | None = None, normalize: bool = False
) -> Variable:
    """Cross entropy of the probability ``sigmoid(x)`` of each element, without overflow.

    Parameters
    ----------
    x : Variable, float[...]
    label : Variable, of the type of `x`
        Probabilities, or `ignore_index` for elements that do not count.
    normalize : bool
        Divide by the number of elements that count.
    """
    what = "sigmoid_cross_entropy_with_logits"
    check_floating(x, f"{what}: x")
    return emit(what, name, X=x, Label=label, ignore_index=ignore_index, normalize=normalize)


@layer
def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Half the square of the difference up to a magnitude of `delta`, growing linearly beyond, element by element."""
    x, y = check_floating(input, "huber_loss: input"), check_floating(label, "huber_loss: label")
    return emit("huber_loss", X=x, Y=y, delta=delta)


@layer
def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """The sum over each sample of a smooth ``|x - y|``, quadratic up to ``1 / sigma ** 2`` (`sigma` None: 1).

    Parameters
    ----------
    x, y : Variable, float[batch, ...]
    inside_weight, outside_weight : Variable, of the type of `x`, optional
        Factors of the difference, and of its smooth magnitude; both or none.

    Returns
    -------
    Variable, float[batch, 1]

    References
    ----------
    R. Girshick, Fast R-CNN, ICCV 2015.
    """
    inputs = {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight}
    for slot, given in inputs.items():
        if given is not None:
            check_floating(given, f"smooth_l1: {slot}")
    return emit("smooth_l1_loss", **inputs, sigma=1.0 if sigma is None else sigma)


@layer
def log_loss(input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None) -> Variable:
    """``-label * log(input + epsilon) - (1 - label) * log(1 - input + epsilon)`` of probabilities float[batch, 1]."""
    x, y = check_floating(input, "log_loss: input"), check_floating(label, "log_loss: label")
    return emit("log_loss", name, Predicted=x, Labels=y, epsilon=epsilon)


@layer
def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Kullback-Leibler divergence of the probabilities `target` from those whose logarithms are `x`.

    Parameters
    ----------
    x : Variable, float[batch, ...]
    target : Variable, of the type of `x`
    reduction : {'mean', 'sum', 'batchmean', 'none'}
        ``batchmean`` is the sum divided by the size of the batch; ``none`` leaves each element by itself.
    """
    check_floating(target, "kldiv_loss: target")
    return emit("kldiv_loss", name, X=check_floating(x, "kldiv_loss: x"), Target=target, reduction=reduction)


@layer
def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """``(1 - epsilon) * label + epsilon * prior_dist``, of labels as probabilities; no gradient flows to the labels.

    Parameters
    ----------
    label : Variable, float[..., classes]
        Labels as `layers.one_hot` makes them.
    prior_dist : Variable, float[1, classes], optional
        Default: the same for all classes.

    References
    ----------
    C. Szegedy et al., Rethinking the Inception architecture for computer vision, CVPR 2016.
    """
    constant(check_floating(label, "label_smooth: label"))
    if prior_dist is not None:
        check_floating(prior_dist, "label_smooth: prior_dist")
    return emit("label_smooth", name, X=label, PriorDist=prior_dist, epsilon=as_float(epsilon))


@layer
def dice_loss(input: Variable, label: Variable, epsilon: float = 1e-05, name: str | None = None) -> Variable:
    """One less the mean share that prediction and label have in common, twice the overlap over the sum of both.

    Parameters
    ----------
    input : Variable, float32[batch, ..., classes]
        Probabilities.
    label : Variable, int64[batch, ..., 1]
    """
    shape = check_floating(input, "dice_loss: input").shape or ()
    hot = one_hot(label, depth=shape[-1])
    dims = list(range(1, len(shape)))
    overlap = reduce_sum(input * hot, dim=dims)
    total = reduce_sum(input, dim=dims) + reduce_sum(hot, dim=dims)
    return reduce_mean(1 - overlap * 2 / (total + epsilon))


refuse_unknown_names(__name__, others="minigraph.layers")
