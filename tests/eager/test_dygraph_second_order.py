"""Gradients of gradients in the imperative mode: ``grad(..., create_graph=True)``."""

import gc

import numpy as np
import pytest
from one_op import central_difference
from sampled import TWICE_DIFFERENTIABLE, differentiated_twice, each

import minigraph as fluid
from minigraph import layers
from minigraph.dygraph import grad, guard, no_grad, to_variable


@pytest.fixture(autouse=True)
def imperative():
    with guard():
        yield


def source(value):
    tensor = to_variable(np.asarray(value, "float64"))
    tensor.stop_gradient = False
    return tensor


def test_derivatives_of_any_order():
    x = source([1.0, -2.0])
    y = x * x * x
    for expected in ([3.0, 12.0], [6.0, -12.0], [6.0, 6.0]):
        (y,) = grad(y, x, create_graph=True)
        assert y.numpy().tolist() == expected
    assert x.grad is None


def test_without_create_graph_a_gradient_is_a_constant():
    x = source([1.0, -2.0])
    (slope,) = grad(x * x, x)
    assert slope.stop_gradient
    assert grad(slope * x, x)[0].numpy().tolist() == slope.numpy().tolist()
    y = x * x
    with no_grad():
        (slope,) = grad(y, x, create_graph=True)
    assert slope.stop_gradient


def test_the_seed_is_differentiated_too():
    x, seed = source([1.0, -2.0]), source([3.0, 5.0])
    (slope,) = grad(layers.exp(x), x, grad_outputs=seed, create_graph=True)
    found = grad(slope, [x, seed])
    np.testing.assert_allclose(found[0].numpy(), [3.0, 5.0] * np.exp(x.numpy()))
    np.testing.assert_allclose(found[1].numpy(), np.exp(x.numpy()))


def test_no_grad_vars_are_constants():
    x = source([2.0])
    y = x * x
    z = y * x
    assert grad(z, x)[0].numpy() == [12.0]
    assert grad(z, x, no_grad_vars=y)[0].numpy() == [4.0]
    (slope,) = grad(z, x, no_grad_vars=[y], create_graph=True)
    assert grad(slope, x)[0].numpy() == [4.0]


@pytest.mark.slow
def test_what_is_gone_or_has_another_value_by_now_counts_as_it_was():
    x, w = source([2.0]), source([3.0])
    y = layers.exp(x * w)  # the product is gone
    w.set_value(np.array([7.0]))
    gc.collect()
    (slope,) = grad(y, x, create_graph=True)
    e = np.exp(6.0)
    np.testing.assert_allclose(slope.numpy(), 3 * e)
    np.testing.assert_allclose(grad(slope, x)[0].numpy(), 9 * e)
    np.testing.assert_allclose(grad(slope, w)[0].numpy(), e + 6 * e)


def test_several_outputs_and_what_they_do_not_depend_on():
    x, unused = source([1.0, 2.0]), source([1.0])
    y = x * x
    found = grad([y, y * y], [x, unused], create_graph=True, allow_unused=True)
    assert found[1] is None
    np.testing.assert_allclose(found[0].numpy(), 2 * x.numpy() + 4 * x.numpy() ** 3)
    np.testing.assert_allclose(grad(found[0], x)[0].numpy(), 2 + 12 * x.numpy() ** 2)


PARAMETERS = {"filter": (3, 2, 3, 3), "scale": (3,), "shift": (3,), "weight": (12, 4)}


