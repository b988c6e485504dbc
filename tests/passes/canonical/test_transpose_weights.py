"""TransposeWeights multiplies with one transposed copy of a weight, and keeps results up to rounding."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import MatmulToMul, TransposeWeights

test_training = keeps_trainings(TransposeWeights(least=1))

TEXT = """
    block 0
      data x: float32[4, 2]
      data h: float32[4, 2]
      param w: float32[3, 2]
      data d: float32[4, 3]
      p: float32[4, 3] = matmul(X=x, Y=w) {transpose_Y=True}
      q: float32[4, 3] = matmul(X=h, Y=w) {transpose_Y=True}
      X@GRAD=h@GRAD: float32[4, 2], Y@GRAD=w@1: float32[3, 2] = matmul_grad(X=h, Y=w, Out@GRAD=d) {transpose_Y=True}
      Y@GRAD=w@0: float32[3, 2] = matmul_grad(X=x, Y=w, Out@GRAD=p) {transpose_Y=True}
      w@GRAD: float32[3, 2] = sum(X=[w@1, w@0])
"""
FETCH = ["p", "q", "h@GRAD", "w@GRAD"]


def lines(text, fetch=FETCH, least=2, **options):
    with fluid.unique_name.guard():
        return op_lines(TransposeWeights(least=least, **options), text, fetch)


def test_products_read_one_copy():
    assert lines(TEXT) == [
        "Out=w.transposed_0, XShape=w.transposed_2 = transpose2(X=w) {axis=[1, 0]}",
        "w.transposed_1 = assign(X=w.transposed_0)",
        "p = mul(X=x, Y=w.transposed_1)",
        "q = mul(X=h, Y=w.transposed_1)",
        "X@GRAD=h@GRAD, Y@GRAD=w.transposed_3 = mul_grad(X=h, Y=w.transposed_1, Out@GRAD=d)",
        "Y@GRAD=w.transposed_5 = mul_grad(X=x, Y=w.transposed_1, Out@GRAD=p)",
        "w.transposed_7 = sum(X=[w.transposed_3, w.transposed_5])",
        "Out=w@GRAD, XShape=w.transposed_6 = transpose2(X=w.transposed_7) {axis=[1, 0]}",
    ]


@pytest.mark.parametrize(
    ("old", "new", "options"),
    [
        ("", "", {"least": 3}),
        ("", "", {"most_elements": 5}),
        ("(X=h, Y=w) {transpose_Y=True}", "(X=h, Y=w) {transpose_Y=True, alpha=2.0}", {}),
        ("      q:", "      w = scale(X=w)\n      q:", {}),
    ],
)
def test_other_products_stay(old, new, options):
    text = TEXT[: TEXT.index("      X@GRAD")]
    assert old in text
    assert "mul(" not in "".join(lines(text.replace(old, new), FETCH[:2], **options)).replace("matmul(", "")


SUM = """
    block 0
      data a: float32[2, 3]
      data b: float32[2, 3]
      Out=c: float32[3, 2], XShape=s: float32[0, 2, 3] = transpose2(X=a) {axis=[1, 0]}
      Out=e: float32[3, 2], XShape=t: float32[0, 2, 3] = transpose2(X=b) {axis=[1, 0]}
      y: float32[3, 2] = sum(X=[c, e])
"""


def test_values_are_added_before_they_are_transposed():
    assert lines(SUM, ["y"]) == [
        "b.transposed_0 = sum(X=[a, b])", "Out=y, XShape=t = transpose2(X=b.transposed_0) {axis=[1, 0]}",
    ]  # fmt: skip
    with_grad = SUM + "      g: float32[2, 3] = transpose2_grad(XShape=s, Out@GRAD=y) {axis=[1, 0]}\n"
    for text, fetch in ((SUM, ["y", "c"]), (with_grad, ["y", "g"])):
        assert lines(text, fetch)[0].endswith("= transpose2(X=a) {axis=[1, 0]}")
    assert lines(SUM.replace("      y:", "      a = scale(X=a)\n      y:"), ["y"])[-1] == "y = sum(X=[c, e])"


@pytest.mark.parametrize("how", ["attribute", "operator"])
def test_networks_give_what_single_products_give(how):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        w, u = (layers.create_parameter([4, size], "float64") for size in (2, 4))
        h = fluid.data("h", [3, 4], "float64")
        multiply = (
            (lambda x, w: layers.matmul(x, w, transpose_y=True))
            if how == "attribute"
            else (lambda x, w: layers.matmul(x, layers.transpose(w, [1, 0])))
        )
        for x in layers.unstack(fluid.data("x", [6, 3, 2], "float64")):
            h = layers.tanh(multiply(x, w) + multiply(h, u))
        loss = layers.mean(layers.square(h))
        fetch = [loss, *fluid.gradients(loss, [w, u])]
    executor, scope, rng = fluid.Executor(passes=pipeline(MatmulToMul(), TransposeWeights())), fluid.Scope(), np.random
    executor.run(startup, scope=scope)
    feed = {"x": rng.RandomState(0).normal(size=(6, 3, 2)), "h": rng.RandomState(1).normal(size=(3, 4))}
    expected = Interpreter().run(main, feed=feed, fetch_list=fetch, scope=scope)
    for found, value in zip(executor.run(main, feed=feed, fetch_list=fetch, scope=scope), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-11, atol=1e-15)
    types = [step.op.type for step in executor.plans[-1].steps.steps]
    assert "matmul" not in types and types.count("mul") == 12


@pytest.mark.slow
def test_the_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            h, w = fluid.data("h", [4, 3]), fluid.data("w", [3, 3])
            for _ in range(count // 2):
                h = layers.tanh(layers.matmul(h, w, transpose_y=True))
        program.roots = (h.name,)
        return program

    assert_linear(TransposeWeights(), make)
