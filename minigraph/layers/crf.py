"""Conditional random fields along sequences, for tagging."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, constant, layer
from minigraph.param_attr import as_param_attr

__all__ = ["crf_decoding", "linear_chain_crf"]


@layer
def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """Negative logarithm of the likelihood of tags in a conditional random field, a loss for each sequence.

    Parameters
    ----------
    input : Variable, float[batch, time, tags]
        Scores of the tags at each step.
    label : Variable, int64[batch, time] or int64[batch, time, 1]
    param_attr : ParamAttr, optional
        Of the weights, float[tags + 2, tags]: for the first tag, for the last, and from each tag to the next.
    length : Variable, int64[batch] or int64[batch, 1]
        Number of steps of each sequence.

    Returns
    -------
    Variable, float[batch, 1]

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     words, tags = fluid.data("words", [None, 7, 4]), fluid.data("tags", [None, 7], "int64")
    ...     linear_chain_crf(words, tags, fluid.ParamAttr(name="crf"), fluid.data("lengths", [None], "int64")).shape
    (-1, 1)
    """
    helper = LayerHelper("linear_chain_crf")
    shape = check_floating(input, "linear_chain_crf: input").shape
    if shape is None or len(shape) < 2 or shape[-1] < 1:
        raise ProgramError(f"linear_chain_crf: input must have a known number of tags, got {input}")
    weight = helper.required(param_attr, [shape[-1] + 2, shape[-1]], input.dtype)
    inputs = {"Emission": input, "Transition": weight, "Label": check_variable(label, "linear_chain_crf: label")}
    return helper.emit_all("linear_chain_crf", **inputs, Length=length)[3]


@layer
def crf_decoding(
    input: Variable, param_attr: Any, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """The most probable tags, with the weights of a `linear_chain_crf`.

    Parameters
    ----------
    input : Variable, float[batch, time, tags]
    param_attr : ParamAttr
        Its name is that of the weights.
    label : Variable, int64[batch, time] or int64[batch, time, 1], optional
        If given, the result says where it is right: 1, elsewhere 0.
    length : Variable, int64[batch] or int64[batch, 1]

    Returns
    -------
    Variable, int64[batch, time]
        0 after the end of a sequence.
    """
    helper, attr = LayerHelper("crf_decoding"), as_param_attr(param_attr)
    if attr is None or attr.name is None:
        raise ProgramError(
            "crf_decoding: param_attr must name the weights", hint="Give the ParamAttr(name=...) of linear_chain_crf."
        )  # fmt: skip
    weight = helper.get_parameter(attr.name)
    scores = check_floating(input, "crf_decoding: input")
    return constant(helper.emit("crf_decoding", Emission=scores, Transition=weight, Label=label, Length=length))
