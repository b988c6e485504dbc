"""BroadcastExpanded lets operators on elements repeat an operand themselves."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import BroadcastExpanded

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(BroadcastExpanded())

HEAD = ["    block 0", "      data x: float32[4, 6]", "      data y: float32[1, 6]", "      data z: float32[4, 3]"]
SUM = "w: float32[4, 6] = elementwise_add(X=x, Y=e)"


def left(*lines):
    return op_lines(BroadcastExpanded(), "\n".join([*HEAD, *(f"      {line}" for line in lines)]), ["w"])


@pytest.mark.parametrize(
    "expanded", ["expand(X=y) {expand_times=[4, 1]}", "expand_as(X=y, target_tensor=x)"], ids=["expand", "expand_as"]
)
def test_an_operand_is_broadcast(expanded):
    assert left(f"e: float32[4, 6] = {expanded}", SUM)[-1] == "w = elementwise_add(X=x, Y=y)"


@pytest.mark.parametrize(
    "lines",
    [
        ["e: float32[4, 6] = expand(X=z) {expand_times=[1, 2]}", SUM],
        ["e: float32[4, 6] = expand(X=y) {expand_times=[4, 1]}", "w: float32[4, 6] = elementwise_add(X=e, Y=x)"],
        ["e: float32[4, 6] = expand(X=y) {expand_times=[4, 1]}", "y = relu(X=y)", SUM],
    ],
    ids=["several elements repeated", "first operand", "operand written"],
)
def test_other_repetitions_stay(lines):
    assert any("Y=e" in line or "X=e" in line for line in left(*lines))


def test_an_operand_in_sequences_stays():
    head = [line.replace("[1, 6]", "[1, 6] {lod_level=1}") for line in HEAD]
    text = "\n".join([*head, "      e: float32[4, 6] = expand(X=y) {expand_times=[4, 1]}", f"      {SUM}"])
    assert "Y=e" in op_lines(BroadcastExpanded(), text, ["w"])[-1]


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("expand", ["expand", "expand_as"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_results_and_gradients_are_those_of_the_interpreter(name, expand):
    x, y = data("x", 4, 6, dtype="float64"), data("y", 1, 6, dtype="float64")
    repeated = layers.expand(y, [4, 1]) if expand == "expand" else layers.expand_as(y, x)
    out = layers.tanh(getattr(layers, f"elementwise_{name}")(x, repeated))
    fetch = [out, *fluid.gradients([out], [x, y])]
    feed = {"x": numbers(4, 6, dtype="float64"), "y": numbers(1, 6, dtype="float64") + 3}
    program = fluid.default_main_program().clone()
    BroadcastExpanded().apply(program)
    assert not program.global_block().ops.of_type(f"{expand}_grad")
    found, expected = (
        executor.run(feed=feed, fetch_list=fetch)
        for executor in (fluid.Executor(passes=pipeline(BroadcastExpanded())), Interpreter())
    )
    assert found[0].tobytes() == np.asarray(expected[0]).tobytes()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("expand", ["expand", "expand_as"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_each_operand_has_its_own_gradient_if_both_are_one_value(name, expand):
    x = data("x", 4, 6, dtype="float64")
    repeated = layers.expand(x, [1, 1]) if expand == "expand" else layers.expand_as(x, x)
    out = layers.tanh(getattr(layers, f"elementwise_{name}")(x, repeated))
    fetch, feed = fluid.gradients([out], [x]), {"x": numbers(4, 6, dtype="float64")}
    (found,), (expected,) = (
        executor.run(feed=feed, fetch_list=fetch)
        for executor in (fluid.Executor(passes=pipeline(BroadcastExpanded())), Interpreter())
    )
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x, y = fluid.data("x", [4, 6]), fluid.data("y", [1, 6])
            for _ in range(count):
                layers.elementwise_add(x, layers.expand(y, [4, 1]))
        return main

    assert_linear(BroadcastExpanded(), make)
