"""JoinSlices cuts a value once, and joins its gradient once."""

import re

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import JoinSlices

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(JoinSlices())

SLICES = """
    block 0
      data x: float32[2, 6, 3]
      a: float32[2, {na}, 3] = slice(Input=x) {{axes=[1], starts=[{sa}], ends=[{ea}]}}
      b: float32[2, {nb}, 3] = slice(Input=x) {{axes=[1], starts=[{sb}], ends=[{eb}]}}
"""


def joined(text, *fetch):
    return [re.sub(r"_\d+", "", line) for line in op_lines(JoinSlices(), text, fetch)]


def slices(first, second):
    (sa, ea), (sb, eb) = first, second
    return SLICES.format(sa=sa, ea=ea, na=ea - sa, sb=sb, eb=eb, nb=eb - sb)


def test_slices_that_leave_nothing_over_are_one_split():
    assert joined(slices((0, 2), (2, 6)), "a", "b") == ["[a, b] = split(X=x) {sections=[2, 4], axis=1}"]
    assert joined(slices((2, 6), (0, 2)), "a", "b") == ["[b, a] = split(X=x) {sections=[2, 4], axis=1}"]


def test_elements_are_one_unstack():
    text = """
        block 0
          data x: float32[4, 2]
          a: float32[4] = slice(Input=x) {axes=[1], starts=[0], ends=[1], decrease_axis=[1]}
          b: float32[4] = slice(Input=x) {axes=[1], starts=[-1], ends=[2], decrease_axis=[1]}
    """
    assert joined(text, "a", "b") == ["[a, b] = unstack(X=x) {axis=1, num=2}"]


LEFT_ALONE = {
    "something is left over": slices((0, 2), (3, 6)),
    "they overlap": slices((0, 4), (2, 6)),
    "the value is another one": slices((0, 2), (2, 6)).replace("      b:", "      x = relu(X=x)\n      b:"),
    "a name has a value before": slices((0, 2), (2, 6)).replace(
        "      a:", "      b: float32[2, 4, 3] = fill_constant() {shape=[2, 4, 3]}\n      a:"
    ).replace("b: float32[2, 4, 3] = slice", "b = slice"),
    "views": slices((0, 2), (2, 6)).replace("[2, 6, 3]", "[6, 2, 3]").replace("axes=[1]", "axes=[0]")
    .replace("[2, 2, 3]", "[2, 2, 3]").replace("b: float32[2, 4, 3]", "b: float32[4, 2, 3]"),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_slices_stay(what):
    assert sum("slice" in line for line in joined(LEFT_ALONE[what], "a", "b")) == 2


TAKEN = {
    "all": ([(0, 2), (2, 6)], 0),
    "with gaps": ([(1, 3), (4, 5)], 0),
    "backwards": ([(4, 6), (2, 4), (0, 2)], 0),
    "overlapping": ([(0, 4), (2, 6)], 2),
    "little of it": ([(0, 1), (4, 5)], 2),
    "one twice": ([(0, 3), (0, 3), (3, 6)], 3),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("what", TAKEN)
def test_gradients_of_slices_are_joined(what, axis):
    ranges, count = TAKEN[what]
    shape = [2, 3]
    shape.insert(axis, 6)
    x = data("x", *shape)
    parts = [layers.slice(x, [axis], [start], [end]) for start, end in ranges]
    loss = layers.sums([layers.reduce_sum(layers.square(part) * (i + 1.0)) for i, part in enumerate(parts)])
    (grad,) = fluid.gradients([loss], [x])
    check(grad, {"x": numbers(*shape)}, count)


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("taken", [range(4), range(1, 4), range(3), [0, 2], [3, 1, 0]])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_elements_are_joined(taken, axis):
    shape = (4, 3) if axis == 0 else (3, 4)
    x = data("x", *shape)
    parts = [x[t] if axis == 0 else x[:, t] for t in taken]
    loss = layers.sums([layers.reduce_sum(layers.square(part) * (i + 1.0)) for i, part in enumerate(parts)])
    (grad,) = fluid.gradients([loss], [x])
    check(grad, {"x": numbers(*shape)}, 0)


def check(grad, feed, count):
    """The gradient is what the interpreter finds, with so many gradients of slices left."""
    program = fluid.default_main_program().clone()
    program.roots = (grad.name,)
    JoinSlices().apply(program)
    assert len(program.global_block().ops.of_type("slice_grad")) == count
    found, expected = (
        executor.run(feed=feed, fetch_list=[grad])[0]
        for executor in (fluid.Executor(passes=pipeline(JoinSlices())), Interpreter())
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [2, count // 4])
            x.stop_gradient = False
            fluid.gradients(layers.sums([layers.tanh(x[:, t]) for t in range(count // 4)]), [x])
        return main

    assert_linear(JoinSlices(), make)
