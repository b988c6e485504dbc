"""Precision and recall of classes, beside numbers of Paddle 1.8.5."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ExecutionError, OpError
from minigraph.layer_helper import LayerHelper

pytestmark = pytest.mark.usefixtures("new_program")

FEED = {
    "MaxProbs": np.array([[0.5], [0.7], [0.6], [0.5], [0.4]], "float32"),
    "Indices": np.array([[0], [2], [1], [2], [0]], "int32"),
    "Labels": np.array([[0], [1], [1], [2], [2]], "int32"),
    "Weights": np.array([[0.5], [1], [2], [0.25], [4]], "float32"),
    "StatesInfo": np.arange(16, dtype="float32").reshape(4, 4),
}
PLAIN = [0.75, 0.75, 0.75, 0.6, 0.6, 0.6]
WEIGHTED = [0.577778, 0.681373, 0.625314, 0.354839, 0.354839, 0.354839]
RECORDED = [
    ([], PLAIN, PLAIN, [[1, 1, 3, 0], [1, 0, 3, 1], [1, 1, 2, 1], [0, 0, 5, 0]]),
    (
        ["StatesInfo"], PLAIN, [0.446754, 0.376908, 0.40887, 0.473684, 0.415385, 0.442623],
        [[1, 2, 5, 3], [5, 5, 9, 8], [9, 10, 12, 12], [12, 13, 19, 15]],
    ),
    (
        ["Weights", "StatesInfo"], WEIGHTED, [0.392105, 0.342678, 0.365729, 0.447699, 0.394834, 0.419608],
        [[0.5, 5, 5.25, 3], [6, 5, 10.75, 8], [8.25, 10, 12.5, 15], [12, 13, 21.75, 15]],
    ),
]  # fmt: skip


def scores(given, feed=FEED, classes=4):
    names = ["MaxProbs", "Indices", "Labels", *given]
    inputs = {name: fluid.data(name, feed[name].shape, feed[name].dtype.name) for name in names}
    block = fluid.default_main_program().global_block()
    outputs = {
        slot: block.create_var(name=slot, dtype="float32")
        for slot in ("BatchMetrics", "AccumMetrics", "AccumStatesInfo")
    }
    LayerHelper("scores").append_op("precision_recall", inputs, outputs, {"class_number": classes})
    return fluid.Executor().run(feed={name: feed[name] for name in names}, fetch_list=list(outputs.values()))


@pytest.mark.parametrize(("given", "batch", "total", "states"), RECORDED)
def test_precision_and_recall_are_those_of_the_original(given, batch, total, states):
    for found, recorded in zip(scores(given), (batch, total, states), strict=True):
        np.testing.assert_allclose(found, recorded, atol=1e-6)


def test_what_is_no_class_is_refused():
    with pytest.raises(ExecutionError, match=r"Labels must be in \[0, 2\), but element 3 is 2"):
        scores([], {**FEED, "Indices": FEED["Indices"] % 2}, classes=2)


def test_counts_of_other_classes_are_refused():
    with pytest.raises(OpError, match=r"StatesInfo must have shape \[3, 4\]"):
        scores(["StatesInfo"], classes=3)
