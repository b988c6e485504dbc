"""How well a model does."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating
from minigraph.layers.tensor import topk


def accuracy(
    input: Variable, label: Variable, k: int = 1, correct: Variable | None = None, total: Variable | None = None
) -> Variable:
    """Share of rows whose label is among the `k` largest entries of `input`.

    Parameters
    ----------
    input : Variable, float[batch, classes]
    label : Variable, int64[batch, 1]
    correct, total : Variable, int32[1], optional
        Receive the numbers of right rows and of all rows.

    Returns
    -------
    Variable, float32[1]
    """
    helper = LayerHelper("accuracy")
    values, indices = topk(check_floating(input, "accuracy: input"), k)
    result = helper.temporary()
    outputs = {
        "Accuracy": result,
        "Correct": correct if correct is not None else helper.temporary(),
        "Total": total if total is not None else helper.temporary(),
    }
    helper.append("accuracy", {"Out": values, "Indices": indices, "Label": label}, outputs)
    return result
