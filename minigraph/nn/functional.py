"""Paddle 2's functions for networks, thin over `minigraph.layers`."""

from __future__ import annotations

from typing import Any

from minigraph import layers
from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.layer_helper import check_variable, layer
from minigraph.support.public import public, refuse_unknown_names
from minigraph.tensor.creation import flatten, tanh

__all__ = [
    "cross_entropy", "dropout", "flatten", "linear", "log_softmax", "mse_loss", "relu", "sigmoid", "softmax", "tanh",
]  # fmt: skip


@public
def linear(x: Variable, weight: Variable, bias: Variable | None = None, name: str | None = None) -> Variable:
    """``x @ weight + bias`` over the last dimension."""
    product = layers.matmul(x, weight)
    return product if bias is None else layers.elementwise_add(product, bias)


@public
def relu(x: Variable, name: str | None = None) -> Variable:
    """``max(x, 0)``; the gradient at 0 is 0."""
    return layers.relu(x)


@public
def sigmoid(x: Variable, name: str | None = None) -> Variable:
    """``1 / (1 + exp(-x))``, without overflow."""
    return layers.sigmoid(x)


@public
def softmax(x: Variable, axis: int = -1, name: str | None = None) -> Variable:
    """``exp(x) / sum(exp(x))`` along `axis`, without overflow."""
    return layers.softmax(x, axis=axis)


@layer
def log_softmax(x: Variable, axis: int = -1, name: str | None = None) -> Variable:
    """``x - log(sum(exp(x)))`` along `axis`, without overflow or underflow."""
    block = default_main_program().current_block()
    return block.emit("log_softmax", X=check_variable(x, "log_softmax: x"), axis=axis)


@public
def dropout(
    x: Variable, p: float = 0.5, training: bool = True, mode: str = "upscale_in_train", name: str | None = None
) -> Variable:
    """Zero each element with probability `p`, if `training`; see `minigraph.nn.Dropout`."""
    return layers.dropout(x, p, is_test=not training, dropout_implementation=dropout_implementation(mode))


def dropout_implementation(mode: str) -> str:
    """Fluid's word for Paddle 2's `mode`."""
    known = {"upscale_in_train": "upscale_in_train", "downscale_in_infer": "downgrade_in_infer"}
    if mode not in known:
        raise ProgramError(f"dropout: mode must be one of {', '.join(known)}, got {mode!r}")
    return known[mode]


@public
def mse_loss(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """``(input - label) ** 2``, reduced.

    Parameters
    ----------
    reduction : {'mean', 'sum', 'none'}
    """
    return _reduced(layers.square_error_cost(input, label), reduction)


@layer
def cross_entropy(
    input: Variable,
    label: Variable,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft_label: bool = False,
    axis: int = -1,
) -> Variable:
    """Cross entropy of ``softmax(input)`` along `axis`, without overflow, reduced.

    Parameters
    ----------
    input : Variable, float[..., classes, ...]
        Logits.
    label : Variable, int64[..., 1, ...], or without that dimension; float of the shape of `input` when `soft_label`
    ignore_index : int
        Rows with this label count 0; the mean is that of the other rows.
    reduction : {'mean', 'sum', 'none'}
    """
    logits, target = check_variable(input, "cross_entropy: input"), check_variable(label, "cross_entropy: label")
    assert logits.shape is not None and target.shape is not None
    if not soft_label and len(target.shape) == len(logits.shape) - 1:
        at = axis if axis >= 0 else axis + len(logits.shape)
        target = layers.reshape(target, [*target.shape[:at], 1, *target.shape[at:]])
    loss: Any = layers.softmax_with_cross_entropy(logits, target, soft_label, ignore_index, axis=axis)
    if soft_label or reduction != "mean":
        return _reduced(loss, reduction)
    # 1 where the label counts, 0 where it is the one to ignore.
    counts = layers.sign(layers.square(layers.cast(target, "float64") - float(ignore_index)))
    # If all labels are to be ignored, the mean is 0 rather than NaN.
    count = layers.elementwise_max(layers.reduce_sum(counts), layers.fill_constant([1], "float64", 1.0))
    return layers.reduce_sum(loss) / layers.cast(count, loss.dtype)


def _reduced(loss: Variable, reduction: str) -> Variable:
    if reduction == "mean":
        return layers.mean(loss)
    if reduction == "sum":
        return layers.reduce_sum(loss)
    if reduction != "none":
        raise ProgramError(f"reduction must be mean, sum or none, got {reduction!r}")
    return loss


refuse_unknown_names(__name__)
