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
SQUARES = {"square": layers.square, "product": lambda x: x * x, "pow": lambda x: layers.pow(x, 2.0)}
ROOTS = {
    "sqrt": lambda x, v: x / layers.sqrt(v),
    "rsqrt": lambda x, v: x * layers.rsqrt(v),
    "pow": lambda x, v: x * layers.pow(v, -0.5),
    "quotient of pow": lambda x, v: x / layers.pow(v, 0.5),
    "reciprocal": lambda x, v: x * layers.reciprocal(layers.sqrt(v)),
}


def of_moments(x, mean, square, dims, square_of_mean=None):
    return layers.reduce_mean(square(x), dim=dims, keep_dim=True) - (square_of_mean or square)(mean)


def normalized(x, g, b, square="square", root="sqrt", epsilon=1e-5):
    apart = x - layers.reduce_mean(x, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(SQUARES[square](apart), dim=-1, keep_dim=True)
    return ROOTS[root](apart, variance + epsilon) * g + b


@pytest.mark.usefixtures("new_program")
def test_powers_by_numbers_are_squares_and_roots():
    inputs = [data(*each, dtype="float32") for each in (("x", 4, 6), ("g", 6), ("b", 6))]
    apart = inputs[0] - layers.reduce_mean(inputs[0], dim=-1, keep_dim=True)
    variance = layers.reduce_mean(apart**2, dim=-1, keep_dim=True)
    left = compare(apart / (variance + 1e-5) ** 0.5 * inputs[1] + inputs[2], inputs, "float32")
    assert {"layer_norm", "layer_norm_grad"} <= left
    assert left.isdisjoint({"elementwise_pow", "pow", "reduce_mean", "pow_grad", "reduce_mean_grad"})


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize(("dims", "kind"), [([-1], "layer_norm"), ([0], "batch_norm")])
def test_the_variance_may_be_that_of_moments(dims, kind, square, dtype):
    x = data("x", 8, 6, dtype=dtype)
    mean = layers.reduce_mean(x, dim=dims, keep_dim=True)
    left = compare((x - mean) / layers.sqrt(of_moments(x, mean, SQUARES[square], dims) + 1e-5), [x], dtype)
    assert {kind, f"{kind}_grad"} <= left
    assert left.isdisjoint({"reduce_mean", "elementwise_div", "elementwise_div_grad", "reduce_mean_grad"})


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize(("square", "of_mean"), [("square", "product"), ("product", "square"), ("pow", "product")])
def test_both_squares_of_moments_may_be_spelled_differently(square, of_mean):
    x = data("x", 8, 6, dtype="float64")
    mean = layers.reduce_mean(x, dim=-1, keep_dim=True)
    variance = of_moments(x, mean, SQUARES[square], -1, SQUARES[of_mean])
    assert {"layer_norm", "layer_norm_grad"} <= compare((x - mean) * layers.rsqrt(variance + 1e-5), [x], "float64")


FORMS = {
    "factor and deviation": lambda apart, variance, g: apart * (layers.rsqrt(variance) * g),
    "quotient of one": lambda apart, variance, g: apart * (1.0 / layers.sqrt(variance)) * g,
    "factor, then division": lambda apart, variance, g: apart * g / layers.sqrt(variance),
    "factor, then power": lambda apart, variance, g: apart * g / layers.pow(variance, 0.5),
    "factor, then root": lambda apart, variance, g: apart * g * layers.rsqrt(variance),
}
"""Differences from means, divided by deviations and multiplied by `g`."""


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize(
    ("form", "dtype"), [*((form, "float32") for form in FORMS), *((form, "float64") for form in FORMS if "," in form)]
)
def test_the_factor_may_come_at_any_place(form, dtype):
    x, g, b = (data(*each, dtype=dtype) for each in (("x", 4, 6), ("g", 6), ("b", 6)))
    apart = x - layers.reduce_mean(x, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(layers.square(apart), dim=-1, keep_dim=True) + 1e-5
    left = compare(FORMS[form](apart, variance, g) + b, [x, g, b], dtype)
    assert {"layer_norm", "layer_norm_grad"} <= left
    assert left.isdisjoint({"reduce_mean", "elementwise_mul", "reduce_mean_grad", "elementwise_mul_grad"})


@pytest.mark.usefixtures("new_program")
def test_scale_and_shift_may_stand_outside():
    x, g, b = (data(*each, dtype="float32") for each in (("x", 4, 6), ("g", 6), ("b", 6)))
    left = compare(layers.layer_norm(x, scale=False, shift=False) * g + b, [x, g, b], "float32")
    assert left.isdisjoint({"elementwise_mul", "elementwise_mul_grad"})


def log_of_sum(x):
    return layers.log(layers.reduce_sum(layers.exp(x), dim=-1, keep_dim=True))


def with_top(form, is_stopped=False):
    def function(x):
        top = layers.reduce_max(x, dim=-1, keep_dim=True)
        top.stop_gradient = is_stopped
        return form(x, x - top, top)

    return function


LOGARITHMS = {
    "plain": lambda x: x - log_of_sum(x),
    "below the maximum": with_top(lambda x, less, top: less - log_of_sum(less)),
    "below the maximum, stopped": with_top(lambda x, less, top: less - log_of_sum(less), is_stopped=True),
    "maximum first": with_top(lambda x, less, top: x - (top + log_of_sum(less))),
    "maximum last": with_top(lambda x, less, top: x - (log_of_sum(less) + top)),
    "maximum last, stopped": with_top(lambda x, less, top: x - (log_of_sum(less) + top), is_stopped=True),
}
SUMS = {
    "maximum first": with_top(lambda x, less, top: top + log_of_sum(less)),
    "maximum last": with_top(lambda x, less, top: log_of_sum(less) + top),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 6), (1, 6), (2, 3, 5), (4, 1)])
