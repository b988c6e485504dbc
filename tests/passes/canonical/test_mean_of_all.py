"""MeanOfAll writes means in one way."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import MeanOfAll

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(MeanOfAll())


def types_left(*fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(MeanOfAll()).apply(program)
    return [op.type for op in program.global_block().ops]


def left(*lines):
    head = ["    block 0", "      data x: float32[4, 2]"]
    return op_lines(MeanOfAll(), "\n".join([*head, *(f"      {line}" for line in lines)]), ["w"])


@pytest.mark.parametrize("attrs", ["reduce_all=True", "dim=[0, 1]", "dim=[-1, 0]"])
def test_a_mean_over_all_dimensions_is_a_mean(attrs):
    assert left(f"w: float32[1] = reduce_mean(X=x) {{{attrs}}}") == ["w = mean(X=x)"]
    assert left(
        "d: float32[1] = fill_constant() {shape=[1], value=2.0}",
        f"X@GRAD=w: float32[4, 2] = reduce_mean_grad(X=x, Out@GRAD=d) {{{attrs}}}",
    )[-1] == "w = mean_grad(X=x, Out@GRAD=d)"  # fmt: skip


def test_a_sum_that_is_divided_is_a_mean():
    assert left(
        "s: float32[1] = reduce_sum(X=x) {reduce_all=True}", "w: float32[1] = scale(X=s) {scale=0.125}"
    ) == ["w = mean(X=x)"]  # fmt: skip
    assert left(
        "d: float32[1] = fill_constant() {shape=[1], value=2.0}", "e: float32[1] = scale(X=d) {scale=0.125}",
        "X@GRAD=w: float32[4, 2] = reduce_sum_grad(X=x, Out@GRAD=e) {reduce_all=True}",
    )[-1] == "w = mean_grad(X=x, Out@GRAD=d)"  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        ["w: float32[2] = reduce_mean(X=x) {dim=[0]}"],
        ["w: float32[1, 1] = reduce_mean(X=x) {reduce_all=True, keep_dim=True}"],
        ["w: float64[1] = reduce_mean(X=x) {reduce_all=True, out_dtype=6}"],
        ["s: float32[1] = reduce_sum(X=x) {reduce_all=True}", "w: float32[1] = scale(X=s) {scale=0.25}"],
        ["s: float32[1] = reduce_sum(X=x) {reduce_all=True}", "w: float32[1] = scale(X=s) {scale=0.125, bias=1.0}"],
        [
            "s: float32[1] = reduce_sum(X=x) {reduce_all=True}", "x = relu(X=x)",
            "w: float32[1] = scale(X=s) {scale=0.125}",
        ],
    ],
)  # fmt: skip
def test_other_reductions_stay(lines):
    assert not any(" mean(" in line for line in left(*lines))


MEANS = {
    "mean": layers.mean,
    "reduce_mean": layers.reduce_mean,
    "all dimensions": lambda x: layers.reduce_mean(x, dim=[0, 1]),
    "sum and scale": lambda x: layers.scale(layers.reduce_sum(x), 1 / 32),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", MEANS)
def test_means_and_gradients_are_those_of_the_interpreter(kind, dtype):
    x = data("x", 8, 4, dtype=dtype)
    loss = MEANS[kind](layers.tanh(x))
    fetch, feed = [loss, *fluid.gradients([loss], [x])], {"x": numbers(8, 4, dtype=dtype)}
    program = fluid.default_main_program().clone()
    MeanOfAll().apply(program)
    assert {op.type for op in program.global_block().ops}.isdisjoint({"reduce_mean", "reduce_mean_grad"})
    found, expected = with_and_without(MeanOfAll(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2 * np.finfo(dtype).eps * 32)


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{"dim": 1}, {"dim": [-2], "keep_dim": True}, {"dim": [0, 2]}])
def test_sums_along_dimensions_that_are_divided_are_means(options, dtype):
    x = data("x", 2, 4, 1, dtype=dtype)
    count = 2 if options["dim"] == [0, 2] else 4
    loss = layers.square(layers.scale(layers.reduce_sum(x, **options), 1 / count))
    fetch, feed = [loss, *fluid.gradients([loss], [x])], {"x": numbers(2, 4, 1, dtype=dtype)}
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(MeanOfAll()).apply(program)
    types = {op.type for op in program.global_block().ops}
    assert {"reduce_mean", "reduce_mean_grad"} <= types
    assert types.isdisjoint({"reduce_sum", "reduce_sum_grad"})
    found, expected = with_and_without(MeanOfAll(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=16 * np.finfo(dtype).eps)


CHAINS = {
    "mean of rows": lambda x: layers.mean(layers.reduce_mean(x, dim=1)),
    "means of means": lambda x: layers.reduce_mean(layers.reduce_mean(x, dim=[0]), dim=[1]),
    "kept means": lambda x: layers.reduce_mean(layers.reduce_mean(x, dim=2, keep_dim=True), dim=[0], keep_dim=True),
    "kept, then all": lambda x: layers.reduce_mean(layers.reduce_mean(x, dim=2, keep_dim=True)),
    "kept, then taken out": lambda x: layers.reduce_mean(layers.reduce_mean(x, dim=2, keep_dim=True), dim=[0, 2]),
    "sums of sums": lambda x: layers.reduce_sum(layers.reduce_sum(x, dim=-1), dim=0),
    "mean of a mean": lambda x: layers.mean(layers.mean(x)),
    "mean of a reshaped value": lambda x: layers.mean(layers.reshape(x, [-1])),
    "mean of a value with one more dimension": lambda x: layers.mean(layers.unsqueeze(x, [1])),
    "mean of a squeezed value": lambda x: layers.mean(layers.squeeze(layers.unsqueeze(x, [1]), [1])),
    "mean of a matrix": lambda x: layers.reduce_mean(layers.flatten(x)),
    "sum of all sums": lambda x: layers.reduce_sum(layers.reduce_sum(x, dim=[0, 1])),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("chain", CHAINS)
def test_reductions_of_reductions_are_one(chain, dtype):
    x = data("x", 2, 4, 3, dtype=dtype)
    out = CHAINS[chain](x)
    fetch, feed = [out, *fluid.gradients([layers.square(out)], [x])], {"x": numbers(2, 4, 3, dtype=dtype)}
    types = types_left(*fetch)
    assert sum(type in ("mean", "reduce_mean", "reduce_sum") for type in types) == 1
    assert sum(type in ("mean_grad", "reduce_mean_grad", "reduce_sum_grad") for type in types) == 1
    found, expected = with_and_without(MeanOfAll(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=64 * np.finfo(dtype).eps)


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: layers.reduce_mean(layers.reduce_mean(x, dim=2), dim=[0], keep_dim=True),
        lambda x: layers.reduce_sum(layers.reduce_sum(x, dim=2, keep_dim=True), dim=[0]),
        lambda x: layers.reduce_sum(layers.reduce_mean(x, dim=2), dim=[0]),
        lambda x: layers.reduce_sum(layers.reduce_sum(x), keep_dim=True),
    ],
)
def test_reductions_of_other_shapes_or_kinds_stay(function):
    out = function(data("x", 2, 4, 3, dtype="float32"))
    assert types_left(out) == [op.type for op in fluid.default_main_program().global_block().ops]


POOLS = {
    "global": {"global_pooling": True, "pool_padding": 1},
    "of ranges": {"global_pooling": True, "pool_size": 2, "pool_stride": 3},
    "channels last": {"global_pooling": True, "data_format": "NHWC"},
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("pool", [*POOLS, "adaptive"])
def test_the_average_of_whole_images_is_a_mean(pool):
    x = data("x", 2, 3, 5, 4, dtype="float32")
    out = (
        layers.adaptive_pool2d(x, [1, 1], pool_type="avg")
        if pool == "adaptive"
        else layers.pool2d(x, pool_type="avg", **POOLS[pool])
    )
    fetch, feed = [out, *fluid.gradients([layers.square(out)], [x])], {"x": numbers(2, 3, 5, 4, dtype="float32")}
    types = set(types_left(*fetch))
    assert {"reduce_mean", "reduce_mean_grad"} <= types
    assert types.isdisjoint({"pool2d", "pool2d_grad"})
    found, expected = with_and_without(MeanOfAll(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=64 * np.finfo("float32").eps)


OTHER_POOLS = {
    "maximum": ("float32", {"pool_type": "max", "global_pooling": True}),
    "of windows": ("float32", {"pool_type": "avg", "pool_size": 2}),
    "float64, whose gradient has weights of float32": ("float64", {"pool_type": "avg", "global_pooling": True}),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("pool", OTHER_POOLS)
def test_other_pools_stay(pool):
    dtype, options = OTHER_POOLS[pool]
    assert types_left(layers.pool2d(data("x", 2, 3, 4, 4, dtype=dtype), **options)) == ["pool2d"]


@pytest.mark.timing
def test_time_is_linear():
    assert_linear(MeanOfAll(), repeated(lambda x: layers.reduce_mean(x)))
