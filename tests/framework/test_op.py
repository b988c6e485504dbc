"""Single operators on a scope; their slots and printed forms are those of Paddle 1.8.5's ``fluid.op.Operator``."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import NotFoundError, NotSupportedError, WrongTypeError
from minigraph.kernels import kernel
from minigraph.kernels import registry as kernels
from minigraph.op import Operator
from minigraph.opdef import op
from minigraph.opdef import registry as definitions
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType

CPU = fluid.CPUPlace()


def scope_with(**arrays):
    scope = fluid.Scope()
    for name, array in arrays.items():
        scope.var(name).get_tensor().set(np.array(array, "float32"), CPU)
    return scope


def test_an_operator_computes_what_a_scope_holds():
    scope = scope_with(x=[1.0, 2.0])
    scope.find_var("x").get_tensor().set_lod([[0, 0, 2]])
    operator = Operator("scale", X="x", Out=["y"], scale=2.0)
    operator.run(scope, CPU)
    result = scope.find_var("y").get_tensor()
    assert np.array(result).tolist() == [2, 4] and result.lod() == [[0, 0, 2]]
    assert str(operator) == "Op(scale), inputs:{ScaleTensor[], X[x]}, outputs:{Out[y]}."
    assert (operator.type(), operator.inputs()) == ("scale", {"X": ["x"], "ScaleTensor": []})
    assert (operator.outputs(), operator.input_vars(), operator.output_vars()) == ({"Out": ["y"]}, ["x"], ["y"])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_an_update_writes_where_it_reads(is_sparse):
    scope = scope_with(w=np.ones((3, 2)), lr=[0.5])
    if is_sparse:
        rows = scope.var("g").get_selected_rows()
        rows.set_height(3)
        rows.set_rows([2])
        rows.get_tensor().set(np.ones((1, 2), "float32"), CPU)
    else:
        scope.var("g").get_tensor().set(np.array([[0, 0], [0, 0], [1, 1]], "float32"), CPU)
    Operator(type="sgd", Param="w", Grad="g", LearningRate="lr", ParamOut="w").run(scope, CPU)
    assert np.array(scope.find_var("w").get_tensor()).tolist() == [[1, 1], [1, 1], [0.5, 0.5]]


def test_descriptions_are_those_of_the_operators():
    assert "scale" in Operator.types()
    assert Operator.get_op_input_names("scale") == ["X", "ScaleTensor"]
    assert Operator.get_op_output_names("scale") == ["Out"]
    assert Operator.get_op_attr_names("scale") == ["scale", "bias", "bias_after_scale"]


def test_misuse_is_an_error_before_anything_is_computed():
    with pytest.raises(NotFoundError, match="there is no operator type 'scal'"):
        Operator("scal")
    # 1.8.5 ignores it.
    with pytest.raises(NotFoundError, match="scale has no slot or attribute 'Y'"):
        Operator("scale", Y="x")
    with pytest.raises(WrongTypeError, match="Operator takes a type, then slots and attributes by keyword"):
        Operator("scale", "x")
    with pytest.raises(NotFoundError, match="scale: x is not in the scope"):
        Operator("scale", X="x", Out="y").run(fluid.Scope(), CPU)
    scope = fluid.Scope()
    scope.var("x")
    with pytest.raises(NotFoundError, match="scale: x holds no value yet"):
        Operator("scale", X="x", Out="y").run(scope, CPU)


@pytest.fixture
def tables(monkeypatch):
    """Copies of the tables of operators and kernels, so that no other test finds what a test defines."""
    for module, names in ((definitions, ("_MAKERS", "_DEFINITIONS")), (kernels, ("_KERNELS",))):
        for name in names:
            monkeypatch.setattr(module, name, dict(getattr(module, name)))


def test_an_operator_of_a_library_is_defined_in_python(tables):
    with pytest.raises(NotSupportedError, match=r"load_op_library: 'relu2.so' is compiled against Paddle") as caught:
        fluid.load_op_library("relu2.so")
    assert "minigraph.opdef.op and minigraph.kernels.kernel" in caught.value.hint
    assert fluid.framework.load_op_library is fluid.load_op_library

    @op("relu_twice", inputs="X", outputs="Y", grad=fused("X"))  # annotations of this file are no text
    def relu_twice(x: TensorType, *, factor: float = 1.0, axes: list[int] = [0]) -> TensorType:  # noqa: B006
        """``Y = factor * max(X, 0)``."""
        return x

    kernel("relu_twice")(lambda xp, x, *, factor, axes: factor * xp.maximum(x, 0))
    kernel("relu_twice_grad")(lambda xp, x, d_y, *, factor, axes: d_y * factor * (x > 0))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.layers.data("x", [3])
        helper = fluid.layer_helper.LayerHelper("relu_twice")
        out = helper.create_variable_for_type_inference("float32")
        helper.append_op(type="relu_twice", inputs={"X": x}, outputs={"Y": out}, attrs={"factor": 3.0})
        loss = fluid.layers.mean(fluid.layers.fc(out, 1, param_attr=fluid.initializer.Constant(1.0), bias_attr=False))
        [(_, gradient)] = fluid.backward.append_backward(loss)
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        fetched = exe.run(feed={"x": np.float32([[1, -2, 3]])}, fetch_list=[loss, gradient])
    assert fetched[0].tolist() == [12] and fetched[1].tolist() == [[3], [0], [9]]
