"""TurnTransposes lets a product transpose an operand whose rows then stay rows in memory."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import TurnTransposes

test_training = keeps_trainings(TurnTransposes())

TEXT = """
    block 0
      data q: float32[2, 3, 4, 5]
      data k: float32[2, 6, 3, 5]
      data d: float32[2, 3, 4, 6]
      Out=t: float32[2, 3, 5, 6], XShape=s: float32[0, 2, 6, 3, 5] = transpose2(X=k) {axis=[0, 2, 3, 1]}
      out: float32[2, 3, 4, 6] = matmul(X=q, Y=t) {alpha=0.5}
      X@GRAD=q@GRAD: float32[2, 3, 4, 5], Y@GRAD=t@GRAD: float32[2, 3, 5, 6] = matmul_grad(X=q, Y=t, Out@GRAD=d) HALF
      k@GRAD: float32[2, 6, 3, 5] = transpose2_grad(XShape=s, Out@GRAD=t@GRAD) {axis=[0, 2, 3, 1]}
""".replace("HALF", "{alpha=0.5}")
FETCH = ["out", "q@GRAD", "k@GRAD"]


def test_the_product_transposes():
    assert op_lines(TurnTransposes(), TEXT, FETCH) == [
        "Out=t, XShape=s = transpose2(X=k) {axis=[0, 2, 1, 3]}",
        "out = matmul(X=q, Y=t) {transpose_Y=True, alpha=0.5}",
        "X@GRAD=q@GRAD, Y@GRAD=t@GRAD = matmul_grad(X=q, Y=t, Out@GRAD=d) {transpose_Y=True, alpha=0.5}",
        "k@GRAD = transpose2_grad(XShape=s, Out@GRAD=t@GRAD) {axis=[0, 2, 1, 3]}",
    ]


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        ("", "", "t"),
        ("", "", "t@GRAD"),
        ("      out:", "      y: float32[2, 3, 5, 6] = relu(X=t)\n      out:", "y"),
    ],
)
def test_what_is_read_elsewhere_keeps_its_shape(old, new, more):
    text = TEXT.replace(old, new, 1) if old else TEXT
    assert "transpose_Y" not in "".join(op_lines(TurnTransposes(), text, [*FETCH, more]))


def test_every_value_keeps_its_shape_where_anything_may_be_fetched():
    program = fluid.Program.parse(TEXT)
    assert program.roots is None
    assert TurnTransposes()(program).equals(program)


@pytest.mark.parametrize("axes", [[0, 2, 3, 1], [2, 0, 3, 1], [0, 2, 1, 3], [0, 1, 3, 2]])
@pytest.mark.parametrize("slot", ["x", "y"])
def test_results_are_those_of_the_transposed_product(slot, axes):
    rng, main = np.random.default_rng(0), fluid.Program()
    given = rng.normal(size=(3, 3, 3, 3)).astype("float32")
    other = rng.normal(size=(3, 3, 3, 3)).astype("float32")
    with fluid.program_guard(main), fluid.unique_name.guard():
        a, b = fluid.data("a", given.shape), fluid.data("b", other.shape)
        a.stop_gradient = b.stop_gradient = False
        turned = layers.transpose(a, axes)
        product = layers.matmul(turned, b) if slot == "x" else layers.matmul(b, turned, transpose_y=True)
        fetch = [product, *fluid.gradients(layers.mean(layers.square(product)), [a, b])]
    executor, feed = fluid.Executor(passes=pipeline(TurnTransposes())), {"a": given, "b": other}
    expected = Interpreter().run(main, feed=feed, fetch_list=fetch, scope=fluid.Scope())
    for found, value in zip(executor.run(main, feed=feed, fetch_list=fetch), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            x = fluid.data("x", [3, 3, 3, 3])
            for _ in range(count // 2):
                x = layers.matmul(x, layers.transpose(x, [0, 2, 3, 1]))
        program.roots = (x.name,)
        return program

    assert_linear(TurnTransposes(), make)
