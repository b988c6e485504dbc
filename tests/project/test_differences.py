"""Differences from Paddle 1.8.5 that concern several operators or none, one test each; docs/differences.md lists them.

What the original gives was recorded by running the same programs with it, and stands in the tests as numbers.
"""

import itertools

import numpy as np
import pytest
from both_executors import data
from one_op import central_difference, gradient, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import EOFException, ExecutionError

# Gradients


def test_a_layer_that_clips_by_norm_passes_a_gradient_on():
    """In the original none flows through `layers.clip_by_norm`, so that parameters after it are not trained."""
    x = np.array([[3.0, 4.0, 0.5]])
    weights = np.array([[1.0, -2.0, 0.3]])
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        var = data("x", 1, 3)
        loss = layers.reduce_sum(layers.clip_by_norm(var, 1.0) * layers.assign(weights))
        (grad,) = fluid.gradients(loss, var)
        (found,) = fluid.Executor().run(feed={"x": x}, fetch_list=[grad])
    slope = central_difference(lambda feed: (feed["x"] / np.linalg.norm(feed["x"]) * weights).sum(), {"x": x}, "x")
    np.testing.assert_allclose(found, slope, rtol=1e-7)


def test_no_gradient_flows_through_integers():
    """In the original it does, cut to integers: here x would have the gradient [12, 16, 1], w the gradient [3] * 3.

    What is constant between integers has the slope 0. A parameter that the loss reaches by way of integers only has no
    gradient, so that it is not updated, and does not decay.
    """
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, w = data("x", 1, 3), layers.create_parameter([1, 3], "float64", "w")
        whole = layers.cast(layers.cast(x * 2.0, "int32"), "float64")
        weights = layers.cast(layers.cast(w, "int64"), "float64")
        loss = layers.reduce_sum(whole * x) + layers.reduce_sum(weights * 3.7)
        _, pairs = fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.1)).minimize(loss)
        assert pairs == []
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        before = np.array(scope.find_var("w").get_tensor())
        (found,) = executor.run(feed={"x": np.array([[3.0, 4.0, 0.5]])}, fetch_list=["x@GRAD"], scope=scope)
        assert found.tolist() == [[6, 8, 1]]
        assert np.array(scope.find_var("w").get_tensor()).tobytes() == before.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "paddings"),
    [((2, 3), [1, 0, 2, 1]), ((2, 1, 2, 2), [0, 0, 1, 1, 1, 0, 0, 2]), ((3,), [1, 2]), ((1, 1), [3, 3, 3, 3])],
)
def test_the_gradient_of_a_padding_is_what_flows_to_the_elements(shape, paddings, dtype):
    """In the original some elements are those of the padding, in float64 where several dimensions are padded."""
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    out = run("pad", {"X": x}, paddings=paddings, pad_value=0.5)
    inside = tuple(slice(low, low + size) for low, size in zip(paddings[::2], shape, strict=True))
    flowing = np.random.default_rng(1).standard_normal(out.shape).astype(dtype)
    found = gradient("pad", {"X": x}, "X", cotangent=flowing, paddings=paddings, pad_value=0.5)
    assert found.tobytes() == flowing[inside].tobytes()
    assert out[inside].tobytes() == x.tobytes()


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (3, 1), (1, 1), (2, 1, 3)])
def test_reductions_over_everything_that_keep_dimensions_have_a_gradient(name, shape):
    """In the original it fails when run; that of `reduce_sum` is right in one element only."""
    x = np.random.default_rng(2).uniform(0.5, 2, shape)
    whole = [None, list(range(len(shape))), [axis - len(shape) for axis in range(len(shape))]]
    for dim in whole:
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            var = data("x", *shape)
            out = layers.square(getattr(layers, name)(var, dim=dim, keep_dim=True))
            (grad,) = fluid.gradients(out, var)
            executor, plain = fluid.Executor(), fluid.default_main_program()
            (found,) = executor.run(feed={"x": x}, fetch_list=[grad])
            assert out.shape == (1,) * len(shape)

            def value(feed, program=plain, fetched=out, executor=executor):
                return executor.run(program, feed=feed, fetch_list=[fetched])[0].item()

            np.testing.assert_allclose(found, central_difference(value, {"x": x}, "x"), rtol=1e-6, atol=1e-8)


