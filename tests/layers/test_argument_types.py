"""Numbers of NumPy for numbers of Python; each call here builds and runs in Paddle 1.8.5."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import OpError, WrongTypeError

pytestmark = pytest.mark.usefixtures("new_program")


def vector():
    return layers.data("x", [4])


def series():
    return layers.data("s", [4, 6])


def image():
    return layers.data("image", [4, 8, 8])


@pytest.mark.parametrize(
    "call",
    [
        lambda i, f: layers.adaptive_pool2d(image(), [i(2), i(2)]),
        lambda i, f: layers.conv2d(image(), i(4), np.array([3, 3]) if i is np.int64 else [3, 3], padding=[i(1), i(1)]),
        lambda i, f: layers.unfold(image(), [i(2), i(2)]),
        lambda i, f: layers.slice(vector(), [i(1)], [i(1)], [i(3)]),
        lambda i, f: layers.strided_slice(vector(), [i(1)], [i(0)], [i(4)], [i(2)]),
        lambda i, f: layers.split(vector(), [i(1), i(3)], i(1)),
        lambda i, f: layers.expand(vector(), [i(1), i(2)]),
        lambda i, f: layers.unsqueeze(vector(), [i(1)]),
        lambda i, f: layers.reduce_sum(series(), i(1)),
        lambda i, f: layers.reduce_max(series(), dim=i(-1), keep_dim=True),
        lambda i, f: layers.reverse(vector(), i(1)),
        lambda i, f: layers.lod_reset(vector(), target_lod=np.array([0, 1, 3]) if i is np.int64 else [0, 1, 3]),
        lambda i, f: layers.gaussian_random(np.array([2, 3]) if i is np.int64 else [2, 3], seed=1),
        lambda i, f: layers.fill_constant([i(2), i(3)], "float32", f(2.0)),
        lambda i, f: layers.fill_constant([2], "int64", "3" if i is np.int64 else 3),
        lambda i, f: layers.fill_constant_batch_size_like(vector(), [-1, i(3)], "float32", f(2.0)),
        lambda i, f: layers.scale(vector(), f(2.0), f(1.0)),
        lambda i, f: layers.pow(vector(), f(2.0)),
        lambda i, f: layers.leaky_relu(vector(), alpha=f(0.5)),
        lambda i, f: layers.clip(vector(), f(0.0), f(1.0)),
        lambda i, f: layers.pad(vector(), [0, 0, i(1), 1], f(1.0)),
        lambda i, f: layers.matmul(vector(), vector(), transpose_y=True, alpha=f(0.5)),
        lambda i, f: layers.increment(layers.fill_constant([1], "float32", 1.0), f(2.0)),
        lambda i, f: layers.piecewise_decay(
            *map(np.array, ([1, 2], [1.0, 0.5, 0.25])) if i is np.int64 else ([1, 2], [1.0, 0.5, 0.25])
        ),
        lambda i, f: layers.label_smooth(vector(), epsilon=f(0.5)),
    ],
)
def test_numbers_of_numpy_are_taken_for_pythons(call):
    texts = []
    for integer, number in ((int, float), (np.int64, np.float32), (np.int32, lambda value: np.array([value]))):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            call(integer, number)
            texts.append(str(fluid.default_main_program()))
    assert len(set(texts)) == 1


def test_a_number_of_numpy_is_not_truncated():
    """In Paddle 1.8.5 the decay is 0: an attribute of np.float32 becomes an integer."""
    loss = layers.mean(layers.fc(vector(), 1, bias_attr=False))
    fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(np.float32(0.25))).minimize(loss)
    (decay,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "scale"]
    assert decay.attr("scale") == 0.25


def test_center_loss_takes_a_rate_of_numpy():
    layers.center_loss(vector(), layers.data("ids", [1], dtype="int64"), 5, np.float32(0.5), "centers")
    (rate,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "fill_constant"]
    assert rate.attr("value") == 0.5


def test_data_made_in_a_branch_belongs_to_the_global_block():
    x = vector()
    chosen = layers.cond(layers.reduce_sum(x) > 0.0, lambda: vector() * 2.0, lambda: layers.data("y", [4]) * 3.0)
    block = fluid.default_main_program().global_block()
    assert {"x", "y"} <= block.vars.keys()
    feed = {"x": np.ones((2, 4), "float32"), "y": np.ones((2, 4), "float32")}
    (found,) = fluid.Executor().run(feed=feed, fetch_list=[chosen])
    np.testing.assert_array_equal(found, np.full((2, 4), 2, "float32"))


@pytest.mark.parametrize("dim", [[0, 1], (0, 1), range(2), np.array([0, 1])], ids=lambda dim: type(dim).__name__)
def test_dimensions_to_reduce_may_be_any_sequence(dim):
    """Of these, 1.8.5 takes the list alone, and refuses the others in its C++ code."""
    assert layers.reduce_mean(fluid.data("x", [2, 3, 4]), dim).shape == (4,)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_exponential_of_integers_is_cut_with_a_warning(dtype):
    x = fluid.data("x", [3], dtype)
    with pytest.warns(UserWarning, match=f"exp: x is {dtype}, and so is the result"):
        result = layers.exp(x)
    (found,) = fluid.Executor().run(feed={"x": np.array([1, 2, -3], dtype)}, fetch_list=[result])
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), [2, 7, 0])


def test_a_list_of_one_is_its_variable_where_fluid_takes_it():
    image, volume = fluid.data("image", [1, 1, 2, 2]), fluid.data("volume", [1, 1, 2, 2, 2])
    numbers = fluid.data("numbers", [2], "int64")
    calls = (
        lambda wrap: layers.pool2d(wrap(image), 2),
        lambda wrap: layers.pool3d(wrap(volume), 2),
        lambda wrap: layers.gelu(wrap(image)),
        lambda wrap: fluid.one_hot(wrap(numbers), 3),
    )
    given = np.arange(8.0, dtype="float32")
    feed = {"image": given[:4].reshape(image.shape), "volume": given.reshape(volume.shape), "numbers": np.array([2, 0])}
    for call in calls:
        alone, listed = fluid.Executor().run(feed=feed, fetch_list=[call(lambda x: x), call(lambda x: [x])])
        np.testing.assert_array_equal(alone, listed)
        with pytest.raises(WrongTypeError, match="must be a Variable, got"):
            call(lambda x: [x, x])


def test_any_negative_length_of_a_mask_is_that_of_the_longest():
    lengths = fluid.data("lengths", [2], "int64")
    masks = [layers.sequence_mask(lengths, length) for length in (None, -1, -2)]
    for found in fluid.Executor().run(feed={"lengths": np.array([1, 3])}, fetch_list=masks):
        assert found.tolist() == [[1, 0, 0], [1, 1, 1]]
    with pytest.raises(OpError, match="maxlen must be positive, or -1, got 0"):
        layers.sequence_mask(lengths, 0)
