"""Recurrent networks of several layers: names of parameters, a unit by itself, bad input."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.contrib.layers import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from minigraph.errors import WrongTypeError

pytestmark = pytest.mark.usefixtures("new_program")


def names():
    return {parameter.name for parameter in fluid.default_main_program().all_parameters()}


def test_parameters_are_named_by_direction_and_layer():
    x = fluid.data("x", [None, 4, 3])
    basic_lstm(x, None, None, 2, 2, bidirectional=True, param_attr=fluid.ParamAttr("w"), bias_attr=fluid.ParamAttr("b"))
    ends = [f"{kind}_{i}" for kind in ("fw_w", "bw_w") for i in (0, 1)]
    assert names() == {f"w_{end}" for end in ends} | {f"b_{end.replace('_w_', '_b_')}" for end in ends}


def test_a_unit_is_a_step_of_the_network():
    x, zeros = fluid.data("x", [None, 1, 3]), fluid.data("zeros", [None, 2])
    attr = fluid.ParamAttr("w")
    outputs, _, last = basic_lstm(x, None, None, 2, param_attr=attr)
    hidden, cell = BasicLSTMUnit("unit", 2, fluid.ParamAttr("w_fw_w_0"))(x[:, 0], zeros, zeros)
    outputs_gru, _ = basic_gru(x, None, 2, param_attr=fluid.ParamAttr("g"))
    state = BasicGRUUnit("unit", 2, fluid.ParamAttr("g_fw_w_0"))(x[:, 0], zeros)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 1, 3), "float32"), "zeros": np.zeros((2, 2), "float32")}
    found = executor.run(feed=feed, fetch_list=[outputs, hidden, last, cell, outputs_gru, state])
    for whole, step in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_allclose(whole.reshape(2, 2), step, rtol=1e-6)


@pytest.mark.slow
def test_dropout_leaves_the_states():
    x = fluid.data("x", [None, 3, 2])
    outputs, last = basic_gru(x, None, 2, num_layers=2, dropout_prob=0.999)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    found, states = executor.run(feed={"x": np.ones((2, 3, 2), "float32")}, fetch_list=[outputs, last])
    assert not found.any() and states[0].any()


def test_a_unit_uses_its_activations():
    x, zeros = fluid.data("x", [None, 3]), fluid.data("zeros", [None, 2])
    relu = fluid.layers.relu
    hidden, _ = BasicLSTMUnit("unit", 2, gate_activation=relu, activation=relu, forget_bias=0.0)(x, zeros, zeros)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    weights = [name for name in names() if ".w_" in name]
    feed = {"x": np.ones((1, 3), "float32"), "zeros": np.zeros((1, 2), "float32")}
    found, weight = executor.run(feed=feed, fetch_list=[hidden, *weights])
    i, j, _, o = np.maximum(weight[:3].sum(0), 0).reshape(4, 2)
    np.testing.assert_allclose(found[0], i * j * o, rtol=1e-5)


def test_biases_of_both_directions_have_their_own_attributes():
    attr = fluid.ParamAttr(initializer=fluid.initializer.Constant(3.0))
    basic_lstm(fluid.data("x", [None, 3, 2]), None, None, 2, bidirectional=True, param_attr=attr)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    biases = sorted(name for name in names() if ".b_" in name)
    values = [np.array(fluid.global_scope().find_var(name).get_tensor()) for name in biases]
    assert len(values) == 2 and not any(value.any() for value in values)


def test_a_network_without_layers_is_refused():
    with pytest.raises(WrongTypeError, match="num_layers must be a positive int, got 0"):
        basic_gru(fluid.data("x", [None, 3, 2]), None, 2, 0)


@pytest.mark.parametrize("unit", [BasicGRUUnit, BasicLSTMUnit])
def test_a_unit_is_a_layer_whose_parameters_the_first_step_makes(unit):
    names = {  # those of Paddle 1.8.5
        BasicGRUUnit: {
            "_gate_weight": "w_0",
            "_candidate_weight": "w_1",
            "_gate_bias": "b_0",
            "_candidate_bias": "b_1",
        },
        BasicLSTMUnit: {"_weight": "w_0", "_bias": "b_0"},
    }[unit]
    with fluid.dygraph.guard():
        made = unit("unit", 4)
        assert made.parameters() == []
        state = fluid.dygraph.to_variable(np.zeros((2, 4), "float32"))
        x = fluid.dygraph.to_variable(np.ones((2, 3), "float32"))
        hidden = made(x, state) if unit is BasicGRUUnit else made(x, state, state)[0]
        fluid.layers.mean(hidden).backward()
        assert made.full_name() == f"unit/{unit.__name__}_0"
        assert {name: param.name for name, param in made.named_parameters()} == {
            name: f"{made.full_name()}.{suffix}" for name, suffix in names.items()
        }
        assert set(made.state_dict()) == set(names)
        assert all(param.gradient().any() for param in made.parameters())
