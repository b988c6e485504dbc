"""SplitProducts multiplies with joined weights one by one, and keeps results up to rounding."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import MatmulToMul, SplitProducts

test_training = keeps_trainings(SplitProducts())

TEXT = """
    block 0
      data x: float32[2, 4, 3]
      param a: float32[3, 5]
      param b: float32[3, 2]
      data d: float32[2, 4, 5]
      data e: float32[2, 4, 2]
      w: float32[3, 7] = concat(X=[a, b]) {axis=1}
      p: float32[2, 4, 7] = mul(X=x, Y=w) DIMS
      [q: float32[2, 4, 5], r: float32[2, 4, 2]] = split(X=p) {sections=[5, 2], axis=2}
      p@GRAD: float32[2, 4, 7] = concat(X=[d, e]) {axis=2}
      X@GRAD=x@GRAD: float32[2, 4, 3], Y@GRAD=w@GRAD: float32[3, 7] = mul_grad(X=x, Y=w, Out@GRAD=p@GRAD) DIMS
      [a@GRAD: float32[3, 5], b@GRAD: float32[3, 2]] = concat_grad(X=[a, b], Out@GRAD=w@GRAD) {axis=1}
""".replace("DIMS", "{x_num_col_dims=2}")
FETCH = ["q", "r", "a@GRAD", "b@GRAD", "x@GRAD"]


def test_each_weight_gets_a_product():
    dims = "{x_num_col_dims=2}"
    forward = [f"q = mul(X=x, Y=a) {dims}", f"r = mul(X=x, Y=b) {dims}"]
    assert op_lines(SplitProducts(), TEXT, FETCH) == [
        *forward,
        f"X@GRAD=x@GRAD.part_0, Y@GRAD=a@GRAD = mul_grad(X=x, Y=a, Out@GRAD=d) {dims}",
        f"X@GRAD=x@GRAD.part_1, Y@GRAD=b@GRAD = mul_grad(X=x, Y=b, Out@GRAD=e) {dims}",
        "x@GRAD = sum(X=[x@GRAD.part_0, x@GRAD.part_1])",
    ]
    without = TEXT.replace("X@GRAD=x@GRAD: float32[2, 4, 3], ", "")
    assert op_lines(SplitProducts(), without, FETCH[:-1])[2:] == [
        f"Y@GRAD=a@GRAD = mul_grad(X=x, Y=a, Out@GRAD=d) {dims}",
        f"Y@GRAD=b@GRAD = mul_grad(X=x, Y=b, Out@GRAD=e) {dims}",
    ]
    assert op_lines(SplitProducts(), TEXT[: TEXT.index("      p@GRAD")], FETCH[:2]) == forward


@pytest.mark.parametrize("other", ["w", "p", "p@GRAD", "w@GRAD"])
def test_what_is_read_elsewhere_stays(other):
    assert "concat" in "".join(op_lines(SplitProducts(), TEXT, [*FETCH, other]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sections=[5, 2], axis=2", "sections=[2, 5], axis=2"),
        ("concat_grad(X=[a, b]", "concat_grad(X=[a, f]"),
        ("mul_grad(X=x,", "mul_grad(X=other,"),
        ("      p@GRAD:", "      a = scale(X=a) {scale=2.0}\n      p@GRAD:"),
        ("      [a@GRAD:", "      y: float32[2, 4, 3] = relu(X=x@GRAD)\n      [a@GRAD:"),
    ],
)
def test_other_cuts_and_gradients_stay(old, new):
    assert old in TEXT
    text = TEXT.replace(
        "      data d:", "      data other: float32[2, 4, 3]\n      data f: float32[3, 2]\n      data d:"
    ).replace(old, new)
    if "[2, 5]" in new:
        text = text.replace("q: float32[2, 4, 5], r: float32[2, 4, 2]", "q: float32[2, 4, 2], r: float32[2, 4, 5]")
    fetch = [*FETCH, *(["y"] if "relu" in new else []), *(["a"] if "scale" in new else [])]
    assert "split" in "".join(op_lines(SplitProducts(), text, fetch))


@pytest.mark.parametrize("multiply", [layers.matmul, lambda x, w: layers.mul(x, w, x_num_col_dims=2)])
def test_results_are_those_of_the_joined_product(multiply):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [2, 4, 3])
        x.stop_gradient = False
        weights = [layers.create_parameter([3, size], "float32") for size in (5, 2, 5)]
        parts = layers.split(multiply(x, layers.concat(weights, axis=1)), [5, 2, 5], dim=2)
        loss = layers.mean(layers.tanh(parts[0]) * parts[2]) + layers.mean(layers.square(parts[1]))
        gradients = fluid.gradients(loss, [x, *weights])
    executor, scope = fluid.Executor(passes=pipeline(MatmulToMul(), SplitProducts())), fluid.Scope()
    executor.run(startup, scope=scope)
    feed = {"x": np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")}
    fetch = [loss, *gradients]
    expected = Interpreter().run(main, feed=feed, fetch_list=fetch, scope=scope)
    for found, value in zip(executor.run(main, feed=feed, fetch_list=fetch, scope=scope), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-7)
    types = {step.op.type for step in executor.plans[-1].steps.steps}
    assert not {"concat", "split", "concat_grad"} & types


@pytest.mark.slow
def test_the_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            x = fluid.data("x", [4, 3])
            a, b = fluid.data("a", [3, 3]), fluid.data("b", [3, 2])
            for _ in range(count // 3):
                x, _ = layers.split(layers.mul(x, layers.concat([a, b], axis=1)), [3, 2], dim=1)
        program.roots = (x.name,)
        return program

    assert_linear(SplitProducts(), make)
