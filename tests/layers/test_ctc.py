"""Connectionist temporal classification: the sum over alignments, tensors of sequences, bad input."""

from itertools import groupby, product

import numpy as np
import pytest
from lengths import check_gradient, run_both, tensor

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError

pytestmark = pytest.mark.usefixtures("new_program")


def said(alignment):
    """The labels of an alignment whose blank is 0."""
    return tuple(label for label, _ in groupby(alignment) if label)


def test_the_loss_sums_over_all_alignments():
    x, labels = fluid.data("x", [5, 1, 3], "float64"), fluid.data("labels", [1, 3], "int32")
    lengths = fluid.data("steps", [1], "int64"), fluid.data("counts", [1], "int64")
    loss = layers.warpctc(x, labels, input_length=lengths[0], label_length=lengths[1])
    scores = np.random.RandomState(0).randn(5, 1, 3)
    logs = scores[:, 0] - np.log(np.exp(scores[:, 0]).sum(1, keepdims=True))
    for right in ((1, 2), (1, 1, 2), (2,), ()):
        feed = {"x": scores, "labels": np.array([(*right, 0, 0, 0)[:3]], "int32")}
        feed.update(steps=np.array([5]), counts=np.array([len(right)]))
        (found,) = fluid.Executor().run(feed=feed, fetch_list=[loss])
        alignments = [each for each in product(range(3), repeat=5) if said(each) == right]
        totals = [sum(logs[t, label] for t, label in enumerate(each)) for each in alignments]
        assert found.item() == pytest.approx(-np.logaddexp.reduce(totals))


@pytest.mark.slow
def test_gradients_of_sequences_are_those_of_central_differences():
    x, labels = fluid.data("x", [None, 4], "float64", 1), fluid.data("labels", [None, 1], "int32", 1)
    x.stop_gradient = False
    lengths = [4, 1, 3]
    given = fluid.create_lod_tensor(np.array([[1], [2], [3], [3]], "int32"), [[2, 1, 1]], fluid.CPUPlace())
    check_gradient(layers.warpctc(x, labels), {"x": tensor(lengths, 4, dtype="float64"), "labels": given}, ["x"])


@pytest.mark.slow
def test_labels_that_are_the_blank_follow_blanks_only():
    shapes = {"x": [5, 6, 4], "labels": [6, 3], "steps": [6], "counts": [6]}
    types = {"x": "float64", "labels": "int32", "steps": "int64", "counts": "int64"}
    x, labels, steps, counts = (fluid.data(name, shape, types[name]) for name, shape in shapes.items())
    x.stop_gradient = False
    given = {"steps": np.array([5, 5, 4, 5, 5, 5]), "counts": np.array([3, 3, 3, 2, 3, 3])}
    given["labels"] = np.array([[2, 3, 0], [1, 0, 2], [0, 1, 2], [0, 0, 1], [1, 0, 0], [2, 2, 1]], "int32")
    given["x"] = np.random.RandomState(0).rand(5, 6, 4)
    loss = layers.warpctc(x, labels, input_length=steps, label_length=counts)
    (found,) = run_both(loss, feed=given)
    # As Paddle 1.8.5 computes them.
    recorded = [4.4037876, 4.3395276, 3.5651367, 4.6300497, 6.9923835, 4.8997803]
    np.testing.assert_allclose(np.array(found).ravel(), recorded, rtol=1e-6)
    check_gradient(loss, given, ["x"])


def test_the_best_labels_are_sequences_again():
    x = fluid.data("x", [None, 3], lod_level=1)
    best = np.array([1, 1, 0, 1, 2, 2, 0, 0, 2])
    rows = fluid.create_lod_tensor(np.eye(3, dtype="float32")[best], [[5, 3, 1]], fluid.CPUPlace())
    (found,) = run_both(layers.ctc_greedy_decoder(x, 0), feed={"x": rows})
    assert np.array(found).ravel().tolist() == [1, 1, 2, 2, 2]
    assert found.recursive_sequence_lengths() == [[3, 1, 1]]


def test_what_cannot_be_aligned_is_refused():
    x, labels = fluid.data("x", [4, None, 3]), fluid.data("labels", [None, 2], "int32")
    lengths = fluid.data("lengths", [None], "int64")
    with pytest.raises(OpError, match=r"Logits must be \[rows, classes\] without LogitsLength"):
        layers.warpctc(x, labels, input_length=lengths)
    with pytest.raises(OpError, match="blank must be below the number of classes, 3, got 3"):
        layers.warpctc(x, labels, 3, input_length=lengths, label_length=lengths)
    loss = layers.warpctc(x, labels, input_length=lengths, label_length=lengths)
    feed = {"x": np.zeros((4, 1, 3), "float32"), "labels": np.array([[1, 3]], "int32"), "lengths": np.array([2])}
    with pytest.raises(ExecutionError, match=r"Label must be in \[0, 3\), but element 1 is 3"):
        fluid.Executor().run(feed=feed, fetch_list=[loss])
