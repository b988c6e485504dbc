"""SkipJoins reads what was joined instead of parts of the whole, and leaves out zeros that are added."""

import pytest
from networks import rnn
from pass_laws import assert_linear, keeps_trainings, op_lines

import minigraph as fluid
from minigraph import layers
from minigraph.passes import SkipJoins

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(SkipJoins())

JOINS = {
    "stack": "Y=t: float32[2, 3, 4] = stack(X=[x, y])",
    "concat": "t: float32[6, 4] = concat(X=[x, y])",
    "unstack_grad": "X@GRAD=t: float32[2, 3, 4] = unstack_grad(Y@GRAD=[x, y]) {num=2}",
}
CUTS = {
    "slice": "z: float32[3, 4] = slice(Input=t) {axes=[0], starts=[1], ends=[2], decrease_axis=[0]}",
    "unstack": "Y=[u: float32[3, 4], z: float32[3, 4]] = unstack(X=t) {num=2}",
    "rows": "z: float32[3, 4] = slice(Input=t) {axes=[0], starts=[3], ends=[6]}",
    "split": "[u: float32[3, 4], z: float32[3, 4]] = split(X=t) {num=2}",
}


def left(join, *lines):
    head = ["    block 0", "      data x: float32[3, 4]", "      data y: float32[3, 4]", f"      {join}"]
    return op_lines(SkipJoins(), "\n".join([*head, *(f"      {line}" for line in lines)]), ["w"])


@pytest.mark.parametrize(
    ("join", "cut"),
    [("stack", "slice"), ("stack", "unstack"), ("unstack_grad", "slice"), ("concat", "rows"), ("concat", "split")],
)
def test_a_part_is_what_was_joined(join, cut):
    assert left(JOINS[join], CUTS[cut], "w: float32[3, 4] = tanh(X=z)") == ["w = tanh(X=y)"]


def test_other_parts_stay():
    cut = "z: float32[2, 4] = slice(Input=t) {axes=[0], starts=[2], ends=[4]}"
    assert len(left(JOINS["concat"], cut, "w: float32[2, 4] = tanh(X=z)")) == 3
    join = "Y=t: float32[3, 2, 4] = stack(X=[x, y]) {axis=1}"
    cut = "z: float32[3, 4] = slice(Input=t) {axes=[1], starts=[1], ends=[2], decrease_axis=[1]}"
    assert len(left(join, cut, "w: float32[3, 4] = tanh(X=z)")) == 3


def test_what_was_written_again_is_not_read():
    assert len(left(JOINS["stack"], "y = relu(X=y)", CUTS["slice"], "w: float32[3, 4] = tanh(X=z)")) == 3


GRADIENT = [
    "v: float32[2, 3, 4] = fill_constant() {shape=[2, 3, 4], value=1.0}",
    "Input@GRAD=t: float32[2, 3, 4] = slice_grad(Input=v, Out@GRAD=y) "
    "{axes=[0], starts=[1], ends=[2], decrease_axis=[0]}",
    "Y=[a: float32[3, 4], b: float32[3, 4]] = unstack(X=t) {num=2}",
]


def test_the_gradient_of_a_part_is_zero_elsewhere():
    assert left(*GRADIENT, "w: float32[3, 4] = sum(X=[x, a])") == ["w = sum(X=[x])"]


def test_zeros_are_not_added():
    lines = left(*GRADIENT, "s: float32[3, 4] = sum(X=[a, x, b])", "w: float32[3, 4] = tanh(X=s)")
    assert lines == ["s = sum(X=[x, y])", "w = tanh(X=s)"]
    lines = left(*GRADIENT, "s: float32[3, 4] = elementwise_add(X=a, Y=x)", "w: float32[3, 4] = tanh(X=s)")
    assert lines == ["w = tanh(X=x)"]


def test_a_vector_that_is_added_to_zeros_stays():
    lines = left(*GRADIENT, "r: float32[4] = reduce_sum(X=x)", "s: float32[3, 4] = elementwise_add(X=a, Y=r)",
                 "w: float32[3, 4] = tanh(X=s)")  # fmt: skip
    assert any("elementwise_add" in line for line in lines)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            parts = layers.unstack(fluid.data("x", [count, 2, 3]))
            layers.sums([layers.tanh(part) for part in layers.unstack(layers.stack(parts))])
        return main

    assert_linear(SkipJoins(), make)


def test_a_network_without_joins_is_left_alone():
    main, *_ = rnn(3)
    assert not SkipJoins().apply(main)
