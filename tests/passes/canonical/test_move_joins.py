"""MoveJoins joins parts before operators on elements, and keeps results up to rounding."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, op_lines, pipeline, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import GroupConvolutions, MoveJoins

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]


def parts(act, bias="elementwise_add", axis=1, dtype="float32", count=2):
    """The joined results, what may be differentiated, and the feed, of convolutions with biases and activations."""
    block = fluid.default_main_program().current_block()
    shape = [2, 4, 4]
    shape.insert(axis, 2 * count)
    x, feed, leaves = data("x", *shape, dtype=dtype), {"x": numbers(*shape, dtype=dtype)}, []
    made = []
    for i, part in enumerate(layers.split(layers.tanh(x), count, dim=axis)):
        given = {f"w{i}": [3, 2, 2, 2], f"b{i}": [3]}
        feed |= {name: numbers(*shape, seed=i + 1, dtype=dtype) for name, shape in given.items()}
        w, b = (data(name, *shape, dtype=dtype) for name, shape in given.items())
        y = block.emit("conv2d", Input=part, Filter=w, data_format="NCHW" if axis == 1 else "NHWC")
        made.append(act(block.emit(bias, X=y, Y=b, axis=axis)))
        leaves += [w, b]
    return layers.concat(made, axis=axis), [x, *leaves], feed


def types_left(fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(MoveJoins(), GroupConvolutions()).apply(program)
    assert not MoveJoins().apply(program)
    return [op.type for op in program.global_block().ops]


ACTS = {
    "none": lambda z: z, "tanh": layers.tanh, "relu": layers.relu,
    "square and sigmoid": lambda z: layers.sigmoid(layers.square(z)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("bias", "axis"), [("elementwise_add", 1), ("elementwise_mul", 1), ("elementwise_sub", 3)])
def test_joined_parts_are_the_same_up_to_rounding(bias, axis, act, dtype):
    out, leaves, feed = parts(ACTS[act], bias, axis, dtype, count=3)
    fetch = [out, *fluid.gradients([layers.mean(layers.tanh(out))], leaves)]
    types = types_left(fetch)
    assert (types.count("conv2d"), types.count("conv2d_grad"), types.count(f"{bias}_grad")) == (1, 1, 1)
    found, expected = with_and_without(MoveJoins(), feed, fetch)
    for i, (new, old) in enumerate(zip(found, expected, strict=True)):
        assert new.dtype == old.dtype
        if i < 2 or i % 2 == 0:  # all but the gradients of vectors keep their bits
            np.testing.assert_array_equal(new, old)
        np.testing.assert_allclose(new, old, rtol=0, atol=16 * np.finfo(dtype).eps * max(1e-3, np.abs(old).max()))


def test_results_without_gradients_are_joined_too():
    out, _, feed = parts(layers.relu)
    assert types_left([out]).count("relu") == 1
    found, expected = with_and_without(MoveJoins(), feed, [out])
    np.testing.assert_array_equal(found[0], expected[0])


TEXT = """
    block 0
      data x: float32[2, 2, 4, 4]
      param v: float32[3, 1, 2, 2]
      param w: float32[3, 1, 2, 2]
      data d: float32[2, 6, 3, 3]
      [a: float32[2, 1, 4, 4], b: float32[2, 1, 4, 4]] = split(X=x) {num=2, axis=1}
      e: float32[2, 3, 3, 3] = conv2d(Input=a, Filter=v)
      f: float32[2, 3, 3, 3] = conv2d(Input=b, Filter=w)
      g: float32[2, 3, 3, 3] = relu(X=e)
      h: float32[2, 3, 3, 3] = relu(X=f)
      out: float32[2, 6, 3, 3] = concat(X=[g, h]) {axis=1}
      [g@GRAD: float32[2, 3, 3, 3], h@GRAD: float32[2, 3, 3, 3]] = concat_grad(X=[g, h], Out@GRAD=d) {axis=1}
      f@GRAD: float32[2, 3, 3, 3] = relu_grad(Out=h, Out@GRAD=h@GRAD)
      e@GRAD: float32[2, 3, 3, 3] = relu_grad(Out=g, Out@GRAD=g@GRAD)
"""
FETCH = ["out", "e@GRAD", "f@GRAD"]


def count(text, fetch=FETCH):
    return sum("relu" in line for line in op_lines(MoveJoins(), text, fetch))


def test_one_operator_and_one_gradient_are_left():
    assert count(TEXT) == 2


@pytest.mark.parametrize("other", ["g", "h@GRAD"])
def test_what_is_read_elsewhere_stays(other):
    assert count(TEXT, [*FETCH, other]) == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("h: float32[2, 3, 3, 3] = relu(X=f)", "h: float32[2, 3, 3, 3] = tanh(X=f)"),
        ("concat(X=[g, h])", "concat(X=[g, g])"),
        ("concat_grad(X=[g, h]", "concat_grad(X=[h, g]"),
        ("relu_grad(Out=h,", "relu_grad(Out=g,"),
        ("f: float32[2, 3, 3, 3] = conv2d(Input=b, Filter=w)", "f: float32[2, 3, 3, 3] = tanh(X=e)"),
        ("      out:", "      e = tanh(X=e)\n      out:"),
        ("      [g@GRAD:", "      out = tanh(X=out)\n      [g@GRAD:"),
        ("      [g@GRAD:", "      f@GRAD = tanh(X=h)\n      [g@GRAD:"),
    ],
)
def test_other_operators_stay(old, new):
    assert old in TEXT
    assert count(TEXT.replace(old, new)) >= 3


@pytest.mark.timing
def test_time_is_linear():
    def make(size):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x, w = fluid.data("x", [2, 4, 3, 3]), fluid.data("w", [2, 2, 1, 1])
            block = main.global_block()
            for _ in range(size // 6):
                cut = layers.split(x, 2, dim=1)
                x = layers.concat([layers.relu(block.emit("conv2d", Input=part, Filter=w)) for part in cut], axis=1)
        return main

    assert_linear(MoveJoins(), make)
