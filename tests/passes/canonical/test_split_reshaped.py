"""SplitReshaped cuts and joins along a dimension that a program reshapes into two first."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_the_bits, op_lines, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import SplitReshaped

test_training, test_overwriting = keeps_the_bits(SplitReshaped())

HEAD = """
    block 0
      data x: float32[2, 12, 5]
      data y: float32[2, 4, 5]
      data z: float32[2, 4, 5]
"""


def lines(*body, fetch):
    return op_lines(SplitReshaped(), HEAD + "".join(f"      {line}\n" for line in body), fetch)


def cut(shape="2, 3, 4, 5", axis=1, count=3):
    dims = [size.strip() for size in shape.split(",")]
    part = ", ".join(dims[: axis % 4] + dims[axis % 4 + 1 :])
    names = ", ".join(f"p{i}: float32[{part}]" for i in range(count))
    return (
        f"Out=r: float32[{shape}], XShape=s: float32[0, 2, 12, 5] = reshape2(X=x) {{shape=[{shape}]}}",
        f"Y=[{names}] = unstack(X=r) {{axis={axis}, num={count}}}",
    )


@pytest.mark.parametrize("axis", [1, -3])
def test_a_cut_of_two_dimensions_is_a_split_of_one(axis):
    assert lines(*cut(axis=axis), fetch=["p0", "p2"]) == ["[p0, p1, p2] = split(X=x) {num=3, axis=1}"]


JOIN = (
    "Y=r: float32[2, 2, 4, 5] = stack(X=[y, z]) {axis=1}",
    "Out=j: float32[2, 8, 5], XShape=s: float32[0, 2, 2, 4, 5] = reshape2(X=r) {shape=[2, 8, 5]}",
)


def test_a_join_to_two_dimensions_is_one_of_one():
    assert lines(*JOIN, fetch=["j"]) == ["j = concat(X=[y, z]) {axis=1}"]


OTHERS = {
    "the second of two dimensions": (cut(axis=2, count=4), ["p0"]),
    "the first dimension": (cut(axis=0, count=2), ["p0"]),
    "another dimension is two": (cut("2, 12, 5, 1", axis=1, count=12), ["p0"]),
    "the value is written in between": ((cut()[0], "x = relu(X=x)", cut()[1]), ["p0"]),
    "what is joined is read": (JOIN, ["j", "r"]),
    "what is joined is written in between": ((JOIN[0], "y = relu(X=y)", JOIN[1]), ["j"]),
    "the old shape is read": ((*JOIN, "t: float32[0, 2, 2, 4, 5] = relu(X=s)"), ["j", "t"]),
    "the first dimension is joined": (
        (
            "Y=r: float32[2, 2, 4, 5] = stack(X=[y, z])",
            "Out=j: float32[4, 4, 5], XShape=s: float32[0, 2, 2, 4, 5] = reshape2(X=r) {shape=[4, 4, 5]}",
        ),
        ["j"],
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_others_stay(what):
    body, fetch = OTHERS[what]
    assert not any("split" in line or "concat" in line for line in lines(*body, fetch=fetch))


@pytest.mark.usefixtures("new_program")
def test_gradients_are_joined_and_cut():
    x, y = fluid.data("x", [3, 8]), fluid.data("y", [3, 4])
    x.stop_gradient = y.stop_gradient = False
    first, second = layers.unstack(layers.reshape(x, [3, 2, 4]), 1)
    joined = layers.reshape(layers.stack([first * y, layers.tanh(second)], axis=1), [3, 8])
    fetch = [joined, *fluid.gradients([layers.reduce_sum(layers.square(joined))], [x, y])]
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    SplitReshaped().apply(program)
    types = [op.type for op in program.global_block().ops]
    assert types.count("split") == 2
    assert "concat" in types
    assert not {"unstack", "stack_grad", "unstack_grad"}.intersection(types)
    feed = {
        each.name: np.linspace(-1, 1, int(np.prod(each.shape)), dtype="float32").reshape(each.shape) for each in (x, y)
    }
    for found, expected in zip(*with_and_without(SplitReshaped(), feed, fetch), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.timing
def test_time_is_linear():
    def append(x):
        layers.unstack(layers.reshape(x, [4, 2, 1]), 1)

    assert_linear(SplitReshaped(), repeated(append))
