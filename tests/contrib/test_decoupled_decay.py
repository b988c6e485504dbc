"""Weight decay beside the gradient: numbers and operators of Paddle 1.8.5."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.contrib import extend_with_decoupled_weight_decay
from minigraph.errors import ProgramError, WrongTypeError

pytestmark = pytest.mark.usefixtures("new_program")

BY_ALL = [0.15524110198020935, 0.23257845640182495, 0.17251631617546082, 0.11245419830083847, -0.17812278866767883]
BY_WEIGHT = [0.17904436588287354, 0.23060274124145508, 0.16921043395996094, 0.10781822353601456, -0.1494821459054947]


def loss_of():
    weight, bias = fluid.initializer.Constant(0.5), fluid.initializer.Constant(0.25)
    y = layers.fc(fluid.data("x", [None, 3]), 2, param_attr=weight, bias_attr=bias)
    return layers.mean(layers.square(y))


@pytest.mark.parametrize("is_variable", [False, True])
@pytest.mark.parametrize(("decays", "expected"), [(None, BY_ALL), (lambda name: ".w_" in name, BY_WEIGHT)])
def test_weights_decay_before_they_are_updated(is_variable, decays, expected):
    loss = loss_of()
    decay = layers.fill_constant([1], "float32", 0.1) if is_variable else 0.1
    cls = extend_with_decoupled_weight_decay(fluid.optimizer.Momentum)
    cls(weight_decay=decay, apply_decay_param_fun=decays, learning_rate=0.1, momentum=0.9).minimize(loss)
    ops = fluid.default_main_program().global_block().ops
    part, number = "elementwise_mul" if is_variable else "scale", 1 + (decays is None)
    assert [op.type for op in ops if op.attr("op_role") == 2] == (
        [part] * number + ["elementwise_sub", "assign"] * number + ["momentum"] * 2
    )
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.arange(6).reshape(2, 3).astype("float32") / 6}
    for _ in range(3):
        (found,) = executor.run(feed=feed, fetch_list=[loss])
    weight, bias = (np.array(fluid.global_scope().find_var(f"fc_0.{name}_0").get_tensor()) for name in "wb")
    np.testing.assert_allclose([found.item(), *weight[:, 0], bias[0]], expected, rtol=2e-6)


def test_no_decay_appends_nothing():
    loss = loss_of()
    extend_with_decoupled_weight_decay(fluid.optimizer.SGD)(weight_decay=0.0, learning_rate=0.1).minimize(loss)
    assert [op.type for op in fluid.default_main_program().global_block().ops][-2:] == ["sgd", "sgd"]


def test_bad_arguments_are_named():
    with pytest.raises(WrongTypeError, match="a class of optimizers"):
        extend_with_decoupled_weight_decay(fluid.optimizer.SGD(0.1))
    cls = extend_with_decoupled_weight_decay(fluid.optimizer.SGD)
    with pytest.raises(WrongTypeError, match="weight_decay must be a float or a Variable, got 1"):
        cls(weight_decay=1, learning_rate=0.1)
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.ones(2, "float32"))
        with pytest.raises(ProgramError, match="for programs"):
            cls(weight_decay=0.1, learning_rate=0.1, parameter_list=[]).minimize(x)
