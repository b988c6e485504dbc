"""GroupConvolutions makes convolutions of parts of the channels one, and keeps results up to rounding."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import GroupConvolutions

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]

test_training = keeps_trainings(GroupConvolutions())


def filters(number, *shape, dtype="float32"):
    var = data(f"w{number}", *shape, dtype=dtype)
    return var, {f"w{number}": numbers(*shape, seed=number + 1, dtype=dtype)}


def convolved(x, w, **attrs):
    return fluid.default_main_program().current_block().emit("conv2d", Input=x, Filter=w, **attrs)


def grouped(batch=2, parts=2, dtype="float32", axis=1, **attrs):
    """The result, what may be differentiated, and the feed, of convolutions of two channels each to four."""
    shape = [batch, 5, 5]
    shape.insert(axis, 2 * parts)
    x = data("x", *shape, dtype=dtype)
    feed, ws = {"x": numbers(*shape, dtype=dtype)}, []
    for i in range(parts):
        w, fed = filters(i, 4, 2 // attrs.get("groups", 1), 3, 3, dtype=dtype)
        ws.append(w)
        feed.update(fed)
    cut = layers.split(layers.tanh(x), parts, dim=axis)
    out = layers.concat([convolved(*each, **attrs) for each in zip(cut, ws, strict=True)], axis=axis)
    return out, [x, *ws], feed


def types_left(fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(GroupConvolutions()).apply(program)
    assert not GroupConvolutions().apply(program)
    return [op.type for op in program.global_block().ops]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("wanted", ["all", "x", "x and one filter"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch": 1, "parts": 3, "paddings": [1, 0], "strides": [2, 1]},
        {"groups": 2, "dilations": [2, 1], "padding_algorithm": "SAME"},
        {"axis": 3, "data_format": "NHWC"},
    ],
)
def test_one_convolution_is_the_same_up_to_rounding(options, wanted, dtype):
    out, leaves, feed = grouped(dtype=dtype, **options)
    chosen = {"all": leaves, "x": leaves[:1], "x and one filter": [leaves[0], leaves[2]]}[wanted]
    fetch = [out, *fluid.gradients([layers.mean(layers.tanh(out))], chosen)]
    types = types_left(fetch)
    assert (types.count("conv2d"), types.count("conv2d_grad")) == (1, 1)
    assert "concat_grad" not in types
    found, expected = with_and_without(GroupConvolutions(), feed, fetch)
    eps = np.finfo(dtype).eps
    for new, old in zip(found, expected, strict=True):
        assert new.dtype == old.dtype
        np.testing.assert_allclose(new, old, rtol=0, atol=64 * eps * max(1e-3, np.abs(old).max()))


def test_no_row_stays_no_row():
    out, leaves, feed = grouped(batch=0)
    fetch = [out, *fluid.gradients([layers.reduce_sum(out)], leaves)]
    found, expected = with_and_without(GroupConvolutions(), feed, fetch)
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_array_equal(new, old)


def test_what_is_no_number_stays_in_its_group():
    out, _, feed = grouped()
    feed["x"][:, :2] = np.nan
    found, expected = with_and_without(GroupConvolutions(), feed, [out])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


TEXT = """
    block 0
      data x: float32[2, 2, 4, 4]
      param v: float32[3, 1, 2, 2]
      param w: float32[3, 1, 2, 2]
      data d: float32[2, 6, 3, 3]
      [a: float32[2, 1, 4, 4], b: float32[2, 1, 4, 4]] = split(X=x) {num=2, axis=1}
      e: float32[2, 3, 3, 3] = conv2d(Input=a, Filter=v)
      f: float32[2, 3, 3, 3] = conv2d(Input=b, Filter=w)
      out: float32[2, 6, 3, 3] = concat(X=[e, f]) {axis=1}
      [e@GRAD: float32[2, 3, 3, 3], f@GRAD: float32[2, 3, 3, 3]] = concat_grad(X=[e, f], Out@GRAD=d) {axis=1}
      Input@GRAD=b@GRAD: float32[2, 1, 4, 4], Filter@GRAD=w@GRAD: float32[3, 1, 2, 2] = \
conv2d_grad(Input=b, Filter=w, Output@GRAD=f@GRAD)
      Input@GRAD=a@GRAD: float32[2, 1, 4, 4], Filter@GRAD=v@GRAD: float32[3, 1, 2, 2] = \
conv2d_grad(Input=a, Filter=v, Output@GRAD=e@GRAD)
      x@GRAD: float32[2, 2, 4, 4] = concat(X=[a@GRAD, b@GRAD]) {axis=1}
"""
FETCH = ["out", "v@GRAD", "w@GRAD", "x@GRAD"]


def count(text, fetch=FETCH):
    return sum("conv2d(" in line for line in op_lines(GroupConvolutions(), text, fetch))


def test_gradients_that_are_read_one_by_one_are_cut_out():
    assert count(TEXT) == 1
    lines = "\n".join(op_lines(GroupConvolutions(), TEXT, [*FETCH, "a@GRAD"]))
    assert "conv2d(" in lines
    assert "[a@GRAD, b@GRAD] = split(" in lines


@pytest.mark.parametrize("other", ["e", "f@GRAD"])
def test_what_is_read_elsewhere_stays(other):
    assert count(TEXT, [*FETCH, other]) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("concat(X=[e, f])", "concat(X=[f, e])"),
        ("concat(X=[e, f])", "concat(X=[e, e])"),
        ("concat_grad(X=[e, f]", "concat_grad(X=[f, e]"),
        ("conv2d(Input=b, Filter=w)", "conv2d(Input=b, Filter=w) {padding_algorithm='VALID'}"),
        ("conv2d_grad(Input=b, Filter=w,", "conv2d_grad(Input=b, Filter=v,"),
        ("conv2d_grad(Input=b, Filter=w,", "conv2d_grad(Input=a, Filter=w,"),
        ("      out:", "      x = relu(X=x)\n      out:"),
        ("      out:", "      v = relu(X=v)\n      out:"),
        ("      Input@GRAD=b@GRAD:", "      v = relu(X=v)\n      Input@GRAD=b@GRAD:"),
        ("      Input@GRAD=b@GRAD:", "      d = relu(X=d)\n      Input@GRAD=b@GRAD:"),
    ],
)
def test_other_operators_stay(old, new):
    assert old in TEXT
    assert count(TEXT.replace(old, new)) == 2


def test_parts_of_a_dimension_of_places_stay():
    x = data("x", 2, 2, 4, 4, dtype="float32")
    parts = layers.split(x, 2, dim=2)
    out = layers.concat([convolved(part, filters(i, 3, 2, 2, 2)[0]) for i, part in enumerate(parts)], axis=2)
    assert types_left([out]).count("conv2d") == 2


@pytest.mark.timing
def test_time_is_linear():
    def make(size):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [2, 4, 3, 3])
            w = fluid.data("w", [2, 2, 1, 1])
            for _ in range(size // 4):
                x = layers.concat([convolved(part, w) for part in layers.split(x, 2, dim=1)], axis=1)
        return main

    assert_linear(GroupConvolutions(), make)