# Numbers


def test_smoothed_labels_of_float64_have_all_digits():
    """In the original 0.93333331, from float32; the attribute `epsilon` is a float32 in both."""
    found = run("label_smooth", {"X": np.eye(3)}, epsilon=0.1)
    epsilon = float(np.float32(0.1))
    np.testing.assert_allclose(found, (1 - epsilon) * np.eye(3) + epsilon / 3, rtol=1e-15)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_stays_visible(length, dtype):
    """In the original `sigmoid` makes it 0, `tanh` -1, `exp` infinity, `softmax` equal shares.

    The smaller and the larger of NaN and 1 are 1 there, where the NaN comes first, and NaN otherwise.
    """
    x = np.linspace(-2, 3, length).astype(dtype)
    x[length // 2] = np.nan
    for type in ("sigmoid", "tanh", "exp"):
        assert np.array_equal(np.isnan(run(type, {"X": x})), np.isnan(x)), type
    assert np.isnan(run("softmax", {"X": x[None]})).all()
    one = np.ones_like(x)
    for type, (first, second) in itertools.product(("elementwise_min", "elementwise_max"), [(x, one), (one, x)]):
        assert np.array_equal(np.isnan(run(type, {"X": first, "Y": second})), np.isnan(x)), type


# Schedules and readers


def rates(compiled):
    """The learning rates of three epochs of two batches from a reader that belongs to the program."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 2])
        loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=4, iterable=False)
        loader.set_batch_generator(lambda: iter([[np.ones((2, 2), "float32")]] * 2))
        rate = layers.exponential_decay(1.0, decay_steps=1, decay_rate=0.5)
        fluid.optimizer.SGD(rate).minimize(layers.mean(layers.fc(x, 1)))
        executor, found = fluid.Executor(), []
        executor.run(fluid.default_startup_program())
        program = fluid.default_main_program()
        for _ in range(3):
            loader.start()
            try:
                while True:
                    found.append(
                        executor.run(fluid.CompiledProgram(program) if compiled else program, fetch_list=[rate])[
                            0
                        ].item()
                    )
            except EOFException:
                loader.reset()
    return found


def test_the_end_of_a_reader_is_a_step_of_a_schedule_but_for_a_compiled_program():
    assert rates(compiled=False) == [1, 1 / 2, 1 / 8, 1 / 16, 1 / 64, 1 / 128]
    assert rates(compiled=True) == [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32]


# Names and modes


def test_a_tensor_of_the_imperative_mode_is_no_tensor_with_lengths():
    assert fluid.Tensor is not fluid.LoDTensor
    with fluid.dygraph.guard():
        assert isinstance(fluid.dygraph.to_variable(np.ones(2)), fluid.Tensor)


def test_layers_for_tests_are_for_tests_in_the_imperative_mode_too():
    """The original heeds `is_test` in programs only."""
    x = np.random.default_rng(3).standard_normal((4, 3, 2, 2)).astype("float32")
    with fluid.dygraph.guard():
        norm, drop = fluid.dygraph.BatchNorm(3, is_test=True), fluid.dygraph.Dropout(0.5, is_test=True)
        np.testing.assert_allclose(norm(fluid.dygraph.to_variable(x)).numpy(), x, rtol=1e-4)
        np.testing.assert_allclose(drop(fluid.dygraph.to_variable(x)).numpy(), x * 0.5, rtol=1e-6)


def test_a_transposed_convolution_of_volumes_adds_its_bias():
    """The original leaves it out unless `bias_attr` is given."""
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Conv3DTranspose(1, 2, 1)
        layer.bias.set_value(np.array([1, 2], "float32"))
        found = layer(fluid.dygraph.to_variable(np.zeros((1, 1, 1, 1, 1), "float32")))
    assert found.numpy().ravel().tolist() == [1, 2]


def test_normalization_for_tests_has_a_gradient():
    """The original refuses it when run."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = data("x", 2, 3, dtype="float32")
        (grad,) = fluid.gradients(layers.batch_norm(x, is_test=True), x)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        (found,) = executor.run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[grad])
    np.testing.assert_allclose(found, np.full((2, 3), (1 + 1e-5) ** -0.5), rtol=1e-6)


