"""Losses over samples of the classes."""

import numpy as np
import pytest
from both_executors import check_gradient, data, numbers

import minigraph as fluid
from minigraph import layers

pytestmark = pytest.mark.usefixtures("new_program")


def test_sampled_softmax_of_float64_has_the_gradient_of_the_central_difference():
    logits = data("logits", 3, 6)
    label, samples = fluid.data("label", [3, 1], "int64"), fluid.data("samples", [3, 3], "int64")
    probabilities = fluid.data("probabilities", [3, 3], "float64")
    loss = layers.sampled_softmax_with_cross_entropy(
        logits, label, 2, use_customized_samples=True, customized_samples=samples,
        customized_probabilities=probabilities,
    )  # fmt: skip
    feed = {
        "logits": numbers(3, 6), "label": np.array([[1], [4], [0]]), "probabilities": np.full((3, 3), 0.25),
        "samples": np.array([[1, 3, 2], [4, 3, 5], [0, 5, 2]]),
    }  # fmt: skip
    check_gradient(layers.mean(loss), feed, ["logits"])
