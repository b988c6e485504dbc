"""Edge facts about softmax and the losses: large logits, labels that do not count, labels that are wrong."""

import numpy as np
import pytest
from one_op import append, gradient, run

import minigraph as fluid
from minigraph.errors import ExecutionError, OpError
from minigraph.kernels import find_kernel

pytestmark = pytest.mark.numbers

FAR_APART = np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4], [1e30, 0, -1e30]], "float32")
PROBABILITIES = np.array([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0, 1, 0], [0.3, 0.3, 0.4]], "float32")
LOGITS = np.random.default_rng(4).standard_normal((4, 3)).astype("float32")
HARD = ["cross_entropy", "cross_entropy2", "softmax_with_cross_entropy"]


def labels(*values, dtype="int64"):
    return np.array(values, dtype).reshape(-1, 1)


def hard_loss(type, x, label, **attrs):
    """The loss and its gradient."""
    slot, out = ("Logits", "Loss") if type == "softmax_with_cross_entropy" else ("X", "Y")
    inputs = {slot: x, "Label": label}
    values = run(type, inputs, **attrs)
    loss = values[1] if out == "Loss" else values[0] if type == "cross_entropy2" else values
    return loss, gradient(type, inputs, slot, out, **attrs)


def one_hot(label, classes):
    return (label == np.arange(classes)).astype("float32")


# Softmax


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_softmax_does_not_overflow(dtype):
    x = np.array([[3e4, -3e4, 0], [3e4, 3e4, -3e4]], dtype)
    for name in ("softmax", "log_softmax"):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            y = find_kernel(name, "cpu").function(np, x, axis=-1)
        y = np.exp(y) if name == "log_softmax" else y
        assert y.dtype == dtype
        assert np.allclose(y, [[1, 0, 0], [0.5, 0.5, 0]], atol=1e-27)


def test_softmax_is_the_same_for_shifted_logits():
    shifts = np.array([[0], [1000], [-1000]], "float32")
    logits = np.array([[1, 2, 4]], "float32")
    assert np.array_equal(run("softmax", {"X": logits + shifts}), np.repeat(run("softmax", {"X": logits}), 3, 0))


def test_no_probability_is_zero_so_that_the_loss_after_softmax_can_be_trained():
    with fluid.program_guard(fluid.Program()) as _:
        x = fluid.data("x", [3, 3])
        x.stop_gradient = False
        label = fluid.data("label", [3, 1], "int64")
        loss = fluid.layers.cross_entropy(fluid.layers.softmax(x), label)
        (d_x,) = fluid.gradients(fluid.layers.reduce_sum(loss), x)
        feed = {"x": FAR_APART, "label": labels(1, 0, 1)}
        found, d_logits = fluid.Executor().run(feed=feed, fetch_list=[loss, d_x])
    assert np.allclose(found.ravel(), [64, np.log(3), 64])
    third = 1 / 3
    assert np.allclose(d_logits, [[1, -1, 0], [third - 1, third, third], [1, -1, 0]], atol=1e-6)


def test_a_logit_of_minus_infinity_has_no_share_and_too_many_have_no_answer():
    x = np.array([[-np.inf, 0, 0], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 0], [np.nan, 0, 0]], "float32")
    y = run("softmax", {"X": x})
    assert np.allclose(y[0], [0, 0.5, 0.5], atol=1e-27)
    assert np.isnan(y[1:]).all(axis=1).tolist() == [True, True, True]
    log_y = run("log_softmax", {"X": x})
    assert log_y[0, 0] == -np.inf
    assert np.allclose(log_y[0, 1:], np.log(0.5))


def test_log_softmax_is_exact_where_softmax_has_its_limit():
    assert run("log_softmax", {"X": FAR_APART})[0].tolist() == [0, -2e4, -1e4]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [2, -3])
def test_softmax_needs_an_axis_that_there_is(name, axis):
    with pytest.raises(OpError, match=r"axis must be in \[-2, 2\)"):
        append(name, {"X": LOGITS}, axis=axis)


# Large losses


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 65500), ("float32", 1e20), ("float64", 1e20)])
@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy2"])
def test_probability_zero_costs_much_but_not_infinity(name, dtype, largest):
    x = np.array([[0, 1], [np.inf, 1], [np.nan, 1]], dtype)
    loss = run(name, {"X": x, "Label": labels(0, 0, 0)})
    loss = loss[0] if name == "cross_entropy2" else loss
    assert np.array_equal(loss.ravel(), np.array([largest, -largest, np.nan], dtype), equal_nan=True)


def test_a_soft_label_of_zero_asks_nothing_of_a_probability_of_zero():
    inputs = {"X": PROBABILITIES, "Label": one_hot(labels(1, 0, 1, 2), 3)}
    loss = run("cross_entropy", inputs, soft_label=True)
    assert np.allclose(loss.ravel(), -np.log([0.3, 0.1, 1, 0.4]), atol=1e-6)
    d_x = gradient("cross_entropy", inputs, "X", "Y", soft_label=True)
    expected = np.zeros((4, 3))
    expected[np.arange(4), [1, 0, 1, 2]] = [-1 / 0.3, -1 / 0.1, -1, -1 / 0.4]
    assert np.allclose(d_x, expected)


