"""Layers of the imperative mode that write a program: what they compute there, and their parameters."""

import contextlib

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.dygraph import BatchNorm, Conv2D, Embedding, Layer, LayerList, Linear, ParameterList, Pool2D, Sequential
from minigraph.ir.verifier import verify

pytestmark = pytest.mark.usefixtures("new_program")

IMAGES = np.random.default_rng(0).uniform(-1, 1, (4, 1, 4, 4)).astype("float32")
LABELS = np.array([[0], [1], [2], [1]])


class Network(Layer):
    def __init__(self):
        super().__init__()
        self.images = Sequential(Conv2D(1, 2, 3, padding=1, act="relu"), BatchNorm(2), Pool2D(2, "max", 2))
        self.dense = LayerList([Linear(8, 8, act="tanh") for _ in range(2)])
        self.last = ParameterList([self.create_parameter([8, 3])])
        self.scale = self.add_parameter("scale", self.create_parameter([3], is_bias=True))

    def forward(self, x):
        h = layers.reshape(self.images(x), [-1, 8])
        for layer in self.dense:
            h = layer(h)
        return layers.matmul(h, self.last[0]) * layers.exp(self.scale)


class Cell(Layer):
    """Makes variables and operators by itself, as networks of fluid's users do, and a parameter when it is called."""

    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([3, 3], fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5)))

    def forward(self, x):
        out = self.create_variable()
        self._helper.append_op("mul", {"X": x, "Y": self.weight}, {"Out": out})
        start = self.create_parameter([3], fluid.ParamAttr(initializer=fluid.initializer.Constant(2.0)))
        return self._helper.append_activation(out + start, act="relu")


def loss_of(scores, label):
    return layers.mean(layers.softmax_with_cross_entropy(scores, label))


def optimizer(**arguments):
    return fluid.optimizer.Adam(0.05, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5), **arguments)


def values_of(network):
    return [np.array(fluid.global_scope().find_var(param.name).get_tensor()) for param in network.parameters()]


# A layer that was made in the imperative mode brings its values into the program.
@pytest.mark.slow
@pytest.mark.parametrize("origin", [contextlib.nullcontext, fluid.dygraph.guard])
def test_a_network_trains_in_a_program_as_in_the_imperative_mode(origin):
    with fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x, y = fluid.data("x", [-1, 1, 4, 4]), fluid.data("y", [-1, 1], "int64")
        with origin():
            network = Network()
        loss = loss_of(network(x), y)
        again = loss_of(network(x), y)  # the parameters are shared
        optimizer().minimize(loss)
        verify(fluid.default_main_program())
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        started = values_of(network)
        names = [param.name for param in network.parameters()]
        feed = {"x": IMAGES, "y": LABELS}
        found = [executor.run(feed=feed, fetch_list=[loss, again]) for _ in range(3)]
        trained = values_of(network)
    with fluid.dygraph.guard(), fluid.unique_name.guard():
        twin = Network()
        assert [param.name for param in twin.parameters()] == names
        assert [name for name, _ in twin.named_parameters()] == [name for name, _ in network.named_parameters()]
        for param, value in zip(twin.parameters(), started, strict=True):
            param.set_value(value)
        steps = optimizer(parameter_list=twin.parameters())
        x, y = fluid.dygraph.to_variable(IMAGES), fluid.dygraph.to_variable(LABELS)
        for losses in found:
            expected = loss_of(twin(x), y)
            twin(x)  # moves the statistics of the batches once more, as the program does
            np.testing.assert_allclose(losses, [expected.numpy()] * 2, rtol=1e-5)
            expected.backward()
            steps.minimize(expected)
            twin.clear_gradients()
        for param, value in zip(twin.parameters(), trained, strict=True):
            np.testing.assert_allclose(value, param.numpy(), rtol=1e-4, atol=1e-6, err_msg=param.name)


def test_the_program_is_that_of_the_original():
    with fluid.unique_name.guard():
        x = fluid.data("x", [-1, 3])
        layer = Linear(3, 4, act="relu")
        out = layer(x)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    # Recorded from 1.8.5.
    assert out.name == "linear_0.tmp_2" and list(layer.state_dict()) == ["weight", "bias"]
    assert [op.type for op in main.global_block().ops] == ["matmul", "elementwise_add", "relu"]
    assert sorted(op.type for op in startup.global_block().ops) == ["fill_constant", "uniform_random"]
    assert [param.name for param in main.all_parameters()] == ["linear_0.w_0", "linear_0.b_0"]


def test_a_layer_of_a_user_may_make_variables_and_parameters_when_called():
    out = Cell()(fluid.data("x", [-1, 3]))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    (found,) = executor.run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[out])
    assert found.tolist() == [[3.5] * 3] * 2


def test_sparse_tables_stay_sparse_in_a_program():
    table = Embedding([10, 4], is_sparse=True)
    ((_, grad),) = fluid.append_backward(layers.mean(table(fluid.data("x", [-1], "int64"))))
    assert grad.type is fluid.core.VarDesc.VarType.SELECTED_ROWS
