"""Weights whose length and direction are learned apart; golden_scripts.py has their numbers on Paddle."""

import numpy as np
import pytest
from both_executors import run as run_both

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir.verifier import verify
from minigraph.passes import EXACT

pytestmark = pytest.mark.usefixtures("new_program", "new_scope")


@pytest.mark.parametrize("dim", [None, 0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_weight_starts_as_it_is_told_and_keeps_its_length_when_its_direction_is_scaled(dim, dtype):
    given = np.random.default_rng(1).uniform(-1, 1, (2, 1, 3)).astype(dtype)
    start = fluid.initializer.NumpyArrayInitializer(given)
    attr = fluid.WeightNormParamAttr(dim=dim, name="w", initializer=start)
    w = layers.create_parameter([2, 1, 3], dtype, attr=attr)
    assert (w.shape, w.dtype.numpy) == ((2, 1, 3), dtype)
    assert fluid.WeightNormParamAttr.params_with_weight_norm[-1] is w
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    verify(fluid.default_startup_program())
    over = tuple(i for i in range(3) if i != dim)
    length = np.sqrt((given**2).sum(over, keepdims=True))
    lengths = np.array(scope.find_var("w_g").get_tensor())
    np.testing.assert_allclose(lengths, length, rtol=1e-6)
    np.testing.assert_allclose(run_both(w, scope=scope, passes=EXACT)[0], given, rtol=1e-6)
    for name, factor in (("w_v", 5.0), ("w_g", 3.0)):
        tensor = scope.find_var(name).get_tensor()
        tensor.set(np.array(tensor) * np.asarray(factor, dtype), fluid.CPUPlace())
    np.testing.assert_allclose(run_both(w, scope=scope, passes=EXACT)[0], given * 3, rtol=1e-6)


def test_both_parameters_have_the_fields_of_the_weight():
    decay = fluid.regularizer.L2Decay(0.5)
    attr = fluid.WeightNormParamAttr(1, "w", learning_rate=0.3, regularizer=decay, trainable=False)
    layers.fc(fluid.data("x", [None, 3]), 2, param_attr=attr, bias_attr=False)
    params = fluid.default_main_program().all_parameters()
    assert [(param.name, param.shape) for param in params] == [("w_g", (1, 2)), ("w_v", (3, 2))]
    for param in params:
        assert param.optimize_attr == {"learning_rate": 0.3}
        assert (param.regularizer, param.trainable, param.do_model_average) == (decay, False, False)


def test_a_weight_is_shared_by_its_name_and_drawn_once():
    x = fluid.data("x", [None, 3])
    results = [layers.fc(x, 3, param_attr=fluid.WeightNormParamAttr(name="w"), bias_attr=False) for _ in range(2)]
    assert len(fluid.default_main_program().all_parameters()) == 2
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    first, second = exe.run(feed={"x": np.eye(3, dtype="float32")}, fetch_list=results)
    np.testing.assert_array_equal(first, second)
    lengths = np.array(fluid.global_scope().find_var("w_g").get_tensor())
    np.testing.assert_allclose(np.sqrt((first.astype("float64") ** 2).sum()), lengths.item(), rtol=1e-6)


def test_without_a_name_the_parameters_are_named_after_the_layer():
    layers.fc(fluid.data("x", [None, 3]), 2, param_attr=fluid.WeightNormParamAttr(), bias_attr=False)
    assert [param.name for param in fluid.default_main_program().all_parameters()] == ["fc_0.w_0_g", "fc_0.w_0_v"]


def test_what_makes_no_sense_is_refused():
    with pytest.raises(WrongTypeError, match="dim must be an int or None, got 'a'"):
        fluid.WeightNormParamAttr("a", "w")
    for dim in (2, -1):
        with pytest.raises(ProgramError, match=r"dim must be None or a dimension of w, \[3, 2\]"):
            layers.create_parameter([3, 2], "float32", attr=fluid.WeightNormParamAttr(dim, "w"))
    with fluid.dygraph.guard(), pytest.raises(ProgramError, match="not in the imperative mode"):
        layers.create_parameter([3, 2], "float32", attr=fluid.WeightNormParamAttr(0))
