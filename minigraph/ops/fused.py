"""Operators that stand for several; lowering passes write them, programs need none."""

from __future__ import annotations

from minigraph.opdef import definition_of, op
from minigraph.support.fused_calls import parse_calls
from minigraph.types import TensorType, require

MOST_RESULTS = 4
"""Maximum number of results of a `fused_elementwise`."""


@op("fused_elementwise", inputs="X", outputs="Out Out1? Out2? Out3?", grad=None)
def fused_elementwise(xs: list[TensorType], *, steps: list[str]) -> tuple[TensorType, ...]:
    """Several operators on elements, one after the other, of which only some results are needed.

    `steps` are calls as `minigraph.support.fused_calls` reads them: ``x0``, ``x1``, ... are the tensors in X, ``y0``
    to ``y3`` the results. What is computed is what the single operators compute, bit for bit, in their order.
    """
    types = {f"x{i}": each for i, each in enumerate(xs)}
    for call in parse_calls(tuple(steps)):
        definition = definition_of(call.type)
        for name in call.reads:
            require(name in types, f"the step {call!s:.80} reads {name}, which is neither given nor computed before")
        require(
            len(call.inputs) == len(definition.inputs) and len(call.outputs) == len(definition.outputs),
            f"the step {call!s:.80} has not the {len(definition.inputs)} inputs and {len(definition.outputs)} "
            f"results of {call.type}",
        )
        inputs = {
            slot.name: [types[name] for name in (entry if isinstance(entry, tuple) else (entry,))]
            for slot, entry in zip(definition.inputs, call.inputs, strict=True)
            if entry is not None
        }
        inferred = definition.infer_types(inputs, call.attrs)
        for result, output in zip(definition.outputs, call.outputs, strict=True):
            if output is not None:
                types[output] = inferred[result.name][0]
    require("y0" in types, "no step makes y0")
    return tuple(types.get(f"y{i}", types["y0"]) for i in range(MOST_RESULTS))


@op("fused_mean_loss", inputs="X Label", outputs="Out? Loss Gradient", grad=None)
def fused_mean_loss(
    x: TensorType, label: TensorType, *, ignore_index: int = -100, slope: float = 1.0, from_logits: bool = False
) -> tuple[TensorType, TensorType, TensorType]:
    """The mean of the cross entropies of softmaxes, and its gradient.

    ``Out = softmax(X)``, ``Loss = mean(cross_entropy2(Out, Label))``, and ``Gradient`` is `slope` times the derivative
    of Loss by X: what the operators ``softmax``, ``cross_entropy2``, ``mean`` and their gradients compute one after
    the other, bit for bit. With `from_logits` they are ``softmax_with_cross_entropy``, ``mean`` and their gradients:
    then the loss is exact however far the logits lie apart.
    """
    if from_logits:
        given, attrs = {"Logits": [x], "Label": [label]}, {"ignore_index": ignore_index}
        inferred = definition_of("softmax_with_cross_entropy").infer_types(given, attrs)
        return inferred["Softmax"][0], inferred["Loss"][0].with_shape((1,)), x
    probabilities = definition_of("softmax").infer_types({"X": [x]}, {})["Out"][0]
    inferred = definition_of("cross_entropy2").infer_types(
        {"X": [probabilities], "Label": [label]}, {"ignore_index": ignore_index}
    )
    return probabilities, inferred["Y"][0].with_shape((1,)), x