@pytest.mark.parametrize("soft_label", [False, True])
def test_the_loss_of_logits_is_exact_however_far_they_lie_apart(soft_label):
    label = labels(1, 0, 1)
    given = one_hot(label, 3) if soft_label else label
    inputs = {"Logits": FAR_APART, "Label": given}
    _, loss = run("softmax_with_cross_entropy", inputs, soft_label=soft_label)
    assert np.allclose(loss.ravel(), [2e4, np.log(3), 1e30])
    d_logits = gradient("softmax_with_cross_entropy", inputs, "Logits", "Loss", soft_label=soft_label)
    third = 1 / 3
    assert np.allclose(d_logits, [[1, -1, 0], [third - 1, third, third], [1, -1, 0]], atol=1e-6)


def test_a_class_that_is_masked_out_costs_infinity_unless_it_has_no_weight():
    x = np.array([[-np.inf, 0, 1]] * 2, "float32")
    _, loss = run("softmax_with_cross_entropy", {"Logits": x, "Label": labels(0, 2)})
    assert loss[0] == np.inf
    assert np.allclose(loss[1], np.log(1 + np.exp(-1)))
    weights = np.array([[0, 0, 1], [0.5, 0, 0.5]], "float32")
    _, loss = run("softmax_with_cross_entropy", {"Logits": x, "Label": weights}, soft_label=True)
    assert np.allclose(loss[0], np.log(1 + np.exp(-1)))
    assert loss[1] == np.inf


def test_nan_logits_give_a_nan_loss():
    x = np.array([[np.nan, 0, 1]], "float32")
    for label, soft in ((labels(2), False), (one_hot(labels(2), 3), True)):
        _, loss = run("softmax_with_cross_entropy", {"Logits": x, "Label": label}, soft_label=soft)
        assert np.isnan(loss).all()


# Labels


@pytest.mark.parametrize("type", HARD)
def test_an_ignored_row_has_no_loss_and_no_gradient(type):
    x = LOGITS if type.startswith("softmax") else PROBABILITIES
    expected_loss, expected_grad = hard_loss(type, x, labels(0, 1, 1, 2))
    loss, grad = hard_loss(type, x, labels(0, -100, 1, -100))
    assert (loss[[0, 2]] == expected_loss[[0, 2]]).all() and (grad[[0, 2]] == expected_grad[[0, 2]]).all()
    assert not loss[[1, 3]].any() and not grad[[1, 3]].any()
    loss, grad = hard_loss(type, x, labels(7, 7, 7, 7), ignore_index=7)
    assert not loss.any() and not grad.any()


def test_ignoring_a_class_takes_it_out_of_the_loss_and_out_of_the_gradient_of_probabilities():
    for type in HARD[:2]:
        loss, grad = hard_loss(type, PROBABILITIES, labels(0, 1, 2, 2), ignore_index=2)
        assert (loss.ravel() != 0).tolist() == [True, True, False, False]
        assert grad.any(axis=1).tolist() == [True, True, False, False]
    # Of logits, fluid's gradient does not know of it.
    loss, grad = hard_loss(HARD[2], LOGITS, labels(0, 1, 2, 2), ignore_index=2)
    assert (loss.ravel() != 0).tolist() == [True, True, False, False]
    assert np.array_equal(grad, hard_loss(HARD[2], LOGITS, labels(0, 1, 2, 2))[1])


@pytest.mark.parametrize("type", HARD)
@pytest.mark.parametrize("wrong", [3, -1, 2**40, -100])
def test_a_label_that_is_no_class_is_named_with_its_row(type, wrong):
    slot = "Logits" if type.startswith("softmax") else "X"
    inputs = {slot: PROBABILITIES, "Label": labels(0, 5, wrong, 1)}
    with pytest.raises(ExecutionError, match=rf"{type}: Label is {wrong} in row 2, but there are 3 classes") as error:
        run(type, inputs, ignore_index=5)
    assert "one_op.py" in str(error.value) and "ignore_index=5" in str(error.value)


def test_the_row_of_a_wrong_label_is_an_index_where_there_are_several_dimensions():
    x = np.full((2, 2, 3), 1 / 3, "float32")
    label = np.array([[[0], [1]], [[2], [9]]])
    with pytest.raises(ExecutionError, match=r"Label is 9 in row \[1, 1\]"):
        run("cross_entropy2", {"X": x, "Label": label})
    with pytest.raises(ExecutionError, match="Label is 9 in row 0"):
        run("cross_entropy", {"X": x[:1, 0], "Label": label[1, 1:]})


def test_a_gradient_alone_checks_its_labels():
    kernel = find_kernel("cross_entropy_grad", "cpu").function
    with pytest.raises(ExecutionError, match="Label is -2 in row 1"):
        kernel(np, PROBABILITIES, labels(0, -2, 1, 1), np.ones((4, 1), "float32"), soft_label=False, ignore_index=-100)