def penalty(arrays, with_gradients=False):
    """The squared length of the gradient of losses with respect to the image; and its gradients by `PARAMETERS`."""
    tensors = {name: source(array) for name, array in arrays.items() if name != "label"}
    block = tensors["filter"].block
    h = block.emit("conv2d", Input=tensors["image"], Filter=tensors["filter"], paddings=[1, 1])
    h = block.emit("layer_norm", X=h, begin_norm_axis=2)
    h = layers.tanh(h * layers.reshape(tensors["scale"], [1, 3, 1, 1]) + layers.reshape(tensors["shift"], [1, 3, 1, 1]))
    h = block.emit("pool2d", X=h, pooling_type="max", ksize=[2, 2], strides=[2, 2])
    logits = layers.mul(layers.reshape(h, [2, 12]), tensors["weight"])
    losses = layers.softmax_with_cross_entropy(logits, to_variable(arrays["label"]))
    (slope,) = grad(losses, tensors["image"], create_graph=True)
    total = layers.reduce_sum(layers.square(slope))
    if not with_gradients:
        return total.item()
    total.backward()
    return {name: tensors[name].gradient() for name in PARAMETERS}


@pytest.mark.slow
def test_a_gradient_penalty_has_the_gradients_of_its_central_difference():
    rng = np.random.default_rng(0)
    arrays = {name: 0.5 * rng.standard_normal(shape) for name, shape in PARAMETERS.items()}
    arrays |= {"image": rng.standard_normal((2, 2, 4, 4)), "label": np.array([[1], [3]])}
    found = penalty(arrays, with_gradients=True)
    for name, value in found.items():
        expected = central_difference(penalty, arrays, name, step=1e-5)
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.slow
def test_layers_train_with_a_gradient_penalty():
    rng = np.random.default_rng(1)

    def given(*shape):
        return fluid.initializer.NumpyArrayInitializer(rng.uniform(-0.5, 0.5, shape).astype("float32"))

    critic = fluid.dygraph.Sequential(
        fluid.dygraph.Linear(2, 8, param_attr=given(2, 8), act="tanh"),
        fluid.dygraph.Linear(8, 1, param_attr=given(8, 1)),
    )
    optimizer = fluid.optimizer.Adam(0.05, parameter_list=critic.parameters())
    lengths = []
    for _ in range(60):
        x = to_variable(rng.standard_normal((16, 2)).astype("float32"))
        x.stop_gradient = False
        (slope,) = grad(critic(x), x, create_graph=True)
        length = layers.sqrt(layers.reduce_sum(layers.square(slope), dim=1))
        loss = layers.mean(layers.square(length - 1.0))
        loss.backward()
        optimizer.minimize(loss)
        critic.clear_gradients()
        lengths.append(length.numpy().mean())
    assert abs(lengths[0] - 1) > 0.15 > 0.05 > abs(lengths[-1] - 1)


@each(TWICE_DIFFERENTIABLE)
def test_every_operator_has_the_second_gradients_that_it_has_in_a_program(sample):
    built = differentiated_twice(sample)
    expected = built.results()
    block, op = fluid.default_main_program().global_block(), built.op
    tensors = {name: to_variable(array) for name, array in built.feed.items()}
    for tensor in tensors.values():
        tensor.stop_gradient = not tensor.dtype.is_floating
    assert op.type == sample.op
    outs = {slot: [block.create_var() for _ in names] for slot, names in op.outputs.items()}
    block.append_op(op.type, {slot: [tensors[n] for n in names] for slot, names in op.inputs.items()}, outs, op.attrs)
    by_name = {name: var for slot, names in op.outputs.items() for name, var in zip(names, outs[slot], strict=True)}
    targets = [by_name[target.name] for target in built.targets]
    sources = [tensors[var.name] for var in built.sources]
    seeds = [tensors[var.name] for var in built.cotangents]
    first = grad(targets, sources, grad_outputs=seeds, create_graph=True, allow_unused=True)
    first = [gradient for gradient in first if gradient is not None]
    weights = [tensors[f"weight_{i}"] for i in range(len(first))]
    found = grad(first, [*sources, *seeds], grad_outputs=weights, allow_unused=True)
    for var, value in zip(built.wanted, found, strict=True):
        value = np.zeros(built.feed[var.name].shape) if value is None else value.numpy()
        assert np.allclose(value, expected[var.name], rtol=1e-9, atol=1e-11), var.name
