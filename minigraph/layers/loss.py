"""What training makes small."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable
from minigraph.layers.reduce import reduce_mean


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
    inputs = {
        "X": check_floating(input, "cross_entropy: input"),
        "Label": check_variable(label, "cross_entropy: label"),
    }
    if soft_label:
        helper = LayerHelper("cross_entropy")
        return helper.unary("cross_entropy", inputs, out="Y", soft_label=True, ignore_index=ignore_index)
    helper = LayerHelper("cross_entropy2")
    loss, x_shape, match = helper.temporary(), helper.temporary(), helper.temporary()
    outputs = {"Y": loss, "MatchX": match, "XShape": x_shape}
    helper.append("cross_entropy2", inputs, outputs, {"ignore_index": ignore_index})
    return loss


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
    helper = LayerHelper("softmax_with_cross_entropy")
    inputs = {
        "Logits": check_floating(logits, "softmax_with_cross_entropy: logits"),
        "Label": check_variable(label, "softmax_with_cross_entropy: label"),
    }
    softmax, loss = helper.temporary(), helper.temporary()
    attrs = {
        "soft_label": soft_label,
        "ignore_index": ignore_index,
        "numeric_stable_mode": numeric_stable_mode,
        "axis": axis,
    }
    helper.append("softmax_with_cross_entropy", inputs, {"Softmax": softmax, "Loss": loss}, attrs)
    return (loss, softmax) if return_softmax else loss


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """``(input - label) ** 2``, element by element."""
    helper = LayerHelper("square_error_cost")
    inputs = {
        "X": check_floating(input, "square_error_cost: input"), "Y": check_floating(label, "square_error_cost: label"),
    }  # fmt: skip
    return helper.unary("square", {"X": helper.unary("elementwise_sub", inputs)})


def mse_loss(input: Variable, label: Variable) -> Variable:
    """Mean of ``(input - label) ** 2``."""
    return reduce_mean(square_error_cost(input, label))
