"""FindGradientDescent turns updates that are written out into the operator for them."""

import numpy as np
import pytest
from jit_support import needs_numba
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph import layers
from minigraph.passes import FindGradientDescent

test_training, test_overwriting = keeps_the_bits(FindGradientDescent())

SINGLE = """
    block 0
      persist p: float32[3]
      persist rate: float32[1]
      data g: float32[3]
      c: float32[3] = {product}
      d: float32[3] = {difference}
      {between}
      p = assign(X=d)
      {after}
"""
SCALE, BY_RATE = "scale(X=g) {{scale={}}}", "elementwise_mul(X=g, Y=rate)"
HALF = SCALE.format(0.5)
SUB, ADD, SUM = "elementwise_sub(X=p, Y=c)", "elementwise_add(X={}, Y={})", "sum(X=[{}, {}])"


def types_left(fetch=(), product=HALF, difference=SUB, between="", after=""):
    text = SINGLE.format(product=product, difference=difference, between=between, after=after)
    return [line.split("= ")[1].split("(")[0] for line in op_lines(FindGradientDescent(), text, ["p", *fetch])]


@pytest.mark.parametrize(
    ("product", "difference"),
    [
        (HALF, SUB),
        (SCALE.format(-0.5), ADD.format("p", "c")),
        (SCALE.format(-0.5), ADD.format("c", "p")),
        (SCALE.format(-0.5), SUM.format("p", "c")),
    ],
)
def test_a_descent_is_one_update(product, difference):
    text = SINGLE.format(product=product, difference=difference, between="", after="")
    rate, update = op_lines(FindGradientDescent(), text, ["p"])
    name, made = rate.split(" = ")
    assert made == "fill_constant() {shape=[1], value=0.5}"
    assert update == f"p = sgd(Param=p, LearningRate={name}, Grad=g)"


def test_the_rate_gets_a_name_that_no_variable_has():
    text = SINGLE.format(product=HALF, difference=SUB, between="", after="")
    text = text.replace("persist rate", "persist learning_rate_0")
    with fluid.unique_name.guard():
        assert "learning_rate_1" in op_lines(FindGradientDescent(), text, ["p"])[0]


def test_a_rate_may_be_a_variable():
    text = SINGLE.format(product=BY_RATE, difference=SUB, between="", after="")
    assert op_lines(FindGradientDescent(), text, ["p"]) == ["p = sgd(Param=p, LearningRate=rate, Grad=g)"]


def test_a_sum_may_write_the_variable_itself():
    text = """
        block 0
          persist p: float32[3]
          data g: float32[3]
          c: float32[3] = scale(X=g) {scale=-2.0}
          p = sum(X=[p, c])
    """
    assert op_lines(FindGradientDescent(), text, ["p"])[1].startswith("p = sgd(")


@pytest.mark.parametrize(
    "given",
    [
        {"difference": "elementwise_sub(X=c, Y=p)"},
        {"product": "scale(X=g) {scale=0.5, bias=1.0}"},
        {"product": "scale(X=p) {scale=0.5}"},
        {"product": "tanh(X=g)"},
        {"product": BY_RATE, "difference": ADD.format("p", "c")},
        {"difference": "elementwise_sub(X=c, Y=c)"},
        {"between": "z: float32[3] = tanh(X=d)", "fetch": ["z"]},
        {"after": "z: float32[3] = tanh(X=d)", "fetch": ["z"]},
        {"fetch": ["d"]},
        {"between": "g = tanh(X=g)"},
        {"between": "p = tanh(X=p)"},
        {"product": BY_RATE, "between": "rate = tanh(X=rate)"},
    ],
    ids=str,
)
def test_others_stay(given):
    left = types_left(**given)
    assert "sgd" not in left
    assert "assign" in left


def test_the_product_stays_for_others():
    assert types_left(["c"]) == ["scale", "fill_constant", "sgd"]


def test_another_type_stays():
    text = """
        block 0
          persist p: float16[3]
          data g: float16[3]
          c: float16[3] = scale(X=g) {scale=0.5}
          d: float16[3] = elementwise_sub(X=p, Y=c)
          p = assign(X=d)
    """
    assert len(op_lines(FindGradientDescent(), text, ["p"])) == 3


STEPS = {
    "difference": lambda p, g: layers.assign(p - 0.1 * g, p),
    "sum": lambda p, g: layers.sums([p, layers.scale(g, -0.1)], out=p),
    "add": lambda p, g: layers.assign(g * -0.1 + p, p),
}


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("what", STEPS)
@pytest.mark.usefixtures("new_program")
def test_training_by_hand_is_one_merged_update(what, jit):
    x = fluid.data("x", [8, 4])
    loss = layers.mean(layers.square(layers.fc(layers.fc(x, 5, act="tanh"), 1)))
    for p, g in fluid.backward.append_backward(loss):
        STEPS[what](p, g)
    feed, main = {"x": np.random.default_rng(0).standard_normal((8, 4), np.float32)}, fluid.default_main_program()
    executor, scope = fluid.Executor(jit=jit), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    start = {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}
    executor.run(main, feed, [loss], scope=scope)
    assert {"merged_sgd"} == {step.op.type for step in executor.plans[-1].steps.steps if "sgd" in step.op.type}
    expected = fluid.Scope()
    for name, array in start.items():
        expected.var(name).get_tensor().set(array, fluid.CPUPlace())
    strategy = fluid.BuildStrategy()
    strategy.exact = True
    fluid.Executor().run(fluid.CompiledProgram(main, strategy), feed, [loss], scope=expected)
    for name in start:
        a, b = (np.array(each.find_var(name).get_tensor()) for each in (scope, expected))
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.timing
def test_applying_takes_linear_time():
    def updates(count):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()):
            for i in range(count):
                p = layers.create_global_var([3], 0.0, "float32", persistable=True, name=f"p{i}")
                layers.assign(p - 0.5 * layers.fill_constant([3], "float32", 1.0), p)
        return program

    assert_linear(FindGradientDescent(), updates)
