"""NaN in an input shows in the result, as in Paddle 1.8.5, so that a training that diverges is seen."""

import numpy as np
import pytest
from one_op import run

import minigraph as fluid
from minigraph import layers

NAN = np.nan


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("softshrink", [0.5, NAN, -1.5, 2.5]),
        ("hard_shrink", [1.0, NAN, -2.0, 3.0]),
        ("thresholded_relu", [0.0, NAN, 0.0, 3.0]),
    ],
)
def test_an_activation_with_a_threshold_keeps_nan(op, expected, dtype):
    found = run(op, {"X": np.array([1.0, NAN, -2.0, 3.0], dtype)})
    np.testing.assert_array_equal(found, np.array(expected, dtype))


def test_a_divergence_from_nan_is_nan():
    """Recorded: [nan, -2, 0, 0]."""
    target = np.array([[NAN, 1.0, 0.0, -1.0]], "float32")
    found = run("kldiv_loss", {"X": np.full((1, 4), 2.0, "float32"), "Target": target}, reduction="none")
    np.testing.assert_array_equal(found, np.array([[NAN, -2.0, 0.0, 0.0]], "float32"))


def test_a_loss_of_a_teacher_who_says_nan_is_nan():
    """Recorded: [nan, 1.53628]."""
    inputs = {"X": np.array([[0.5], [0.2]], "float32"), "Label": np.array([[NAN], [0.3]], "float32")}
    found = run("teacher_student_sigmoid_loss", inputs)
    np.testing.assert_allclose(found, np.array([[NAN], [1.53628]], "float32"), rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loss_over_alignments_of_nan_is_nan(compiled, monkeypatch):
    """Recorded: [nan, 5.030890], with NaN in the gradient of the first sequence only."""
    logits = np.random.RandomState(0).rand(5, 2, 6).astype("float32")
    logits[1, 0, 3] = NAN
    if compiled:
        pytest.importorskip("numba")
        monkeypatch.setenv("MINIGRAPH_JIT", "on")
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [5, 2, 6])
        x.stop_gradient = False
        label = fluid.data("label", [2, 2], "int32")
        lengths = [fluid.data(name, [2], "int64") for name in ("steps", "counts")]
        loss = layers.warpctc(x, label, 5, input_length=lengths[0], label_length=lengths[1])
        (grad,) = fluid.gradients(layers.reduce_sum(loss), x)
        feed = {"x": logits, "label": np.array([[1, 2], [3, 0]], "int32")}
        feed |= {"steps": np.array([5, 4]), "counts": np.array([2, 1])}
        found, slope = fluid.Executor().run(feed=feed, fetch_list=[loss, grad])
    np.testing.assert_allclose(found, np.array([[NAN], [5.0308900]], "float32"), rtol=1e-6)
    assert np.isnan(slope[:, 0]).any()
    assert np.isfinite(slope[:, 1]).all()
