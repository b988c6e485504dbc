"""`layers.Print`: values and gradients as they are computed."""

import numpy as np
import pytest
from both_executors import data

import minigraph as fluid
from minigraph import layers
from minigraph.backward import append_backward
from minigraph.errors import ProgramError
from minigraph.executor.interpreter import Interpreter

pytestmark = pytest.mark.usefixtures("new_program")


VALUE = "hello\tTensor[tmp_0]\n  shape: [2, 3]\n  dtype: float64\n  data: 0.0, 2.0, 4.0, 6.0, ...\n"
GRADIENT = (
    "hello\tTensor[print_tmp_0_0.tmp_0@GRAD]\n  shape: [2, 3]\n  dtype: float64\n  data: 1.0, 1.0, 1.0, 1.0, ...\n"
)


@pytest.mark.parametrize("executor", [fluid.Executor, Interpreter])
@pytest.mark.parametrize(("phase", "shown"), [("both", VALUE + GRADIENT), ("forward", VALUE), ("backward", GRADIENT)])
def test_value_and_gradient_are_printed_in_their_phase(phase, shown, executor, capsys):
    x = data("x", 2, 3)
    append_backward(layers.reduce_sum(layers.Print(x * 2.0, message="hello", summarize=4, print_phase=phase)))
    (grad,) = executor().run(feed={"x": np.arange(6.0).reshape(2, 3)}, fetch_list=["x@GRAD"])
    assert np.array_equal(grad, np.full((2, 3), 2.0))
    assert capsys.readouterr().out == shown


def test_what_nobody_reads_is_printed_too_and_equal_ones_each(capsys):
    x = layers.fill_constant([2], "int64", 3)
    for _ in range(2):
        layers.Print(x, print_tensor_name=False, print_tensor_shape=False, print_tensor_type=False)
    fluid.Executor().run()
    assert capsys.readouterr().out == "  data: 3, 3\n" * 2


def test_first_n_limits_how_often(capsys):
    x = layers.fill_constant([1], "int64", 3)
    layers.Print(x, first_n=2, message="twice", print_tensor_shape=False, print_tensor_type=False)
    executor = fluid.Executor()
    for _ in range(4):
        executor.run()
    assert capsys.readouterr().out == "twice\tTensor[fill_constant_0.tmp_0]\n  data: 3\n" * 2


def test_a_loop_prints_in_every_run(capsys):
    def body(i):
        layers.Print(i, print_tensor_name=False, print_tensor_shape=False, print_tensor_type=False)
        return [i + 1]

    (i,) = layers.while_loop(lambda i: i < 3, body, [layers.fill_constant([1], "int64", 0)])
    assert fluid.Executor().run(fetch_list=[i])[0].tolist() == [3]
    assert capsys.readouterr().out == "  data: 0\n  data: 1\n  data: 2\n"


def test_the_imperative_mode_prints_at_once(capsys):
    with fluid.dygraph.guard():
        layers.Print(fluid.dygraph.to_variable(np.zeros(1, "float32")), print_tensor_name=False, message="now")
    assert capsys.readouterr().out == "now\n  shape: [1]\n  dtype: float32\n  data: 0.0\n"


def test_an_unknown_phase_is_refused():
    with pytest.raises(ProgramError, match="print_phase must be one of forward, backward, both, got 'forwards'"):
        layers.Print(data("x", 1), print_phase="forwards")
