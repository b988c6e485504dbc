"""SplitOperands multiplies joined values one by one, and keeps results up to rounding."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import MatmulToMul, SplitOperands, UnrollRecurrent

test_training = keeps_trainings(SplitOperands(least=2))

TEXT = """
    block 0
      data x: float32[4, 2]
      data y: float32[4, 2]
      data h: float32[4, 3]
      param w: float32[5, 6]
      data d: float32[4, 6]
      data e: float32[4, 6]
      c: float32[4, 5] = concat(X=[x, h]) {axis=1}
      p: float32[4, 6] = mul(X=c, Y=w)
      f: float32[4, 5] = concat(X=[y, h]) {axis=1}
      q: float32[4, 6] = mul(X=f, Y=w)
      X@GRAD=f@GRAD: float32[4, 5], Y@GRAD=w@1: float32[5, 6] = mul_grad(X=f, Y=w, Out@GRAD=e)
      [@EMPTY@, h@GRAD: float32[4, 3]] = concat_grad(X=[y, h], Out@GRAD=f@GRAD) {axis=1}
      Y@GRAD=w@0: float32[5, 6] = mul_grad(X=c, Y=w, Out@GRAD=d)
      w@GRAD: float32[5, 6] = sum(X=[w@1, w@0])
"""
FETCH = ["p", "q", "h@GRAD", "w@GRAD"]
FORWARD = [
    "w.rows_0 = slice(Input=w) {axes=[0], starts=[0], ends=[2]}",
    "w.rows_1 = slice(Input=w) {axes=[0], starts=[2], ends=[5]}",
    "p.part_0 = mul(X=x, Y=w.rows_0)",
    "p.part_1 = mul(X=h, Y=w.rows_1)",
    "p = sum(X=[p.part_0, p.part_1])",
    "q.part_0 = mul(X=y, Y=w.rows_0)",
    "q.part_1 = mul(X=h, Y=w.rows_1)",
    "q = sum(X=[q.part_0, q.part_1])",
]


def lines(text, fetch=FETCH, least=2):
    with fluid.unique_name.guard():
        return op_lines(SplitOperands(least=least), text, fetch)


def test_each_value_gets_its_rows():
    assert lines(TEXT) == [
        *FORWARD,
        "X@GRAD=@EMPTY@, Y@GRAD=w@1_0 = mul_grad(X=y, Y=w.rows_0, Out@GRAD=e)",
        "X@GRAD=f@GRAD_1, Y@GRAD=w@1_1 = mul_grad(X=h, Y=w.rows_1, Out@GRAD=e)",
        "h@GRAD = assign(X=f@GRAD_1)",
        "Y@GRAD=w@0_0 = mul_grad(X=x, Y=w.rows_0, Out@GRAD=d)",
        "Y@GRAD=w@0_1 = mul_grad(X=h, Y=w.rows_1, Out@GRAD=d)",
        "w@1_0.part_0 = sum(X=[w@1_0, w@0_0])",
        "w@1_1.part_0 = sum(X=[w@1_1, w@0_1])",
        "w@GRAD = concat(X=[w@1_0.part_0, w@1_1.part_0])",
    ]
    assert lines(TEXT[: TEXT.index("      X@GRAD=f")], FETCH[:2]) == FORWARD


def test_too_few_products_stay():
    before = lines(TEXT, least=5)
    assert "concat" in before[0]
    assert lines(TEXT, least=3) == before
    assert op_lines(SplitOperands(most_elements=19, least=2), TEXT, FETCH) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f: float32[4, 5] = concat(X=[y, h]) {axis=1}", "f: float32[4, 5] = scale(X=c)"),
        ("concat(X=[y, h]) {axis=1}\n      q", "concat(X=[h, y]) {axis=1}\n      q"),
        ("      q:", "      h = scale(X=h)\n      q:"),
        ("      q:", "      w = scale(X=w)\n      q:"),
    ],
)
def test_products_that_do_not_agree_stay(old, new):
    text = TEXT[: TEXT.index("      X@GRAD=f")]
    assert old in text
    assert "slice" not in "".join(lines(text.replace(old, new), FETCH[:2]))


@pytest.mark.parametrize("other", ["c", "f@GRAD", "w@0"])
def test_a_joined_value_that_is_read_elsewhere_is_there(other):
    found = lines(TEXT, [*FETCH, other])
    assert found[: len(FORWARD)] == FORWARD or other == "c"
    assert [each for each in found if each.startswith(f"{other} = concat")]


def network(cell, weights, static=False, trains_input=False, dtype="float64"):
    """A loss over eight steps of a cell ``cell(x, h, *weights)``, and what to fetch."""
    x = fluid.data("x", [8, 3, 2], dtype)
    x.stop_gradient = not trains_input
    h = fluid.data("h", [3, 4], dtype)
    made = [layers.create_parameter(list(shape), dtype) for shape in weights]
    if static:
        rnn = layers.StaticRNN()
        with rnn.step():
            entry, state = rnn.step_input(x), rnn.memory(h)
            new = cell(entry, state, *made)
            rnn.update_memory(state, new)
            rnn.step_output(new)
        last = rnn()[7]
    else:
        last = h
        for entry in layers.unstack(x):
            last = cell(entry, last, *made)
    loss = layers.mean(layers.square(last))
    return [loss, *fluid.gradients(loss, [*made, x] if trains_input else made)]


def simple(x, h, w):
    return layers.tanh(layers.matmul(layers.concat([x, h], 1), w))


def state_first(x, h, w):
    return layers.tanh(layers.mul(layers.concat([h, x, h], -1), w))


def gated(x, h, w, u, v):
    """A gated recurrent unit: two matrices for one joined value."""
    both = layers.concat([x, h], 1)
    z, r = layers.sigmoid(layers.matmul(both, w)), layers.sigmoid(layers.matmul(both, u))
    return z * h + (1.0 - z) * layers.tanh(layers.matmul(layers.concat([x, r * h], 1), v))


CELLS = {
    "simple": (simple, [(6, 4)]), "state first": (state_first, [(10, 4)]), "gated": (gated, [(6, 4)] * 3),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("trains_input", [False, True])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_networks_give_what_joined_products_give(cell, static, trains_input):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetch = network(*CELLS[cell], static, trains_input)
    passes = pipeline(UnrollRecurrent(), MatmulToMul(), SplitOperands())
    executor, scope, rng = fluid.Executor(passes=passes), fluid.Scope(), np.random.default_rng(0)
    executor.run(startup, scope=scope)
    feed = {"x": rng.normal(size=(8, 3, 2)), "h": rng.normal(size=(3, 4))}
    expected = Interpreter().run(main, feed=feed, fetch_list=fetch, scope=scope)
    for found, value in zip(executor.run(main, feed=feed, fetch_list=fetch, scope=scope), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-11, atol=1e-15)
    joins = [step for step in executor.plans[-1].steps.steps if step.op.type == "concat"]
    assert len(joins) == len(CELLS[cell][1])  # the gradient of each matrix
    assert "concat_grad" not in {step.op.type for step in executor.plans[-1].steps.steps}


@pytest.mark.slow
def test_the_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            h, w = fluid.data("h", [4, 3]), fluid.data("w", [5, 3])
            for _ in range(count // 3):
                h = layers.tanh(layers.mul(layers.concat([fluid.data("x", [4, 2]), h], axis=1), w))
        program.roots = (h.name,)
        return program

    assert_linear(SplitOperands(), make)