@pytest.mark.parametrize("kind", LOGARITHMS)
def test_logarithms_of_softmaxes_are_found(kind, shape, dtype):
    x = data("x", *shape, dtype=dtype)
    left = compare(LOGARITHMS[kind](x), [x], dtype)
    assert {"log_softmax", "log_softmax_grad"} <= left
    assert left.isdisjoint({"exp", "log", "reduce_max", "exp_grad", "log_grad", "reduce_max_grad"})


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", SUMS)
def test_no_gradient_flows_through_the_maximum_of_a_sum_of_exponentials(kind, dtype):
    x = data("x", 4, 6, dtype=dtype)
    left = compare(SUMS[kind](x), [x], dtype)
    assert "exp_grad" in left
    assert left.isdisjoint({"reduce_max_grad", "sum"})


@pytest.mark.usefixtures("new_program")
def test_logarithms_over_other_dimensions_stay():
    x = data("x", 6, 6, dtype="float32")
    assert "log_softmax" not in types_left(x - layers.log(layers.reduce_sum(layers.exp(x), dim=0, keep_dim=True)))


@pytest.mark.usefixtures("new_program")
def test_a_mean_of_something_else_is_no_moment():
    x, y = data("x", 8, 6), data("y", 8, 6)
    mean = layers.reduce_mean(x, dim=[-1], keep_dim=True)
    others = {
        "other squares": of_moments(y, mean, layers.square, [-1]),
        "other mean": of_moments(x, layers.reduce_mean(y, dim=[-1], keep_dim=True), layers.square, [-1]),
        "other dimensions": of_moments(x, mean, layers.square, [0]),
    }
    for what, variance in others.items():
        assert "layer_norm" not in types_left((x - mean) / layers.sqrt(variance + 1e-5)), what


@pytest.mark.usefixtures("new_program")
def test_moments_that_lose_their_digits_are_normalized():
    x = data("x", 2, 64, dtype="float32")
    mean = layers.reduce_mean(x, dim=-1, keep_dim=True)
    out = (x - mean) / layers.sqrt(of_moments(x, mean, layers.square, -1) + 1e-5)
    given = np.float32(1e4) + numbers(2, 64, dtype="float32")
    found, _ = with_and_without(FindNormalizations(), {"x": given}, [out])
    apart = given.astype("float64") - given.mean(-1, keepdims=True, dtype="float64")
    expected = apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[0], expected, rtol=0.01, atol=0.01)


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


def over(x, dims, keep_dim=True, root="rsqrt"):
    """Normalize over some dimensions; without `keep_dim` the statistics are vectors of channels."""
    axis = -1 if keep_dim else 1
    apart = layers.elementwise_sub(x, layers.reduce_mean(x, dim=dims, keep_dim=keep_dim), axis=axis)
    variance = layers.reduce_mean(layers.square(apart), dim=dims, keep_dim=keep_dim) + 1e-5
    if root == "rsqrt":
        return layers.elementwise_mul(apart, layers.rsqrt(variance), axis=axis)
    return layers.elementwise_div(apart, layers.sqrt(variance), axis=axis)


def stretched(x, g, b):
    return layers.elementwise_add(layers.elementwise_mul(x, g, axis=1), b, axis=1)


def stretched_whole(x, g, b):
    shape = [1, -1, *[1] * (len(x.shape) - 2)]
    return x * layers.reshape(g, shape) + layers.reshape(b, shape)


