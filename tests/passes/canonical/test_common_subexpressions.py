"""ShareCommonSubexpressions shares what is the same to the bit."""

import pytest
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph.passes import ShareCommonSubexpressions

test_training, test_overwriting = keeps_the_bits(ShareCommonSubexpressions())


def test_what_is_computed_twice_is_computed_once():
    text = """
        block 0
          data x: float32[2]
          a: float32[2] = tanh(X=x)
          b: float32[2] = tanh(X=x)
          c: float32[2] = relu(X=a)
          d: float32[2] = relu(X=b)
          e: float32[2] = elementwise_add(X=c, Y=d)
    """
    assert op_lines(ShareCommonSubexpressions(), text, ["e"]) == [
        "a = tanh(X=x)",
        "c = relu(X=a)",
        "e = elementwise_add(X=c, Y=c)",
    ]


def test_what_is_fetched_keeps_its_name():
    text = """
        block 0
          data x: float32[2]
          a: float32[2] = tanh(X=x)
          b: float32[2] = tanh(X=x)
          c: float32[2] = relu(X=b)
    """
    assert op_lines(ShareCommonSubexpressions(), text, ["b", "c"]) == [
        "a = tanh(X=x)",
        "b = tanh(X=x)",
        "c = relu(X=a)",
    ]


DIFFERENT = {
    "inputs that were written again": "a = tanh(X=x)\nx = relu(X=x)\nb = tanh(X=x)",
    "attributes": "a = clip(X=x) {min=0.0, max=1.0}\nb = clip(X=x) {min=0.0, max=2.0}",
    "the sign of a zero": "a = clip(X=x) {min=0.0, max=1.0}\nb = clip(X=x) {min=-0.0, max=1.0}",
    "random numbers": "a = uniform_random() {shape=[2]}\nb = uniform_random() {shape=[2]}",
    "the order of operands": "a = elementwise_sub(X=x, Y=y)\nb = elementwise_sub(X=y, Y=x)",
    "slots": "a = clip(X=x, Min=y) {max=1.0, min=0.0}\nb = clip(X=x, Max=y) {max=1.0, min=0.0}",
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_operators_that_differ_stay(what):
    size = 1 if what == "slots" else 2
    lines = "\n".join(" " * 10 + line for line in DIFFERENT[what].split("\n"))
    text = f"""
        block 0
          data y: float32[{size}]
          data x: float32[{size}]
          var a: float32[{size}]
          var b: float32[{size}]
{lines}
          c: float32[{size}] = elementwise_add(X=a, Y=b)
    """
    assert op_lines(ShareCommonSubexpressions(), text, ["c"])[-1] == "c = elementwise_add(X=a, Y=b)"


def test_a_result_that_was_overwritten_is_not_read():
    text = """
        block 0
          data x: float32[2]
          a: float32[2] = tanh(X=x)
          a = relu(X=a)
          b: float32[2] = tanh(X=x)
          c: float32[2] = elementwise_add(X=a, Y=b)
    """
    assert op_lines(ShareCommonSubexpressions(), text, ["c"])[-1] == "c = elementwise_add(X=a, Y=b)"


def test_persistable_variables_are_written_each():
    text = """
        block 0
          persist v: float32[2]
          persist w: float32[2]
          data x: float32[2]
          v = tanh(X=x)
          w = tanh(X=x)
          a: float32[2] = elementwise_add(X=v, Y=w)
    """
    assert op_lines(ShareCommonSubexpressions(), text, ["a"])[-1] == "a = elementwise_add(X=v, Y=w)"


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program):
            x = fluid.data("x", [2, 3])
            for _ in range(count // 4):
                x = fluid.layers.tanh(x) + fluid.layers.relu(fluid.layers.tanh(x))
        program.roots = (x.name,)
        return program

    assert_linear(ShareCommonSubexpressions(), make)