def test_arrays_that_a_layer_makes_are_constants_of_its_trace():
    """In the original such a program does not run."""

    class Shift(fluid.dygraph.Layer):
        def forward(self, x):
            return x + fluid.dygraph.to_variable(np.array([[1.0, 2.0]], "float32"))

    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.zeros((3, 2), "float32"))
        _, traced = fluid.dygraph.TracedLayer.trace(Shift(), [x])
        (found,) = traced([x])
    assert np.array_equal(found, [[1, 2]] * 3)


def test_a_decay_that_is_called_gives_a_number():
    """In the original it is a tensor."""
    with fluid.dygraph.guard():
        rate = fluid.dygraph.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5)()
    assert isinstance(rate, float)


def test_what_is_needed_for_its_shape_only_may_be_left_out():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        rows = layers.gather(fluid.data("x", [2, 3]), fluid.data("ids", [4], "int64"))
        shape, feed = layers.shape(rows), {"x": np.ones((2, 3), "float32"), "ids": np.array([0, 1, 7, 0])}
        assert fluid.Executor().run(feed=feed, fetch_list=[shape])[0].tolist() == [4, 3]
        for executor, fetched in ((fluid.Executor(), rows), (fluid.Interpreter(), shape)):
            with pytest.raises(ExecutionError, match="Index"):
                executor.run(feed=feed, fetch_list=[fetched])


# Kept as they are


def test_a_prefix_stands_twice_before_temporaries():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard("pre_"):
        out = layers.relu(fluid.data("x", [2]))
    assert out.name == "pre_pre_relu_0.tmp_0"


@pytest.mark.parametrize("label", [np.array([[1]]), np.array([[0.25, 0.75, 0.0]])], ids=["hard", "soft"])
def test_the_loss_of_logits_far_apart_follows_the_formula(label):
    soft = label.dtype.kind == "f"
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = data("x", 1, 3), fluid.data("y", list(label.shape), str(label.dtype))
        loss = layers.softmax_with_cross_entropy(x, y, soft_label=soft)
        feed = {"x": np.array([[200.0, 0.0, 100.0]]), "y": label}
        (found,) = fluid.Executor().run(feed=feed, fetch_list=[loss])
    assert found.item() == (150.0 if soft else 200.0)


def test_the_gradient_of_soft_labels_takes_them_as_they_are():
    logits, label = np.array([[0.5, -1.0, 2.0]]), np.array([[1.0, 0.5, 0.5]])
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = data("x", 1, 3), fluid.data("y", [1, 3], "float64")
        (grad,) = fluid.gradients(layers.softmax_with_cross_entropy(x, y, soft_label=True), x)
        (found,) = fluid.Executor().run(feed={"x": logits, "y": label}, fetch_list=[grad])
    shares = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(found, shares - label, rtol=1e-12)  # the slope is 2 * shares - label


def test_the_largest_of_an_adaptive_window_is_that_of_an_ordinary_window():
    x = np.arange(25.0).reshape(1, 1, 5, 5)
    found = run("pool2d", {"X": x}, pooling_type="max", ksize=[2, 2], strides=[2, 2], paddings=[1, 1], adaptive=True)
    assert np.array_equal(found, run("pool2d", {"X": x}, pooling_type="max", ksize=[2, 2], strides=[2, 2]))


def test_a_parameter_keeps_its_shape_when_it_is_reshaped_in_place():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        weight = fluid.layers.create_parameter(
            [2, 3, 4], "float32", default_initializer=fluid.initializer.Constant(1.0)
        )
        flat = layers.reshape(weight, [2, -1], inplace=True)
        loss = layers.reduce_sum(flat)
        fluid.optimizer.SGD(0.5).minimize(loss)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        for before, after in ((1.0, 0.5), (0.5, 0.0)):
            found, updated = executor.run(fetch_list=[flat, weight], scope=scope)
            np.testing.assert_array_equal(found, np.full((2, 12), before))
            np.testing.assert_array_equal(updated, np.full((2, 3, 4), after))
