"""Calls of the imperative mode that were made before: the bits of new ones, keys, bounds, memory, threads."""

import gc
import threading
import weakref

import numpy as np
import pytest

from minigraph import layers
from minigraph.dygraph import GRUUnit, LayerNorm, Linear, guard, no_grad, to_variable
from minigraph.eager import block as eager_block
from minigraph.eager import tape
from minigraph.eager.tensor import Tensor
from minigraph.errors import ProgramError


def array(*shape, seed=0, dtype="float32"):
    return np.random.RandomState(seed).randn(*shape).astype(dtype)


def source(values):
    """A tensor that a gradient flows to."""
    tensor = to_variable(values)
    tensor.stop_gradient = False
    return tensor


class Nothing(dict):
    """A table that keeps nothing."""

    def __setitem__(self, key, value):
        pass


def forget(block):
    """Have every call checked, inferred and prepared anew."""
    block._calls, block._known = Nothing(), Nothing()


# Bits

STEPS = [
    lambda x, y: x + y,
    lambda x, y: x * y - 0.5,
    lambda x, y: 1.0 - x / (y * y + 1.0),
    lambda x, y: layers.tanh(x),
    lambda x, y: layers.relu(y),
    lambda x, y: layers.sigmoid(x * 2.0),
    lambda x, y: layers.softmax(y),
    lambda x, y: layers.matmul(x, y, transpose_y=True)[:, 0:1] * x,
    lambda x, y: layers.concat([x[:, 2:], y[:, :2]], axis=1),
    lambda x, y: layers.reshape(layers.transpose(layers.reshape(x, [4, 2, 3]), [1, 0, 2]), [4, 6]),
    lambda x, y: layers.reduce_sum(x, dim=1, keep_dim=True) * y,
    lambda x, y: layers.split(y, 2, dim=1)[1][:, 0:1] + x,
    lambda x, y: layers.stack([x, y], axis=0)[1],
    lambda x, y: layers.elementwise_add(x, y[0], axis=1),
    lambda x, y: layers.clip(x, -0.5, 0.5) + layers.cast(x > y, "float32"),
]
"""Steps of networks: from two tensors of shape [4, 6] to one that is broadcast to it."""


