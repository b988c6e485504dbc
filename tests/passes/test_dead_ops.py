"""RemoveDeadOps removes what neither fetched nor persistable variables depend on."""

import inspect

import pytest
from pass_laws import assert_linear, keeps_the_bits

import minigraph as fluid
from minigraph.passes import RemoveDeadOps

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
