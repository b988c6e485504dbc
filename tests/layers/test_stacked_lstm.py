"""Layers of long short-term memories with all weights in one parameter, compared with a loop in NumPy.

The loop, the order of the weights and the gradients agree with `torch.nn.LSTM` to rounding.
"""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import OpError, WrongTypeError

pytestmark = pytest.mark.usefixtures("new_program")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def along(x, h, c, of_input, of_hidden, bias):
    outputs = []
    for now in x:
        i, f, g, o = np.split(now @ of_input.T + h @ of_hidden.T + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs), h, c


def by_loop(x, h, c, flat, hidden, count, directions):
    """The results of `layers.lstm`, from the weights in cuDNN's order."""
    gates, place, matrices = 4 * hidden, 0, []

    def take(*shape):
        nonlocal place
        place += np.prod(shape)
        return flat[place - np.prod(shape) : place].reshape(shape)

    for i in range(count):
        size = x.shape[2] if i == 0 else directions * hidden
        matrices += [(take(gates, size), take(gates, hidden)) for _ in range(directions)]
    biases = [take(gates) + take(gates) for _ in matrices]
    assert place == len(flat)
    ends = []
    for i in range(count):
        sides = []
        for direction in range(directions):
            k = i * directions + direction
            turn = slice(None, None, -1 if direction else 1)
            out, *end = along(x[turn], h[k], c[k], *matrices[k], biases[k])
            sides.append(out[turn])
            ends.append(end)
        x = np.concatenate(sides, axis=2)
    return x, *(np.array(kind) for kind in zip(*ends, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "directions"), [(1, 1), (1, 2), (3, 1), (2, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_computes_what_a_loop_does(count, directions, dtype):
    rng = np.random.default_rng(3)
    steps, batch, size, hidden = 5, 2, 4, 3
    arrays = {
        "x": rng.standard_normal((steps, batch, size)).astype(dtype),
        **{name: rng.standard_normal((count * directions, batch, hidden)).astype(dtype) for name in "hc"},
    }
    given = {name: fluid.data(name, [*array.shape[:1], None, array.shape[2]], dtype) for name, array in arrays.items()}
    fetches = layers.lstm(
        given["x"], given["h"], given["c"], steps, hidden, count, is_bidirec=directions == 2,
        default_initializer=fluid.initializer.Uniform(-1.0, 1.0),
    )  # fmt: skip
    (weight,) = fluid.default_main_program().all_parameters()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    *found, flat = executor.run(feed=arrays, fetch_list=[*fetches, weight])
    expected = by_loop(arrays["x"], arrays["h"], arrays["c"], flat, hidden, count, directions)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=1e-4 if dtype == "float32" else 1e-10, atol=1e-6)


@pytest.mark.slow
def test_it_learns_with_any_number_of_steps():
    x, start = fluid.data("x", [None, None, 4]), fluid.data("start", [1, None, 3])
    out, hidden, _ = layers.lstm(x, start, start, 20, 3, 1)
    loss = layers.mean(layers.square(out - 0.5)) + layers.mean(layers.square(hidden - 0.5))
    fluid.optimizer.Adam(0.05).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    rng = np.random.default_rng(1)
    losses = []
    for steps in (3, 7, 5) * 15:
        feed = {"x": rng.standard_normal((steps, 6, 4)).astype("float32"), "start": np.zeros((1, 6, 3), "float32")}
        losses.append(executor.run(feed=feed, fetch_list=[loss])[0].item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
def test_dropout_is_between_layers_and_not_in_a_test():
    def outputs(count, **more):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
            x, start = fluid.data("x", [4, None, 2]), fluid.data("s", [count, None, 3])
            attrs = {"default_initializer": fluid.initializer.Constant(0.3), **more}
            out, _, _ = layers.lstm(x, start, start, 4, 3, count, **attrs)
            executor = fluid.Executor()
            executor.run(fluid.default_startup_program())
            feed = {"x": np.ones((4, 8, 2), "float32"), "s": np.zeros((count, 8, 3), "float32")}
            return [executor.run(feed=feed, fetch_list=[out])[0] for _ in range(2)]

    rest = outputs(2)[0]
    np.testing.assert_array_equal(outputs(2, dropout_prob=0.5, is_test=True)[0], rest)
    np.testing.assert_array_equal(outputs(1, dropout_prob=0.5)[0], outputs(1)[0])
    dropped, again = outputs(2, dropout_prob=0.5)
    assert not np.array_equal(dropped, rest) and not np.array_equal(dropped, again)
    np.testing.assert_array_equal(*outputs(2, dropout_prob=0.5, seed=7))


def test_arguments_that_make_no_sense_are_refused():
    x, start = fluid.data("x", [5, None, 4]), fluid.data("start", [1, None, 3])
    with pytest.raises(OpError, match="input has 5 steps, more than max_len=4"):
        layers.lstm(x, start, start, 4, 3, 1)
    with pytest.raises(WrongTypeError, match="num_layers must be a positive int, got 0"):
        layers.lstm(x, start, start, 5, 3, 0)
    with pytest.raises(OpError, match=r"input must be \[time, batch, size\]"):
        layers.lstm(fluid.data("y", [None, 4]), start, start, 5, 3, 1)