def trained(seed, forgets):
    """Losses and gradients of three passes of a network of random steps."""
    rng = np.random.RandomState(seed)
    chosen = rng.randint(0, len(STEPS), 12)
    found = []
    with guard():
        x, y = source(array(4, 6, seed=seed)), source(array(4, 6, seed=seed + 1))
        if forgets:
            forget(x.block)
        for _ in range(3):
            values = [x, y]
            for step in chosen:
                values.append(STEPS[step](values[-1], values[-2]))
            loss = layers.mean(values[-1] * values[-2])
            loss.backward()
            found += [loss.numpy(), x.gradient(), y.gradient()]
    return found


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(30))
def test_random_networks_have_the_bits_of_calls_that_are_made_anew(seed):
    for old, new in zip(trained(seed, True), trained(seed, False), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("seed", range(10))
def test_random_networks_have_the_bits_of_kernels(seed, monkeypatch):
    offered = trained(seed, False)
    monkeypatch.setattr(tape, "find_specializer", lambda type: None)
    for new, old in zip(offered, trained(seed, False), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("origin_mode", [False, True])
def test_units_have_the_bits_of_their_kernels(dtype, origin_mode, monkeypatch):
    def run():
        with guard():
            unit = GRUUnit(12, origin_mode=origin_mode, dtype=dtype)
            unit.weight.set_value(array(4, 12, dtype=dtype))
            x, h = source(array(3, 12, seed=1, dtype=dtype)), source(array(3, 4, seed=2, dtype=dtype))
            out = unit(x, h)[0]
            layers.reduce_sum(out).backward()
            return [out.numpy(), *(each.gradient() for each in (x, h, unit.weight, unit.bias))]

    offered = run()
    monkeypatch.setattr(tape, "find_specializer", lambda type: None)
    for new, old in zip(offered, run(), strict=True):
        np.testing.assert_array_equal(new, old)


# Keys


def test_calls_that_differ_in_an_attribute_are_different():
    with guard():
        x = to_variable(array(2, 3))
        for _ in range(2):
            for scale in (2.0, 3.0, -1.0):
                np.testing.assert_array_equal(layers.scale(x, scale).numpy(), x.numpy() * np.float32(scale))
            for axis in ([1, 0], [0, 1]):
                np.testing.assert_array_equal(layers.transpose(x, axis).numpy(), x.numpy().transpose(axis))


def test_equal_numbers_of_different_types_are_different_attributes():
    with guard():
        block = to_variable(array(2)).block
        given = [1, 1.0, True, [1], [1.0], [True]]
        assert len({block._as_given("scale", {}, {}, {"scale": value})[0] for value in given}) == len(given)
        assert block._as_given("scale", {}, {}, {"scale": 1})[0] == block._as_given("scale", {}, {}, {"scale": 1})[0]


def test_calls_that_differ_in_a_dtype_or_a_shape_are_different():
    with guard():
        for _ in range(2):
            for given in (array(2, 3), array(3, 2), array(2, 3, dtype="float64"), np.arange(6).reshape(2, 3)):
                x = to_variable(given)
                result = layers.elementwise_add(x, x)
                assert (result.shape, result.numpy().dtype) == (given.shape, given.dtype)
                np.testing.assert_array_equal(result.numpy(), given + given)


def test_a_call_is_recorded_where_a_gradient_can_flow_whatever_the_same_call_did_before():
    with guard():
        x, y = to_variable(array(3)), source(array(3))
        assert layers.tanh(x).stop_gradient
        assert not layers.tanh(y).stop_gradient
        assert layers.tanh(x).stop_gradient
        with no_grad():
            assert layers.tanh(y).stop_gradient
        layers.reduce_sum(layers.tanh(y)).backward()
        np.testing.assert_allclose(y.gradient(), 1 - np.tanh(y.numpy()) ** 2, rtol=1e-6)


def test_a_tensor_without_a_value_is_refused_after_a_call_like_it():
    with guard():
        x = to_variable(array(3))
        empty = x.block.create_var(shape=[3], dtype="float32")
        layers.tanh(x)
        with pytest.raises(ProgramError, match="has no value yet"):
            layers.tanh(empty)


def test_the_order_of_slots_as_given_does_not_matter():
    with guard():
        x, y = to_variable(array(3)), to_variable(array(3, seed=1))
        for _ in range(2):
            out = x.block.create_var()
            x.block.append_op("elementwise_sub", {"Y": y, "X": x}, {"Out": out}, {"axis": -1})
            np.testing.assert_array_equal(out.numpy(), x.numpy() - y.numpy())


# Arithmetic of the caller


def test_what_numpy_warns_of_is_as_the_caller_has_set_it():
    with guard(), np.errstate(all="raise"):
        x = to_variable(np.float32([1e38]))
        for _ in range(2):
            assert np.isinf((x * x).numpy())
            assert np.isnan((x * x - x * x).numpy())
            with pytest.raises(FloatingPointError):
                np.float32(1e38) * np.float32(1e38)


# Bounds and memory


def test_the_tables_of_calls_are_bounded(monkeypatch):
    monkeypatch.setattr(eager_block, "_KEPT", 8)
    with guard():
        block = to_variable(array(1)).block
        for size in range(1, 40):
            x = to_variable(array(size))
            np.testing.assert_array_equal(layers.relu(x).numpy(), np.maximum(x.numpy(), 0))
            assert len(block._known) <= 8
            assert len(block._calls) <= 8


def test_plans_of_gradients_are_bounded(monkeypatch):
    monkeypatch.setattr(tape, "_KEPT_PLANS", 4)
    with guard():
        for size in range(1, 12):
            x = source(array(size))
            layers.reduce_sum(x * x).backward()
            np.testing.assert_allclose(x.gradient(), 2 * x.numpy(), rtol=1e-6)
        assert len(x.block.gradient_plans._plans) <= 4


def step(network, x):
    loss = layers.mean(network[1](layers.tanh(network[0](x)[:, 1:])))
    loss.backward()
    for layer in network:
        layer.clear_gradients()
    return loss


def tensors_and_steps():
    """How many there are; `isinstance` would ask weak proxies of others for objects that no longer exist."""
    return sum(issubclass(type(each), Tensor | tape.TapeStep) for each in gc.get_objects())


@pytest.mark.slow
def test_calls_that_were_made_before_keep_no_tensor_alive():
    with guard():
        network, x = [Linear(4, 6), LayerNorm(5)], to_variable(array(3, 4))
        loss = step(network, x)
        value, tensor = weakref.ref(loss.array), weakref.ref(loss)
        del loss
        assert tensor() is None
        assert value() is None
        for _ in range(3):
            step(network, x)
        gc.collect()
        before = tensors_and_steps()
        for _ in range(20):
            step(network, x)
        gc.collect()
        assert tensors_and_steps() <= before


# Threads


@pytest.mark.slow
def test_threads_compute_with_tensors_of_one_block():
    xs = [source(array(5, 5, seed=i)) for i in range(4)]
    found, errors = {}, []

    def run(i):
        try:
            for _ in range(40):
                out = layers.tanh(xs[i] * float(i + 1))
                layers.reduce_sum(layers.matmul(out, out)).backward()
                found.setdefault(i, []).append((out.numpy(), xs[i].gradient()))
                xs[i].clear_gradient(set_to_zero=False)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for i, results in found.items():
        np.testing.assert_array_equal(results[0][0], np.tanh(xs[i].numpy() * np.float32(i + 1)))
        for out, grad in results:
            np.testing.assert_array_equal(out, results[0][0])
            np.testing.assert_array_equal(grad, results[0][1])
