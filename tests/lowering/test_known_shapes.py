"""Operators whose shapes are constant tensors get them as attributes, and the same results."""

import numpy as np
import pytest
from both_executors import data, numbers

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.lowering.known_shapes import name_known_shapes

pytestmark = pytest.mark.usefixtures("new_program")


def vector(*values, dtype="int32"):
    return layers.assign(np.array(values, dtype))


def number(value):
    return layers.fill_constant([1], "int32", value)


FORMS = {
    "reshape by a vector": lambda x: layers.reshape(x, vector(2, -1)),
    "reshape by actual_shape": lambda x: layers.reshape(x, [4, 3], actual_shape=vector(2, 6)),
    "reshape by numbers": lambda x: layers.reshape(x, [number(2), 2, number(3)]),
    "expand by a vector": lambda x: layers.expand(x, vector(2, 3)),
    "expand by numbers": lambda x: layers.expand(x, [2, number(3)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_shapes_are_known_and_results_keep_their_bits(form):
    x = data("x", 4, 3)
    out = layers.tanh(FORMS[form](x))
    fetch, feed = [out, *fluid.gradients([layers.reduce_sum(out)], [x])], {"x": numbers(4, 3)}
    program, executor = fluid.default_main_program(), fluid.Executor()
    plan = executor.plan_for(program, feed, fetch)
    assert all(value.has_known_size for step in plan.steps.steps for value in step.writes)
    assert not any(op.type in ("assign_value", "concat") for op in plan.program.global_block().ops)
    found, expected = (each.run(feed=feed, fetch_list=fetch) for each in (executor, Interpreter()))
    assert [each.tobytes() for each in found] == [np.asarray(each).tobytes() for each in expected]


def test_shapes_that_a_run_computes_stay():
    x, shape = data("x", 4, 3), data("shape", 2, dtype="int32")
    overwritten = vector(2, 6)
    layers.assign(vector(6, 2), overwritten)
    kept = vector(3, 4)
    kept.persistable = True
    for each in (shape, overwritten, kept):
        layers.reshape(x, each)
    program = fluid.default_main_program().clone()
    name_known_shapes(program)
    assert str(program) == str(fluid.default_main_program())
