"""`LayerHelper` in fluid's words; golden_scripts.py has a layer that is written with it."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import MinigraphError, WrongTypeError
from minigraph.layer_helper import LayerHelper, LayerHelperBase

pytestmark = pytest.mark.usefixtures("new_program", "new_scope")


@pytest.mark.slow
def test_variables_of_a_helper_are_named_after_its_layer():
    helper = LayerHelper("mine", name=None)
    assert helper.kwargs["name"] == helper.name == "mine_0"
    assert helper.create_variable_for_type_inference("float32").name == "mine_0.tmp_0"
    assert helper.create_global_variable(shape=[2], dtype="int64").name == "mine_0.tmp_1"
    assert helper.create_variable(name="v", shape=[1], dtype="float32").name == "v"
    made, is_new = helper.create_or_get_global_variable("g", shape=[1], dtype="float32", persistable=True)
    assert is_new
    assert helper.create_or_get_global_variable("g") == (made, False)
    helper.set_variable_initializer(made, fluid.initializer.Constant(3.0))
    fluid.Executor().run(helper.startup_program)
    assert np.array(fluid.global_scope().find_var("g").get_tensor()) == 3
    assert helper.main_program is fluid.default_main_program()


def test_a_helper_reads_the_arguments_of_its_layer():
    x, y, z = fluid.data("x", [2]), fluid.data("y", [2]), fluid.data("z", [2], "int64")
    helper = LayerHelper("mine", input=x, others=[x, y], mixed=[x, z], param_attr="w", bias_attr=False)
    assert helper.input() is x
    assert [var.name for var in helper.multiple_input("others")] == ["x", "y"]
    assert (helper.input_dtype("others"), helper.param_attr.name, helper.bias_attr) == (x.dtype, "w", None)
    assert [(var.name, attr.name) for var, attr in helper.iter_inputs_and_params("others")] == [("x", "w"), ("y", "w")]
    assert helper.append_bias_op(x) is x
    assert helper.append_activation(x) is x
    assert [attr.name for attr in helper.multiple_param_attr(2)] == ["w", "w"]
    assert helper.is_instance("bias_attr", bool) is None
    assert helper.to_variable(x) is x
    weight = helper.create_parameter(helper.param_attr, [2, 3], "float32")
    assert helper.get_parameter("w") is weight
    for refused, message in [
        (lambda: helper.input("others"), "mine takes one others, got 2"),
        (lambda: helper.input_dtype("mixed"), "mixed must have one dtype, got float32, int64"),
        (lambda: helper.is_instance("param_attr", int), "mine: param_attr must be a int, got 'w'"),
        (lambda: helper.to_variable(np.ones(2)), "must be a Variable"),
        (lambda: helper.get_parameter("x"), "is not a parameter"),
        (lambda: LayerHelper("mine", input=3).input(), "mine: input must be a Variable"),
        (lambda: list(LayerHelper("m", input=[x], param_attr=[None, None]).iter_inputs_and_params()), "2 param_attr"),
    ]:
        with pytest.raises(WrongTypeError, match=message):
            refused()


def test_a_bias_of_a_helper_covers_the_dimensions_that_it_is_told():
    x = fluid.data("x", [None, 3, 4])
    biased = LayerHelper("mine", bias_attr="b").append_bias_op(x, dim_start=1, dim_end=2)
    assert (biased.shape, fluid.default_main_program().global_block().var("b").shape) == ((-1, 3, 4), (3,))


def test_in_the_imperative_mode_a_helper_makes_tensors_of_arrays():
    with fluid.dygraph.guard():
        helper = LayerHelper("mine", input=np.ones(2, "float32"))
        np.testing.assert_array_equal(helper.input().numpy(), [1, 1])
        param = helper.create_parameter(None, [1], "float32", stop_gradient=True)
        assert param.stop_gradient


def test_the_base_of_helpers_takes_the_name_first():
    helper = LayerHelperBase("mine_7", "mine")
    assert (helper.name, helper.layer_type) == ("mine_7", "mine")
    assert helper.create_parameter(None, [1], "float32").name == "mine_7.w_0"


@pytest.mark.parametrize(
    ("first", "second", "update"),
    [
        ({"learning_rate": 0.5}, {}, ["sum", "sgd"]),
        ({}, {"learning_rate": 0.5}, ["sum", "scale", "sgd"]),
        ({"regularizer": fluid.regularizer.L2Decay(0.1)}, {}, ["sum", "sgd"]),
        ({}, {"regularizer": fluid.regularizer.L2Decay(0.1)}, ["sum", "scale", "sum", "sgd"]),
        ({"trainable": False}, {}, ["sum", "sgd"]),
        ({"do_model_average": False}, {"trainable": False}, []),
    ],
)
@pytest.mark.filterwarnings("ignore:minimize updates nothing")
def test_a_shared_parameter_is_trained_as_its_latest_layer_says(first, second, update):
    hidden = fluid.data("x", [None, 4])
    for fields in (first, second):
        hidden = layers.fc(hidden, 4, param_attr=fluid.ParamAttr("w", **fields), bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(hidden))
    types = [op.type for op in fluid.default_main_program().global_block().ops]
    assert [type for type in types if type in ("scale", "sum", "sgd")] == update  # those of Paddle 1.8.5
    (w,) = fluid.default_main_program().all_parameters()
    assert w.do_model_average
    starts = [op.type for op in fluid.default_startup_program().global_block().ops if "w" in op.output_arg_names]
    assert starts == ["uniform_random"]


def test_a_layer_that_fails_leaves_the_attributes_of_what_it_shares():
    x = fluid.data("x", [None, 4])
    w = layers.create_parameter([4, 4], "float32", attr=fluid.ParamAttr("w", learning_rate=0.5))
    with pytest.raises(MinigraphError):
        layers.fc(x, 4, param_attr=fluid.ParamAttr("w", trainable=False), bias_attr=False, act="unknown")
    assert (w.trainable, w.optimize_attr) == (True, {"learning_rate": 0.5})
