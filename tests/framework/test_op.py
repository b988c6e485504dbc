"""Single operators on a scope; their slots and printed forms are those of Paddle 1.8.5's ``fluid.op.Operator``."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import NotFoundError, WrongTypeError
from minigraph.op import Operator

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
