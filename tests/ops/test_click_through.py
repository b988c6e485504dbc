"""Networks that predict clicks: what counts get for gradients, slots that were never shown, shuffled rows."""

import numpy as np
import pytest
from lengths import run_both, tensor

import minigraph as fluid
from minigraph import layers
from minigraph.contrib.layers import fused_elemwise_activation, partial_concat, partial_sum, shuffle_batch
from minigraph.errors import OpError, WrongTypeError

pytestmark = pytest.mark.usefixtures("new_program")


def run(fetches, **feed):
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetches)


def with_gradient(layer, **feed):
    """The result of a layer of `x` and the gradient of its sum."""
    given = {name: fluid.data(name, [None, *array.shape[1:]]) for name, array in feed.items()}
    given["x"].stop_gradient = False
    out = layer(**given)
    return run([out, *fluid.gradients(layers.reduce_sum(out), [given["x"]])], **feed)


def test_a_slot_that_was_never_shown_gives_zeros_and_gets_no_gradient():
    x = np.array([[0, 5, 1, 2], [1, 5, 0, 0]], "float32")
    out, gradient = with_gradient(lambda x: layers.data_norm(x, slot_dim=2), x=x)
    np.testing.assert_array_equal(out == 0, [[True, True, False, False], [False, False, True, True]])
    np.testing.assert_array_equal(gradient, out != 0)


def test_an_optimizer_keeps_count_of_the_features():
    x = np.array([[1, 2], [3, 6]], "float32")
    given = fluid.data("x", [None, 2])
    out = layers.data_norm(given, param_attr={"batch_size": 4.0, "batch_sum": 2.0, "batch_square": 8.0})
    fluid.optimizer.SGD(1.0).minimize(layers.mean(layers.fc(out, 1)))
    run([out], x=x)
    counts = {n: np.array(fluid.global_scope().find_var(f"dn.{n}").get_tensor()) for n in ("batch_size", "batch_sum")}
    np.testing.assert_array_equal(counts["batch_size"], [2, 2])
    np.testing.assert_array_equal(counts["batch_sum"], [-2, -6])


@pytest.mark.parametrize("use_cvm", [True, False])
def test_columns_of_counts_get_the_counts_of_the_batch(use_cvm):
    x, counts = np.ones((3, 4), "float32"), np.arange(6, dtype="float32").reshape(3, 2)
    _, gradient = with_gradient(lambda x, c: layers.continuous_value_model(x, c, use_cvm), x=x, c=counts)
    np.testing.assert_array_equal(gradient, np.hstack([counts, np.ones((3, 2))]))


def test_each_row_of_a_sequence_gets_the_counts_of_the_sequence():
    x, counts = fluid.data("x", [None, 3], lod_level=1), fluid.data("c", [None, 2])
    x.stop_gradient = False
    out = layers.continuous_value_model(x, counts, False)
    (gradient,) = fluid.gradients(layers.reduce_sum(out), [x])
    feed = {"x": tensor([2, 0, 1], 3), "c": np.arange(6, dtype="float32").reshape(3, 2)}
    found = run_both(out, gradient, feed=feed)
    np.testing.assert_array_equal(np.array(found[1]), [[0, 1, 1], [0, 1, 1], [4, 5, 1]])
    assert found[0].lod() == found[1].lod() == [[0, 2, 2, 3]]


def test_rows_are_shuffled_anew_in_each_run_and_gradients_go_back_to_their_rows():
    x, weights = fluid.data("x", [None, 2]), fluid.data("w", [None, 2])
    x.stop_gradient = False
    out = shuffle_batch(x, seed=3)
    (gradient,) = fluid.gradients(layers.reduce_sum(out * weights), [x])
    feed = {"x": np.arange(40, dtype="float32").reshape(20, 2), "w": np.arange(40, dtype="float32").reshape(20, 2)}
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    first, second = (executor.run(feed=feed, fetch_list=[out, gradient]) for _ in range(2))
    assert not np.array_equal(first[0], second[0]) and not np.array_equal(first[0], feed["x"])
    for shuffled, flowed in (first, second):
        order = (shuffled[:, 0] / 2).astype(int)
        assert sorted(order) == list(range(20))
        np.testing.assert_array_equal(flowed[order], feed["w"])


def test_all_dimensions_but_the_last_count_rows():
    x = np.arange(12).reshape(3, 2, 2)
    (found,) = run([shuffle_batch(fluid.data("x", [None, 2, 2], "int64"))], x=x)
    assert found.shape == x.shape
    assert sorted(map(tuple, found.reshape(6, 2))) == list(map(tuple, x.reshape(6, 2)))


def test_columns_count_from_the_end():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    given = fluid.data("x", [None, 3])
    joined, total = run([partial_concat([given, given], -2, 1), partial_sum([given, given], -2)], x=x)
    np.testing.assert_array_equal(joined, x[:, [1, 1]])
    np.testing.assert_array_equal(total, 2 * x[:, 1:])


def test_all_pairs_of_functions_are_here():
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 3])
    feed = {"x": np.full((1, 3), 0.5, "float32"), "y": np.full((1, 3), -0.25, "float32")}
    unary = {
        "relu": lambda z: z * (z > 0),
        "scale": lambda z: 2 * z,
        "tanh": np.tanh,
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    }
    binary = {"elementwise_add": np.add, "elementwise_mul": np.multiply}
    for inner, f in unary.items():
        for outer, g in binary.items():
            pairs = [[outer, inner], f"{inner},{outer}"]
            found = run([fused_elemwise_activation(x, y, pair, scale=2.0) for pair in pairs], **feed)
            np.testing.assert_allclose(found[0], g(feed["x"], f(feed["y"])), rtol=1e-6)
            np.testing.assert_allclose(found[1], f(g(feed["x"], feed["y"])), rtol=1e-6)


def test_parts_that_make_no_sense_are_refused():
    x, y, images = fluid.data("x", [None, 3]), fluid.data("y", [None, 4]), fluid.data("z", [None, 3, 2])
    for call, message in (
        (lambda: partial_concat([x, x], 2, 5), "5 columns from 2 reach beyond the 3 of X"),
        (lambda: partial_sum([x, x], 3), r"start_index must be in \[-3, 3\), got 3"),
        (lambda: partial_sum([x, y]), "have equal shapes"),
        (lambda: partial_sum([images]), "X must be matrices"),
        (lambda: layers.data_norm(y, slot_dim=3), "slot_dim=3 does not divide"),
        (lambda: layers.data_norm(images), "X must be a matrix"),
        (lambda: layers.continuous_value_model(x, y), "CVM must have 2 columns"),
    ):
        with pytest.raises(OpError, match=message):
            call()
    with pytest.raises(WrongTypeError, match="functor_list must be one of elementwise_add"):
        fused_elemwise_activation(x, x, ["elementwise_sub", "relu"])
    with pytest.raises(WrongTypeError, match="seed must be an integer or a Variable"):
        shuffle_batch(x, "a")


def test_the_sums_of_a_bundle_have_the_names_of_the_original():
    """Recorded from 1.8.5, which names the next variable without a name ``_generated_var_15``."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        p, y = (fluid.data(name, [None, 1]) for name in "py")
        sums = fluid.contrib.layers.ctr_metric_bundle(p, y)
        assert [each.name for each in sums] == [f"_generated_var_{i}" for i in (1, 0, 2, 3, 4, 5)]
        assert fluid.unique_name.generate("_generated_var") == "_generated_var_15"
