"""Metrics: how well a model does."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, fed_integers, layer
from minigraph.layers.tensor import create_global_var
from minigraph.layers.tensor import topk as largest

__all__ = ["accuracy", "auc"]


@layer
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
    values, indices = largest(check_floating(input, "accuracy: input"), k)
    wanted = {"Accuracy": None, "Correct": correct, "Total": total}
    outputs = {slot: helper.temporary() if var is None else var for slot, var in wanted.items()}
    helper.append("accuracy", {"Out": values, "Indices": indices, "Label": fed_integers(label)}, outputs)
    return outputs["Accuracy"]


@layer
def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """The area under the curve of true over false positives of a classifier into two.

    Parameters
    ----------
    input : Variable, float[batch, 2]
        The probabilities of the classes 0 and 1.
    label : Variable, int64[batch, 1]
    num_thresholds : int
        How finely probabilities are told apart.
    topk : int
        Has no effect, as in fluid.
    slide_steps : int
        Over how many last steps the second area goes; with 0, over all.

    Returns
    -------
    tuple
        The area for all rows since the startup program ran, that for the last steps (float64[1]), and the variables
        that count rows: positive and negative ones of the last steps, then of all.
    """
    helper = LayerHelper("auc")
    inputs = {"Predict": check_floating(input, "auc: input"), "Label": check_variable(label, "auc: label")}
    buckets = num_thresholds + 1
    # A ring of the counts of single steps, their sum, and the number of steps so far.
    recent_shape = [(1 + slide_steps) * buckets + 1] if slide_steps else [1, buckets]
    shapes = [recent_shape] * 2 + [[1, buckets]] * 2
    counts = [create_global_var(shape, 0, "int64", persistable=True) for shape in shapes]
    total, recent = helper.temporary(), helper.temporary()
    # Two operators with counts of their own: one forgets, the other does not.
    for area, (positives, negatives), steps in ((recent, counts[:2], slide_steps), (total, counts[2:], 0)):
        helper.append(
            "auc",
            {**inputs, "StatPos": positives, "StatNeg": negatives},
            {"AUC": area, "StatPosOut": positives, "StatNegOut": negatives},
            {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
        )
    return total, recent, counts
