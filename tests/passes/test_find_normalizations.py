"""FindNormalizations finds softmaxes and layer normalizations that are written out."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, pipeline, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import FindNormalizations

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(FindNormalizations())


def share(powers):
    return powers / layers.reduce_sum(powers, dim=-1, keep_dim=True)


def stopped(x):
    top = layers.reduce_max(x, dim=1, keep_dim=True)
    top.stop_gradient = True
    return share(layers.exp(x - top))


def by_rows(x):
    powers = layers.exp(layers.elementwise_sub(x, layers.reduce_max(x, dim=1), axis=0))
    return layers.elementwise_div(powers, layers.reduce_sum(powers, dim=1), axis=0)


SOFTMAXES = {
    "plain": lambda x: share(layers.exp(x)),
    "less the maximum": lambda x: share(layers.exp(x - layers.reduce_max(x, dim=1, keep_dim=True))),
    "less a constant": stopped,
    "without the dimension": by_rows,
}
SQUARES = {"square": layers.square, "product": lambda x: x * x}
ROOTS = {
    "sqrt": lambda x, v: x / layers.sqrt(v),
    "rsqrt": lambda x, v: x * layers.rsqrt(v),
    "pow": lambda x, v: x * layers.pow(v, -0.5),
}


def normalized(x, g, b, square="square", root="sqrt", epsilon=1e-5):
    apart = x - layers.reduce_mean(x, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(SQUARES[square](apart), dim=-1, keep_dim=True)
    return ROOTS[root](apart, variance + epsilon) * g + b


def by_columns(x, axis=0):
    """Without the dimension over which means are taken."""
    apart = layers.elementwise_sub(x, layers.reduce_mean(x, dim=1), axis=axis)
    variance = layers.reduce_mean(layers.square(apart), dim=1)
    return layers.elementwise_div(apart, layers.sqrt(variance + 1e-5), axis=axis)


def types_left(*fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(FindNormalizations()).apply(program)
    return {op.type for op in program.global_block().ops}


def compare(out, inputs, dtype):
    loss = layers.reduce_sum(layers.square(out + 0.5))
    fetch = [out, *fluid.gradients([loss], inputs)]
    left, feed = types_left(*fetch), {each.name: numbers(*each.shape, dtype=dtype) for each in inputs}
    found, expected = with_and_without(FindNormalizations(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e3 * np.finfo(dtype).eps, atol=1e2 * np.finfo(dtype).eps)
    return left


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", SOFTMAXES)
def test_softmaxes_are_found(kind, dtype):
    x = data("x", 4, 6, dtype=dtype)
    left = compare(SOFTMAXES[kind](x), [x], dtype)
    assert {"softmax", "softmax_grad"} <= left
    assert left.isdisjoint({"exp", "reduce_max_grad", "elementwise_div_grad"})


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("root", ROOTS)
def test_layer_normalizations_are_found(square, root, dtype):
    inputs = [data("x", 4, 6, dtype=dtype), data("g", 6, dtype=dtype), data("b", 6, dtype=dtype)]
    left = compare(normalized(*inputs, square, root), inputs, dtype)
    assert {"layer_norm", "layer_norm_grad"} <= left
    assert left.isdisjoint({"reduce_mean", "elementwise_mul_grad", "reduce_mean_grad"})


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 6), (1, 6), (6, 6)])
def test_rows_are_found_without_factor_and_dimension(shape, dtype):
    x = data("x", *shape, dtype=dtype)
    left = compare(by_columns(x), [x], dtype)
    assert {"layer_norm", "layer_norm_grad"} <= left
    assert left.isdisjoint({"reduce_mean", "reduce_mean_grad", "elementwise_div"})


@pytest.mark.usefixtures("new_program")
def test_a_factor_of_another_shape_stays_beside_the_normalization():
    x, g, b = data("x", 6, 6), data("g", 6, 6), data("b", 6)
    assert types_left(normalized(x, g, b)) == {"layer_norm", "elementwise_mul", "elementwise_add"}


@pytest.mark.usefixtures("new_program")
def test_normalizations_without_gradients_are_found():
    x, g, b = data("x", 4, 6), data("g", 6), data("b", 6)
    assert types_left(SOFTMAXES["less the maximum"](x), normalized(x, g, b)) == {"softmax", "layer_norm"}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize(
    "make",
    [
        lambda x: layers.exp(x) / layers.reduce_sum(layers.exp(x), dim=0, keep_dim=True),
        lambda x: layers.elementwise_div(layers.exp(x), layers.reduce_sum(layers.exp(x), dim=1), axis=1),
        lambda x: share(layers.exp(x - layers.reduce_max(layers.tanh(x), dim=1, keep_dim=True))),
        lambda x: normalized(x, data("g", 6), data("b", 6), epsilon=0.5),
        lambda x: by_columns(x, axis=1),
    ],
    ids=["columns", "sums of others", "maximum of others", "large epsilon", "another column"],
)
def test_others_stay(make):
    assert types_left(make(data("x", 6, 6))).isdisjoint({"softmax", "layer_norm"})


@pytest.mark.timing
def test_time_is_linear():
    assert_linear(FindNormalizations(), repeated(lambda x: share(layers.exp(x))))
