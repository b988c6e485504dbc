"""MergeUpdates puts updates together that nobody can tell apart from one after the other."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph.errors import OpError
from minigraph.passes import MergeUpdates

test_training, test_overwriting = keeps_the_bits(MergeUpdates())

TEXT = """
    block 0
      param v: float32[3]
      param w: float32[2, 2]
      persist rate: float32[1]
      persist slow: float32[1]
      data g: float32[3]
      data h: float32[2, 2]
      v = sgd(Param=v, LearningRate=rate, Grad=g)
      w = sgd(Param=w, LearningRate=rate, Grad=h)
"""


def test_updates_of_one_kind_are_one():
    assert op_lines(MergeUpdates(), TEXT, ["v"]) == [
        "[v, w] = merged_sgd(Param=[v, w], LearningRate=rate, Grad=[g, h]) {sizes=[3, 4]}"
    ]


APART = {
    "another learning rate": TEXT.replace("w = sgd(Param=w, LearningRate=rate", "w = sgd(Param=w, LearningRate=slow"),
    "read in between": TEXT.replace("      w = sgd", "      y: float32[3] = relu(X=v)\n      w = sgd"),
    "its gradient is written in between": TEXT.replace("      w = sgd", "      g = relu(X=g)\n      w = sgd"),
    "the learning rate is written in between": TEXT.replace(
        "      w = sgd", "      rate = relu(X=rate)\n      w = sgd"
    ),
    "another dtype": TEXT.replace("w: float32", "w: float64").replace("h: float32", "h: float64"),
    "twice the same parameter": TEXT.replace("w = sgd(Param=w", "v = sgd(Param=v").replace("Grad=h", "Grad=g"),
}


@pytest.mark.parametrize("what", APART)
def test_updates_stay_apart(what):
    lines = op_lines(MergeUpdates(), APART[what], ["v", "w", *(["y"] if "y:" in APART[what] else [])])
    assert sum(" sgd(" in line for line in lines) == 2


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program):
            rate = fluid.layers.create_global_var([1], 0.1, "float32", persistable=True)
            block = program.global_block()
            for i in range(count):
                w = block.create_parameter(name=f"w{i}", shape=[2], dtype="float32")
                grad = fluid.data(f"g{i}", [2])
                block.append_op("sgd", {"Param": w, "Grad": grad, "LearningRate": rate}, {"ParamOut": w})
        return program

    assert_linear(MergeUpdates(), make)


@pytest.mark.parametrize("rows", [2, None])
def test_sizes_that_are_not_those_of_the_parameters_are_refused(rows):
    """Kernels of a GPU would write behind the parameters."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), pytest.raises(OpError, match=r"sizes must count .* got 12 for"):
        x, rate = fluid.data("x", [rows, 1]), fluid.data("rate", [1])
        out = main.global_block().create_var(name="out", dtype="float32", shape=x.shape)
        inputs = {"Param": [x], "Grad": [x], "LearningRate": [rate]}
        main.global_block().append_op("merged_sgd", inputs, {"ParamOut": [out]}, {"sizes": [12]})
        feed = {"x": np.ones((2, 1), "float32"), "rate": np.ones(1, "float32")}
        fluid.Executor().run(main, feed, [out])
