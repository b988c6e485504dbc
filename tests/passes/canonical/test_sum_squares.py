"""SumSquares adds squares up without writing them."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import SumSquares

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]

test_training = keeps_trainings(SumSquares())

SUMS = {
    "all": lambda x: layers.reduce_sum(layers.square(x)),
    "dimensions": lambda x: layers.reduce_sum(layers.square(x), dim=[-1, 0]),
}


def types_left(fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    rewrite = SumSquares()
    rewrite.apply(program)
    assert not rewrite.apply(program)
    return {op.type for op in program.global_block().ops}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(256, 130), (1, 40000)])
@pytest.mark.parametrize("kind", SUMS)
def test_sums_and_gradients_agree(kind, shape, dtype):
    x = data("x", *shape, dtype=dtype)
    out = layers.tanh(SUMS[kind](x) * 0.1)
    fetch = [out, *fluid.gradients([out], [x])]
    left = types_left(fetch)
    assert "squared_l2_norm" in left
    assert left.isdisjoint({"square", "reduce_sum", "square_grad", "reduce_sum_grad", "squared_l2_norm_grad"})
    found, expected = with_and_without(SumSquares(), {"x": numbers(*shape, dtype=dtype)}, fetch)
    for new, old in zip(found, expected, strict=True):
        assert (new.shape, new.dtype) == (old.shape, old.dtype)
        np.testing.assert_allclose(new, old, rtol=64 * np.finfo(dtype).eps)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_special_values_give_the_same(value):
    x = data("x", 2, 20000, dtype="float32")
    out = SUMS["all"](x)
    fetch = [out, *fluid.gradients([out], [x])]
    given = numbers(2, 20000, dtype="float32")
    given[1, 1] = value
    found, expected = with_and_without(SumSquares(), {"x": given}, fetch)
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(new), np.signbit(old))


OTHERS = {
    "small": lambda: layers.reduce_sum(layers.square(data("x", 128, 256, dtype="float32"))),
    "one element": lambda: layers.reduce_sum(layers.square(data("x", 1, dtype="float32"))),
    "no elements": lambda: layers.reduce_sum(layers.square(data("x", 0, 3, dtype="float32"))),
    "float16": lambda: layers.reduce_sum(layers.square(data("x", 400, 300, dtype="float16"))),
    "one dimension": lambda: layers.reduce_sum(layers.square(data("x", 400, 300, dtype="float32")), dim=0),
    "kept dimensions": lambda: layers.reduce_sum(layers.square(data("x", 400, 300, dtype="float32")), keep_dim=True),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_sums_stay(what):
    assert types_left([OTHERS[what]()]) == {"square", "reduce_sum"}


def test_squares_that_others_read_stay():
    squares = layers.square(data("x", 400, 300, dtype="float32"))
    assert "square" in types_left([layers.reduce_sum(squares), layers.tanh(squares)])


@pytest.mark.timing
def test_time_is_linear():
    assert_linear(SumSquares(), repeated(lambda x: layers.reduce_sum(layers.square(layers.expand(x, [100, 100])))))