def test_labels_of_probabilities_may_leave_out_the_dimension_of_the_classes():
    label = labels(0, 1, 1, 2)
    for type in HARD[:2]:
        loss, grad = hard_loss(type, PROBABILITIES, label)
        flat_loss, flat_grad = hard_loss(type, PROBABILITIES, label.ravel())
        assert flat_loss.shape == (4,) and np.array_equal(flat_loss, loss.ravel())
        assert np.array_equal(flat_grad, grad)


def test_the_dimension_of_the_classes_may_be_any():
    x = np.random.default_rng(2).standard_normal((2, 5, 3)).astype("float32")
    label = np.array([[[0, 4, 1]], [[2, 2, 3]]])
    inputs = {"Logits": x, "Label": label}
    moved = {"Logits": np.moveaxis(x, 1, 2), "Label": np.moveaxis(label, 1, 2)}
    for found, expected in zip(run(HARD[2], inputs, axis=1), run(HARD[2], moved), strict=True):
        assert np.allclose(found, np.moveaxis(expected, 2, 1), atol=1e-7)
    found = gradient(HARD[2], inputs, "Logits", "Loss", axis=-2)
    assert np.allclose(found, np.moveaxis(gradient(HARD[2], moved, "Logits", "Loss"), 2, 1), atol=1e-7)


def test_the_gradient_keeps_its_digits_where_the_prediction_is_nearly_right():
    x = np.array([[16, 0]], "float32")
    d_x = gradient(HARD[2], {"Logits": x, "Label": labels(0)}, "Logits", "Loss", np.full((1, 1), 3, "float32"))
    wrong = 1 / (1 + np.exp(16.0))
    assert d_x[0, 1] == pytest.approx(3 * wrong, rel=1e-6)
    assert d_x[0, 0] == pytest.approx(-3 * wrong, rel=0.5)


@pytest.mark.parametrize(
    ("type", "x", "label", "attrs", "message"),
    [
        ("cross_entropy", PROBABILITIES, labels(0, 1, 1, 2, dtype="float32"), {}, "a hard Label must hold integers"),
        ("cross_entropy", PROBABILITIES, labels(0, 1, 1), {}, "X and Label, apart from dimension 1, must have equal"),
        ("cross_entropy", PROBABILITIES, np.zeros((4, 3), "int64"), {}, r"must have shape \[4, 1\], got \[4, 3\]"),
        ("cross_entropy", PROBABILITIES, PROBABILITIES[:, :1], {"soft_label": True}, "must have equal shapes"),
        ("cross_entropy", PROBABILITIES, PROBABILITIES.astype("float64"), {"soft_label": True}, "one element type"),
        ("cross_entropy", PROBABILITIES[0], labels(1)[0], {}, "at least 2 dimensions"),
        ("cross_entropy2", np.zeros((2, 0), "float32"), labels(0, 0), {}, "at least one class"),
        ("cross_entropy2", np.zeros((2, 3), "int64"), labels(0, 0), {}, "X must be floating point"),
        (HARD[2], LOGITS, labels(0, 1, 1, 2).ravel(), {}, r"must have shape \[4, 1\], got \[4\]"),
        (HARD[2], LOGITS, labels(0, 1, 1, 2), {"axis": 0}, r"must have shape \[1, 3\], got \[4, 1\]"),
        (HARD[2], LOGITS, labels(0, 1, 1, 2), {"axis": 2}, "axis must be in"),
        (HARD[2], LOGITS, labels(0, 1, 2).T, {"axis": 0, "numeric_stable_mode": False}, "last dimension only"),
    ],
)
def test_labels_that_cannot_fit_are_refused_when_the_operator_is_appended(type, x, label, attrs, message):
    with pytest.raises(OpError, match=message):
        append(type, {"Logits" if type == HARD[2] else "X": x, "Label": label}, **attrs)


def test_a_batch_without_rows_has_a_loss_without_rows():
    x, label = np.zeros((0, 3), "float32"), np.zeros((0, 1), "int64")
    for type in HARD:
        loss, grad = hard_loss(type, x, label)
        assert (loss.shape, grad.shape) == ((0, 1), (0, 3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 5), (4, 4), (64, 10), (10, 64), (3, 1000), (2, 33, 7)])
def test_the_bits_of_a_softmax_depend_neither_on_the_order_of_its_argument_nor_on_where_it_is_written(shape, dtype):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    label = np.zeros((*shape[:-1], 1), "int64")
    losses = {"soft_label": False, "ignore_index": -100}
    for type, inputs, attrs in (
        ("softmax", [], {}), ("log_softmax", [], {}), ("softmax_with_cross_entropy", [label], losses),
    ):  # fmt: skip
        kernel = find_kernel(type, "cpu").function
        found = []
        for order in "CF":
            for out in (None, np.empty(shape, dtype)):
                given = (out, None) if inputs and out is not None else out
                result = kernel(np, np.array(x, order=order), *inputs, axis=-1, out=given, **attrs)
                found.append(result[0] if inputs else result)
        assert len({each.tobytes() for each in found}) == 1, type
