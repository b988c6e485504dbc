"""Arrays without dimensions, which `squeeze` makes: each operator on elements does with them what it does with one."""

import dataclasses

import numpy as np
import pytest
from sampled import Built

import minigraph as fluid
from minigraph import layers
from minigraph.errors import MinigraphError, OpError
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import EXACT
from minigraph.rewrite.random_programs.rows import SAMPLES


def first_elements(sample, shape):
    """`sample` with one element of each input, in `shape`."""
    inputs = {slot: [a.reshape(-1)[:1].reshape(shape) for a in arrays] for slot, arrays in sample.inputs.items()}
    return dataclasses.replace(sample, inputs=inputs, dtypes=("float32",))


def with_gradient(sample, shape):
    built = Built(first_elements(sample, shape), "float32")
    if sample.wrt and not sample.op.endswith("_grad_grad"):  # a third gradient is made of several operators
        built.differentiate({var.name: None for var in built.targets}, sample.wrt)
    return built


def on_elements():
    """A sample of each operator all of whose results have no dimensions where its inputs have none."""
    for sample in {each.op: each for each in reversed(SAMPLES) if not each.is_random}.values():
        arrays = [array for several in sample.inputs.values() for array in several]
        if arrays and all(array.size and array.shape == arrays[0].shape for array in arrays):
            try:
                outputs = Built(first_elements(sample, ()), "float32").outputs
            except MinigraphError:
                continue  # it needs dimensions
            if all(var.shape == () for var in outputs):
                yield sample


@pytest.mark.parametrize("sample", list(on_elements()), ids=lambda sample: sample.op)
def test_a_number_gives_what_a_vector_of_it_gives(sample):
    vector = with_gradient(sample, (1,))
    expected = vector.run(Interpreter())
    number = with_gradient(sample, ())
    for executor in (Interpreter(), fluid.Executor(passes=EXACT), fluid.Executor(passes=EXACT, check=True)):
        for _ in range(2):
            found = number.run(executor)
            for name, value in expected.items():
                assert (found[name].dtype, found[name].shape) == (value.dtype, ())
                assert found[name].tobytes() == value.tobytes(), name


def test_a_number_is_squeezed_differentiated_and_trained_on():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [1, 1])
        number = layers.squeeze(layers.fc(x, 1, param_attr=fluid.initializer.Constant(2.0)), [])
        loss = layers.mean(layers.tanh(layers.sigmoid(number)))
        pairs = fluid.optimizer.SGD(0.1).minimize(loss)[1]
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        for _ in range(2):
            found = executor.run(feed={"x": np.ones((1, 1), "float32")}, fetch_list=[number, loss, pairs[0][1]])
        assert [each.shape for each in found] == [(), (1,), (1, 1)]


def test_an_imperative_program_computes_with_numbers():
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.full((1, 1), 0.5, "float32"))
        x.stop_gradient = False
        y = layers.tanh(layers.sigmoid(layers.squeeze(x, [])))
        y.backward()
        s = 1 / (1 + np.exp(-0.5))
        np.testing.assert_allclose(y.numpy(), np.tanh(s), rtol=1e-6)
        np.testing.assert_allclose(x.gradient(), [[(1 - np.tanh(s) ** 2) * s * (1 - s)]], rtol=1e-5)


def test_a_product_of_numbers_is_refused():
    with fluid.program_guard(fluid.Program()), pytest.raises(OpError, match=r"X and Y must have dimensions, got \[\]"):
        number = layers.squeeze(fluid.data("x", [1, 1]), [])
        layers.matmul(number, number)
