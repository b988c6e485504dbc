"""Connectionist temporal classification: labels for sequences whose steps are not aligned with them."""

from __future__ import annotations

from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, constant, layer
from minigraph.layers.nn import check_integers
from minigraph.layers.reshaping import squeeze
from minigraph.layers.tensor import topk

__all__ = ["ctc_greedy_decoder", "warpctc"]


@layer
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """The loss of connectionist temporal classification, for each sequence.

    Parameters
    ----------
    input : Variable, float[time, batch, classes], or float[rows, classes] with sequences
        Scores, before the softmax.
    label : Variable, int32[batch, labels], or int32[rows, 1] with sequences
    blank : int
        The class that stands for no label.
    norm_by_times : bool
        Divide gradients by the number of steps.
    input_length, label_length : Variable, int64[batch], optional
        How many steps and labels of each sequence count.

    Returns
    -------
    Variable, float[batch, 1]

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     scores, labels = fluid.data("scores", [7, None, 4]), fluid.data("labels", [None, 3], "int32")
    ...     steps, counts = fluid.data("steps", [None], "int64"), fluid.data("counts", [None], "int64")
    ...     warpctc(scores, labels, input_length=steps, label_length=counts).shape
    (-1, 1)
    """
    inputs: dict[str, Any] = {"Logits": check_floating(input, "warpctc: input")}
    inputs["Label"] = check_integers(label, "warpctc: label")
    # As in fluid, one of them alone has no effect.
    if input_length is not None and label_length is not None:
        inputs.update(LogitsLength=input_length, LabelLength=label_length)
    helper = LayerHelper("warpctc")
    loss = helper.temporary()
    outputs = {"Loss": loss, "WarpCTCGrad": helper.temporary()}
    helper.append("warpctc", inputs, outputs, {"blank": blank, "norm_by_times": norm_by_times})
    return loss


@layer
def ctc_greedy_decoder(
    input: Variable, blank: int, input_length: Variable | None = None, padding_value: int = 0, name: str | None = None
) -> Any:
    """The labels that the best class of each step gives: equal neighbours count once, then blanks are left out.

    Parameters
    ----------
    input : Variable, float[batch, time, classes], or float[rows, classes] with sequences
    blank : int
    input_length : Variable, int64[batch, 1], optional
    padding_value : int
        Behind the last label of a sequence.

    Returns
    -------
    Variable or tuple of Variable
        The labels, int64[batch, time], and their numbers, int64[batch, 1]; without `input_length` the labels only, as
        sequences, int64[rows, 1].
    """
    helper = LayerHelper("ctc_greedy_decoder", name)
    _, best = topk(check_floating(input, "ctc_greedy_decoder: input"), 1)
    attrs: dict[str, Any] = {"merge_repeated": True, "blank": blank}
    if input_length is None:
        return constant(helper.emit("ctc_align", Input=best, **attrs))
    inputs = {"Input": squeeze(best, [2]), "InputLength": check_integers(input_length, "ctc_greedy_decoder: length")}
    labels, counts = helper.emit_all("ctc_align", **inputs, **attrs, padding_value=padding_value)
    return constant(labels), constant(counts)
