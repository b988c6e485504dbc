"""FreeAddends: the gradient of a sum reads no addend."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph.passes import FreeAddends

test_training, test_overwriting = keeps_the_bits(FreeAddends())

TEXT = """
    block 0
      data x: float32[2, 3]
      data y: float32[{y}]
      data d: float32[2, 3]
      X@GRAD=a: float32[2, 3], Y@GRAD=b: float32[{y}] = {line}
"""


@pytest.mark.parametrize("op", ["elementwise_add_grad", "elementwise_sub_grad"])
def test_addends_like_the_sum_are_not_read(op):
    text = TEXT.format(y="2, 3", line=f"{op}(X=x, Y=y, Out@GRAD=d)")
    assert op_lines(FreeAddends(), text, ["a", "b"]) == [f"X@GRAD=a, Y@GRAD=b = {op}(X=d, Y=d, Out@GRAD=d)"]


def test_an_addend_that_was_broadcast_stays():
    text = TEXT.format(y="3", line="elementwise_add_grad(X=x, Y=y, Out@GRAD=d)")
    assert op_lines(FreeAddends(), text, ["a", "b"]) == [
        "X@GRAD=a, Y@GRAD=b = elementwise_add_grad(X=d, Y=y, Out@GRAD=d)"
    ]


def test_factors_stay():
    text = TEXT.format(y="2, 3", line="elementwise_mul_grad(X=x, Y=y, Out@GRAD=d)")
    (found,) = op_lines(FreeAddends(), text, ["a", "b"])
    assert found.endswith("elementwise_mul_grad(X=x, Y=y, Out@GRAD=d)")


@pytest.mark.slow
def test_a_product_is_released_once_its_bias_is_added():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        h = fluid.data("x", [64, 16])
        for _ in range(3):
            h = fluid.layers.fc(h, 16, act="tanh")
        fluid.append_backward(fluid.layers.mean(h))
    strategy = fluid.BuildStrategy()
    strategy.free_addends = False
    feed = {"x": np.zeros((64, 16), "float32")}
    gradients = [var.name for var in main.list_vars() if var.name.endswith("_0@GRAD")]
    peaks = [
        fluid.Executor(passes=each).explain(main, feed, gradients).memory.peak
        for each in (strategy.pipeline(), fluid.BuildStrategy().pipeline())
    ]
    assert peaks[0] - peaks[1] >= 2 * 64 * 16 * 4


@pytest.mark.timing
def test_applying_takes_linear_time():
    def sums(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x = h = fluid.data("x", [2])
            x.stop_gradient = False
            for _ in range(count):
                h = fluid.layers.elementwise_add(h, x)
            fluid.gradients([h], [x])
        return main

    assert_linear(FreeAddends(), sums)