def by_rows_of_groups(x, groups, dims=(1,), shape=None):
    rows = over(layers.reshape(x, shape or [x.shape[0] * groups, -1]), list(dims))
    return layers.reshape(rows, list(x.shape))


CHANNELS = {
    "batch": ("batch_norm", (4, 6, 3, 5), lambda x: over(x, [0, 2, 3])),
    "batch, without the dimensions": ("batch_norm", (4, 6, 3, 5), lambda x: over(x, [3, 0, 2], False, "sqrt")),
    "batch of rows": ("batch_norm", (8, 6), lambda x: over(x, [0], False)),
    "batch of rows, kept": ("batch_norm", (8, 6), lambda x: over(x, [-2], root="sqrt")),
    "batch of sequences": ("batch_norm", (4, 6, 7), lambda x: over(x, [0, 2])),
    "sample": ("instance_norm", (4, 6, 3, 5), lambda x: over(x, [2, 3])),
    "sample of sequences": ("instance_norm", (4, 6, 7), lambda x: over(x, [-1])),
    "rows of groups": ("group_norm", (4, 6, 3, 5), lambda x: by_rows_of_groups(x, 2)),
    "groups": ("group_norm", (4, 6, 3, 5), lambda x: by_rows_of_groups(x, 3, (2, 3, 4), [4, 3, 2, 3, 5])),
    "layer_norm of groups": (
        "group_norm", (4, 6, 3, 5), lambda x: layers.reshape(
            layers.layer_norm(layers.reshape(x, [8, 45]), scale=False, shift=False), [4, 6, 3, 5]
        )
    ),
}  # fmt: skip


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stretch", [stretched, stretched_whole])
@pytest.mark.parametrize("what", CHANNELS)
def test_normalizations_of_channels_are_found(what, stretch, dtype):
    kind, shape, normal = CHANNELS[what]
    inputs = [data("x", *shape, dtype=dtype), data("g", shape[1], dtype=dtype), data("b", shape[1], dtype=dtype)]
    left = compare(stretch(normal(inputs[0]), *inputs[1:]), inputs, dtype)
    assert {kind, f"{kind}_grad"} <= left
    assert left.isdisjoint({"reduce_mean", "elementwise_mul", "elementwise_mul_grad", "reduce_mean_grad"})


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dims", [[0, 2, 3], [1, 2, 3], [2, 3], [3]])
def test_normalizations_without_factors_are_found(dims):
    x = data("x", 4, 6, 3, 5, dtype="float32")
    left = compare(over(x, dims), [x], "float32")
    assert ("batch_norm" if 0 in dims else "layer_norm") in left
    assert "reduce_mean" not in left


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize(
    "make",
    [
        lambda x: over(x, [0, 1]),
        lambda x: over(x, [0, 3]),
        lambda x: over(layers.slice(x, [0], [0], [1]), [0]),
        lambda x: over(layers.reshape(x, [1, 360]), [0]),
        lambda x: (
            layers.elementwise_sub(x, layers.reduce_mean(x, dim=[0, 2, 3]), axis=1)
            * layers.rsqrt(layers.reduce_mean(layers.square(x), dim=[0, 2, 3], keep_dim=True) + 1e-5)
        ),
    ],
    ids=["places", "some", "one sample", "one element for each channel", "another variance"],
)
def test_normalizations_over_other_dimensions_stay(make):
    x = data("x", 4, 6, 3, 5, dtype="float32")
    assert compare(make(x), [x], "float32").isdisjoint({"layer_norm", "batch_norm"})


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("rows", [2, 5, 40])
def test_rows_that_are_no_groups_of_channels_stay_rows(rows):
    x, g, b = data("x", 4, 6, 3, 5), data("g", 6), data("b", 6)
    left = types_left(stretched(by_rows_of_groups(x, 1, shape=[rows, -1]), g, b))
    assert "layer_norm" in left
    assert "group_norm" not in left


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


@pytest.mark.usefixtures("new_program")
def test_a_clone_for_a_test_normalizes_by_its_own_batch_too():
    x = data("x", 8, 6, dtype="float64")
    out, main = over(x, [0]), fluid.default_main_program()
    main.roots, feed = (out.name,), {"x": numbers(8, 6)}
    twin = FindNormalizations()(main)
    assert "batch_norm" in [op.type for op in twin.global_block().ops]
    for program in (twin, twin.clone(for_test=True)):
        (found,) = fluid.Interpreter().run(program, feed, [out.name])
        apart = feed["x"] - feed["x"].mean(0)
        np.testing.assert_allclose(found, apart / np.sqrt((apart**2).mean(0) + 1e-5), rtol=1e-9)
