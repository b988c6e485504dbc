"""SliceRows writes rows that are taken from a value as slices."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_the_bits, op_lines, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import SliceRows

test_training, test_overwriting = keeps_the_bits(SliceRows())

HEAD = ["    block 0", "      data x: float32[4, 2]"]
ROW = "i: int32[1] = fill_constant() {shape=[1], dtype=int32, value=3.0, str_value='3'}"


def left(*lines):
    return op_lines(SliceRows(), "\n".join([*HEAD, *(f"      {line}" for line in lines)]), ["w"])


def test_a_row_of_constant_number_is_a_slice():
    assert left(ROW, "w: float32[1, 2] = gather(X=x, Index=i)")[-1] == (
        "w = slice(Input=x) {axes=[0], starts=[3], ends=[4]}"
    )


def test_a_strided_slice_without_strides_is_a_slice():
    assert left(
        "w: float32[2, 2] = strided_slice(Input=x) {axes=[0], starts=[1], ends=[3], strides=[1]}"
    ) == ["w = slice(Input=x) {axes=[0], starts=[1], ends=[3]}"]  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        ["w: float32[2, 2] = strided_slice(Input=x) {axes=[0], starts=[0], ends=[4], strides=[2]}"],
        ["w: float32[-1, 2] = strided_slice(Input=x) {axes=[0], starts=[-9], ends=[-1], strides=[1]}"],
        ["w: float32[-1, 2] = strided_slice(Input=x) {axes=[0], starts=[-1], ends=[0], strides=[1], infer_flags=[-1]}"],
        ["w: float32[-1, 2] = strided_slice(Input=x) {axes=[0], starts=[9], ends=[12], strides=[1], infer_flags=[-1]}"],
        [
            "w: float32[2] = strided_slice(Input=x) {axes=[0], starts=[0], ends=[3], strides=[1], infer_flags=[-1],"
            " decrease_axis=[0]}"
        ],
        [ROW.replace("=3.0, str_value='3'", "=4.0"), "w: float32[1, 2] = gather(X=x, Index=i)"],
        [ROW.replace("=3.0, str_value='3'", "=-1.0"), "w: float32[1, 2] = gather(X=x, Index=i)"],
        [ROW.replace("int32[1]", "int32[2]").replace("[1]", "[2]"), "w: float32[2, 2] = gather(X=x, Index=i)"],
    ],
    ids=[
        "strides",
        "before the first row",
        "no rows",
        "behind the last row",
        "three rows as one",
        "no such row",
        "negative",
        "two rows",
    ],
)
def test_others_stay(lines):
    assert not any(" slice(" in line for line in left(*lines))


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("kind", ["gather", "strided_slice"])
def test_rows_and_gradients_keep_their_bits(kind):
    x = data("x", 4, 2)
    rows = [
        layers.gather(x, layers.fill_constant([1], "int32", row))
        if kind == "gather"
        else layers.strided_slice(x, [0], [row], [row + 1], [1])
        for row in (0, 2, 3)
    ]
    out = layers.tanh(layers.sums(rows))
    fetch, feed = [out, *fluid.gradients([out], [x])], {"x": numbers(4, 2)}
    program = fluid.default_main_program().clone()
    SliceRows().apply(program)
    assert len(program.global_block().ops.of_type("slice_grad")) == 3
    found, expected = with_and_without(SliceRows(), feed, fetch)
    assert [each.tobytes() for each in found] == [np.asarray(each).tobytes() for each in expected]


@pytest.mark.timing
def test_time_is_linear():
    assert_linear(SliceRows(), repeated(lambda x: layers.strided_slice(x, [0], [1], [3], [1])))


@pytest.mark.usefixtures("new_program")
def test_a_row_of_what_is_reversed_is_a_row_of_that():
    x = data("x", 4, 2, dtype="float32")
    turned = layers.reverse(x, [0])
    fetch = [layers.slice(turned, [0], [1], [2]), turned[0], layers.slice(turned, [0], [0], [2])]
    found, expected = with_and_without(SliceRows(), {"x": numbers(4, 2, dtype="float32")}, fetch)
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
    lines = left(*SLICED)
    assert lines[-1] == "w = slice(Input=x) {axes=[0], starts=[2], ends=[3]}"


SPAN = "{axes=[0], starts=[1], ends=[2]}"
SLICED = ["y: float32[4, 2] = reverse(X=x) {axis=[0]}", f"w: float32[1, 2] = slice(Input=y) {SPAN}"]


@pytest.mark.parametrize(("old", "new"), [("axis=[0]", "axis=[1]"), ("axis=[0]", "axis=[0, 1]"), ("[2]}", "[3]}")])
def test_other_parts_of_what_is_reversed_stay(old, new):
    lines = [line.replace(old, new) for line in SLICED]
    if new == "[3]}":
        lines[1] = lines[1].replace("float32[1, 2]", "float32[2, 2]")
    assert "slice(Input=y)" in left(*lines)[-1]
