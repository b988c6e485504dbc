"""RemoveDeadOps removes what neither fetched nor persistable variables depend on."""

import inspect

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_the_bits

import minigraph as fluid
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import MeanOfAll, RemoveDeadOps, ShareGradients

test_training, test_overwriting = keeps_the_bits()

TEXT = """
    block 0
      persist counter: float32[1]
      data x: float32[2]
      a: float32[2] = tanh(X=x)
      b: float32[2] = relu(X=a)
      c: float32[2] = exp(X=a)
      c = square(X=x)
      counter = increment(X=counter)
      d: float32[2] = uniform_random() {shape=[2]}
"""


def left_of(text, fetch):
    program = fluid.Program.parse(inspect.cleandoc(text))
    program.roots = fetch
    return [op.type for op in RemoveDeadOps()(program).global_block().ops]


def test_what_is_not_needed_is_removed():
    assert left_of(TEXT, ("b",)) == ["tanh", "relu", "increment", "uniform_random"]
    assert left_of(TEXT, ("c",)) == ["square", "increment", "uniform_random"]
    assert left_of(TEXT, ()) == ["increment", "uniform_random"]


def test_nothing_is_removed_where_any_variable_may_be_fetched():
    assert len(left_of(TEXT, None)) == 6


def test_a_persistable_value_that_nothing_reads_before_it_is_replaced_is_removed():
    text = """
        block 0
          persist p: float32[1]
          persist q: float32[1]
          data x: float32[1]
          p = tanh(X=x)
          q = relu(X=x)
          a: float32[1] = exp(X=q)
          p = square(X=a)
          q = increment(X=q)
    """
    assert left_of(text, ()) == ["relu", "exp", "square", "increment"]


def test_a_block_that_may_not_run_replaces_nothing():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [1])
        rate = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
        fluid.layers.assign(x, rate)
        with fluid.layers.Switch() as switch, switch.case(x > 1.0):
            fluid.layers.assign(x * 2.0, rate)
    main.roots = ()
    assert "assign" in [op.type for op in RemoveDeadOps()(main).global_block().ops]


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program):
            x = fluid.data("x", [2, 3])
            for _ in range(count // 2):
                fluid.layers.tanh(x)
                x = fluid.layers.relu(x)
        program.roots = (x.name,)
        return program

    assert_linear(RemoveDeadOps(), make)


LAST_WRITES = {
    RemoveDeadOps: "t = reduce_sum(X=x) {dim=[1], keep_dim=True}",
    MeanOfAll: "t = reduce_mean(X=x) {dim=[1], keep_dim=True}\n  v: float32[1] = mean(X=t)",
    ShareGradients: "w: float32[2, 3] = tanh(X=x)\n  t = tanh(X=x)\n  v: float32[2, 3] = elementwise_add(X=t, Y=w)",
}


@pytest.mark.parametrize("rewrite", LAST_WRITES)
def test_an_earlier_value_that_becomes_the_last_of_its_name_gives_the_type(rewrite):
    beginning = "block 0\n  data x: float32[2, 3]\n  data s: float32[1]\n"
    declared = "[2, 1]" if "keep_dim" in LAST_WRITES[rewrite] else "[2, 3]"
    text = f"{beginning}  t: float32{declared} = relu(X=s)\n  u: float32[1] = exp(X=t)\n  {LAST_WRITES[rewrite]}"
    program = fluid.Program.parse(text)
    program.roots = tuple(name for name in "uv" if f"{name}:" in text)
    # A call verifies what it returns: that each name is declared with the type of its last value.
    rewritten = rewrite()(program)
    assert rewritten.global_block().var("t").shape == (1,)
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3), "s": np.ones(1, "float32")}
    values = (Interpreter().run(each, feed, list(program.roots)) for each in (program, rewritten))
    for one, other in zip(*values, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
