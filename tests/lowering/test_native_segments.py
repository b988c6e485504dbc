"""Tables of C calls in place of small steps: the same bits in every run, whatever is around them."""

import sys
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from jit_support import needs_numba
from networks import at_the_same_time
from pass_laws import assert_same_bits, history
from sampled import DETERMINISTIC, each, with_gradients

import minigraph as fluid
import minigraph.kernels.jit.all_offers
from minigraph.errors import ExecutionError
from minigraph.kernels import Kernel, registry
from minigraph.kernels.jit import recorders
from minigraph.lowering import codegen, native_segments
from minigraph.rewrite.random_programs.recipes import build
from minigraph.rewrite.strategies import recipes, trainings

layers = fluid.layers

pytestmark = [pytest.mark.numbers, pytest.mark.slow, needs_numba, pytest.mark.usefixtures("new_program", "new_scope")]


@pytest.fixture(autouse=True)
def native_from_the_second_run(monkeypatch):
    monkeypatch.setattr(codegen, "RUNS_BEFORE_NATIVE", 2)
    monkeypatch.setattr(native_segments, "_LEAST_STEPS", 1)


def run(executor, fetch, scope=None, **feed):
    return executor.run(fluid.default_main_program(), feed=feed, fetch_list=fetch, scope=scope or fluid.Scope())


def source(executor, fetch, **feed):
    """The source of the plan after a second run."""
    for _ in range(2):
        run(executor, fetch, **feed)
    return executor.plan_for(fluid.default_main_program(), feed, fetch).compiled.source


def bits(values):
    return [(value.dtype, value.shape, value.tobytes()) for value in values]


def outside(text):
    """What a source calls when every table makes its calls."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ") and not line.startswith("     ")]
    calls = [line.split(" = ")[-1].split("(")[0] for line in lines if "(" in line and not line.startswith("return")]
    return [name for name in calls if name not in ("empty", "saved += [") and not name.startswith("if native")]


# Bits


LOOPS = [s for s in DETERMINISTIC if any(s.op + end in recorders._OF_LOOPS for end in ("", "_grad"))]
"""Samples of operators whose compiled loops are recorded."""


@each(DETERMINISTIC)
def test_an_operator_gives_the_same_bits_in_a_table(sample, dtype):
    same_bits_in_a_table(sample, dtype)


@each(LOOPS)
def test_a_compiled_loop_gives_the_same_bits_in_a_table(sample, dtype, always_compiled):
    same_bits_in_a_table(sample, dtype)


def same_bits_in_a_table(sample, dtype):
    built = with_gradients(sample, dtype)
    executor = fluid.Executor(jit=True)
    names = [name for op in built.program.global_block().ops for name in op.output_arg_names]
    variables = [built.program.global_block().vars[name] for name in dict.fromkeys(names)]
    fetch = [var for var in variables if not var.persistable and var.kind.name == "LOD_TENSOR"]
    found = [executor.run(built.program, feed=built.feed, fetch_list=fetch) for _ in range(3)]
    assert bits(found[0]) == bits(found[1]) == bits(found[2])


@pytest.mark.laws
@given(recipes(training=trainings()))
def test_programs_give_the_same_bits_in_tables(recipe):
    built = build(recipe)
    fetch = [built.loss.name, *(grad.name for _, grad in built.params_grads)]
    executors = [fluid.Executor(jit=jit) for jit in (True, False)]
    assert_same_bits(*[history(executor, built, fetch, steps=4) for executor in executors])


@pytest.mark.parametrize("columns", [1, 2, 3, 31, 64, 1000])
@pytest.mark.parametrize("rows", [1, 2, 33, 100])
def test_a_layer_and_its_gradient_have_the_same_bits_in_all_sizes(rows, columns):
    fluid.default_startup_program().random_seed = 1
    x = fluid.data("x", [None, columns])
    x.stop_gradient = False
    loss = layers.mean(layers.square(layers.fc(x, 7, act="tanh")))
    fluid.optimizer.SGD(0.1).minimize(loss)
    feed = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    found = []
    for jit in (True, False):
        executor, scope = fluid.Executor(jit=jit), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        found.append([bits(run(executor, [loss, "x@GRAD", "fc_0.w_0"], scope, x=feed)) for _ in range(4)])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "sizes", [(1, 3, 1), (1, 1, 3), (3, 1, 1), (1, 1, 1), (1, 5, 4), (4, 1, 5), (5, 4, 1), (3, 4, 5)]
)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_products_of_all_forms_are_made_in_a_table_with_the_same_bits(sizes, transposed, batch):
    rows, inner, columns = sizes
    shapes = [(*batch, rows, inner), (*batch, inner, columns)]
    shapes = [
        (*shape[:-2], *shape[:-3:-1]) if turned else shape for shape, turned in zip(shapes, transposed, strict=True)
    ]
    x, y = (fluid.data(name, shape) for name, shape in zip("xy", shapes, strict=True))
    x.stop_gradient = y.stop_gradient = False
    product = layers.matmul(x, y, *transposed, alpha=0.5)
    fetch = [product, *fluid.gradients([layers.reduce_sum(layers.square(product), dim=[-1])], [x, y])]
    rng = np.random.default_rng(0)
    feed = {each.name: rng.standard_normal(each.shape, np.float32) for each in (x, y)}
    executor = fluid.Executor(jit=True)
    assert outside(source(executor, fetch, **feed)) == []
    assert bits(run(executor, fetch, **feed)) == bits(run(fluid.Executor(jit=False), fetch, **feed))


POINTWISE = {
    # batch, channels, height, width, filters
    "image by image": (3, 4, 3, 2, 6),
    "all images at once": (5, 40, 2, 2, 48),
    "one place": (6, 5, 1, 1, 7),
    "one place and many filters": (2, 100, 1, 1, 90),
    "one image": (1, 3, 3, 3, 4),
    "one channel": (2, 1, 3, 2, 5),
    "one filter": (4, 5, 3, 1, 1),
    "one of each": (1, 1, 1, 1, 1),
    "many places": (2, 20, 9, 9, 30),
}


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", POINTWISE)
def test_a_convolution_of_single_elements_is_made_in_a_table_with_the_same_bits(case, dtype, data_format):
    batch, channels, height, width, filters = POINTWISE[case]
    shape = [batch, channels, height, width] if data_format == "NCHW" else [batch, height, width, channels]
    shapes = {"x": shape, "filter": [filters, channels, 1, 1], "bias": [filters]}
    x, filter, bias = inputs = [fluid.data(name, lengths, dtype) for name, lengths in shapes.items()]
    x.stop_gradient = filter.stop_gradient = bias.stop_gradient = False
    block = fluid.default_main_program().global_block()
    found = [
        block.emit("conv2d", Input=x, Filter=filter, Bias=added, data_format=data_format) for added in (None, bias)
    ]
    loss = layers.sums([layers.reduce_sum(layers.square(each)) for each in found])
    fetch = [*found, *fluid.gradients([loss], inputs)]
    rng = np.random.default_rng(0)
    feed = {each.name: rng.standard_normal(each.shape).astype(dtype) for each in inputs}
    executor = fluid.Executor(jit=True)
    assert outside(source(executor, fetch, **feed)) == []
    assert bits(run(executor, fetch, **feed)) == bits(run(fluid.Executor(jit=False), fetch, **feed))


def test_the_gradient_of_a_value_without_dimensions_is_found():
    x = fluid.data("x", [1, 1])
    x.stop_gradient = False
    loss = layers.mean(layers.squeeze(layers.tanh(x), [0, 1]))
    fetch, feed = [loss, *fluid.gradients([loss], [x])], {"x": np.full((1, 1), 0.5, "float32")}
    source(executor := fluid.Executor(jit=True), fetch, **feed)
    assert bits(run(executor, fetch, **feed)) == bits(run(fluid.Executor(jit=False), fetch, **feed))


@pytest.mark.parametrize("optimizer", [fluid.optimizer.SGD, fluid.optimizer.Adam])
def test_an_update_whose_result_is_read_later_is_in_the_call(optimizer):
    """What comes after it might fail, so it does not write over the parameters."""
    x = fluid.data("x", [4, 3])
    fluid.default_startup_program().random_seed = 1
    loss = layers.mean(layers.square(layers.fc(layers.fc(x, 5, act="tanh"), 2)))
    optimizer(0.1).minimize(loss)
    averages = []
    for param in fluid.default_main_program().all_parameters():
        average = layers.create_global_var(param.shape, 0.0, "float32", persistable=True, name=f"{param.name}_average")
        layers.assign(average * 0.9 + param * 0.1, average)
        averages.append(average)
    feed, seen = np.random.default_rng(0).standard_normal((4, 3), np.float32), []
    for jit in (True, False):
        executor, scope = fluid.Executor(jit=jit), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        fetch = [loss, *averages, "fc_0.w_0", "fc_1.b_0"]
        seen.append([bits(run(executor, fetch, scope, x=feed)) for _ in range(5)])
        if jit:
            plan = executor.plan_for(fluid.default_main_program(), {"x": feed}, fetch)
            assert not any("merged" in name for name in outside(plan.compiled.source))
    assert seen[0] == seen[1]


def test_an_update_that_reads_what_it_writes_over_is_right():
    w = layers.create_parameter([2, 2], "float32", name="w")
    layers.assign(layers.mul(w, w), output=w)
    scope, executor = fluid.Scope(), fluid.Executor(jit=True)
    scope.var("w").get_tensor().set(np.array([[1, 1], [1, 0]], "float32"), fluid.CPUPlace())
    for _ in range(3):
        run(executor, [], scope)
    assert np.array(scope.find_var("w").get_tensor()).tolist() == [[34, 21], [21, 13]]


MOVES = {
    "split": lambda x: layers.split(x, [1, 2, 3], dim=1),
    "split of the last dimension": lambda x: layers.split(x, 2, dim=-1),
    "concat": lambda x: [layers.concat([x, layers.scale(x, 2.0), x], axis=1)],
    "stack and unstack": lambda x: layers.unstack(layers.stack([x, x], axis=1), axis=2),
    "slice of rows": lambda x: [layers.slice(layers.tanh(x), [0], [1], [3])],
    "expand": lambda x: [layers.expand(layers.cast(layers.less_than(x, -x), x.dtype), [2, 1, 3]), x],
    "views": lambda x: [layers.squeeze(layers.unsqueeze(layers.flatten(x, 2), [1]), [1])],
    "parts of a view": lambda x: [layers.tanh(layers.reshape(x, [-1])[8:20])],
    "comparison and cast": lambda x: [layers.cast(layers.less_than(x, layers.scale(x, 2.0)), x.dtype) * x],
    "other functions": lambda x: [layers.sin(x), layers.acos(layers.tanh(x)), layers.stanh(x)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_elements_are_moved_in_a_table(move, dtype):
    x = fluid.data("x", [4, 6, 2], dtype)
    x.stop_gradient = False
    results = move(x)
    loss = layers.sums([layers.reduce_sum(layers.square(each)) for each in results])
    fetch, feed = [*results, *fluid.gradients([loss], [x])], np.random.default_rng(0).standard_normal((4, 6, 2), dtype)
    executor = fluid.Executor(jit=True)
    assert outside(source(executor, fetch, x=feed)) == []
    for values in (feed, feed[::-1].copy(), feed * np.nan):
        assert bits(run(executor, fetch, x=values)) == bits(run(fluid.Executor(jit=False), fetch, x=values))


def test_numbers_of_every_type_are_moved_and_converted_in_a_table():
    fetch, feed = [], {}
    for dtype in ("bool", "int32", "int64", "float32", "float64"):
        feed[dtype] = np.array([[0, 1, 2], [3, 5, 1]]).astype(dtype)
        x = fluid.data(dtype, [2, 3], dtype)
        fetch += [layers.concat([x, x], 1), *layers.unstack(x, 1)]
        fetch += [layers.cast(x, other) for other in ("bool", "float32", "float64")]
        fetch += [layers.cast(x, other) for other in ("int32", "int64") if not dtype.startswith("float")]
    executor = fluid.Executor(jit=True)
    assert outside(source(executor, fetch, **feed)) == []
    assert bits(run(executor, fetch, **feed)) == bits(run(fluid.Executor(jit=False), fetch, **feed))


@pytest.mark.parametrize("bias", [None, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_cells_of_recurrent_networks_are_made_in_a_table(rows, bias):
    x, h, c = (fluid.data(name, [rows, 4]) for name in "xhc")
    for var in (x, h, c):
        var.stop_gradient = False
    fluid.default_startup_program().random_seed = 1
    of_gru = layers.gru_unit(layers.fc(x, 12), h, 12, bias_attr=bias)[0]
    loss = layers.reduce_sum(layers.square(layers.concat([of_gru, *layers.lstm_unit(x, h, c, 0.5)], 1)))
    fetch = [loss, *fluid.gradients([loss], [x, h, c])]
    feed = {name: np.random.default_rng(i).standard_normal((rows, 4), np.float32) for i, name in enumerate("xhc")}
    executor = fluid.Executor(jit=True)
    executor.run(fluid.default_startup_program())
    found = [bits(run(executor, fetch, fluid.global_scope(), **feed)) for _ in range(3)]
    assert found == [bits(run(fluid.Executor(jit=False), fetch, fluid.global_scope(), **feed))] * 3
    assert outside(executor.plan_for(fluid.default_main_program(), feed, fetch).compiled.source) == []


def heads_of(x):
    return layers.transpose(layers.reshape(x, [0, 0, 2, 3]), [0, 2, 1, 3])


GAPS = {
    "transposes of heads": lambda x: layers.matmul(heads_of(x), heads_of(x * 2.0), transpose_y=True),
    "slices of columns": lambda x: layers.tanh(layers.slice(x, [2], [1], [4]) * 2.0),
    "strided slices": lambda x: layers.tanh(layers.strided_slice(x, [2], [0], [6], [2]) * 2.0),
}


@pytest.mark.parametrize("function", GAPS.values(), ids=GAPS)
def test_values_with_gaps_between_the_elements_do_not_end_a_table(function):
    x = fluid.data("x", [2, 4, 6])
    x.stop_gradient = False
    y = function(x)
    loss = layers.reduce_sum(layers.square(y))
    fetch, feed = [y, *fluid.gradients([loss], [x])], np.random.default_rng(0).standard_normal((2, 4, 6), np.float32)
    executor = fluid.Executor(jit=True)
    text = source(executor, fetch, x=feed)
    assert set(outside(text)) <= {"strided_slice_grad"}
    first = bits(run(fluid.Executor(jit=True), fetch, x=feed))
    assert bits(run(executor, fetch, x=feed)) == first == bits(run(executor, fetch, x=feed))


def test_columns_of_an_array_can_be_fed_to_a_table():
    x = fluid.data("x", [None, 5])
    y = layers.fc(x, 3, param_attr=fluid.initializer.Constant(0.5), act="tanh")
    executor, rows = fluid.Executor(jit=True), np.random.default_rng(0).standard_normal((4, 9), np.float32)
    executor.run(fluid.default_startup_program())
    found = [bits(run(executor, [y], fluid.global_scope(), x=rows[:, 2:7])) for _ in range(4)]
    assert found == [bits(run(executor, [y], fluid.global_scope(), x=rows[:, 2:7].copy()))] * 4


def record_of(kernel, *shapes):
    inputs = [native_segments.ArrayKind(shape, np.dtype(np.float32)) for shape in shapes]
    return recorders.record("no operator", registry.KERNEL, kernel, inputs, {})


def kernel_of(function):
    function.__module__ = "minigraph.kernels.of_a_test"
    return Kernel(function, (), False, False, False, None)


def test_a_kernel_is_recorded_by_running_it():
    recording, _ = record_of(kernel_of(lambda xp, x, y: xp.exp(x) * y + 1), (2, 3), (3,))
    assert len(recording.calls) == 3


def writes_through_a_view(xp, x):
    result = xp.exp(x)
    part = result[1:]
    part += 1
    return result


def writes_what_a_view_shows(xp, x):
    result = xp.exp(x)
    part = result[1:]
    xp.add(result, part[-1:], out=result)
    return xp.concatenate([part, part[:1]])


def writes_to_what_it_reads(xp, x):
    result = x.copy()
    result[1:] = result[:-1] * 2
    result[0] = 5
    return result


def moves_what_it_holds(xp, x):
    result = x.copy()
    result[1:] = result[:-1]
    result[:-1] = result[1:]
    return result


def writes_to_more_than_it_computes(xp, x):
    result = xp.empty_like(x)
    xp.add(x[:1], 1, out=result)
    return result


def writes_to_another_type(xp, x):
    result = xp.empty_like(x)
    xp.add(x.astype(xp.float64), 1, out=result)
    return result


def writes_where_it_is_negative(xp, x):
    result = xp.exp(x)
    xp.subtract(2, result, out=result, where=x < 2)
    return result


def computes_in_another_type(xp, x):
    wide = xp.clip(xp.negative(x, dtype=xp.float64), -2, 0.5)
    return wide.astype(xp.float32)


def returns_what_no_input_says(xp, x):
    return xp.arange(4, dtype=xp.float32)


WRITES = [
    writes_where_it_is_negative, computes_in_another_type, returns_what_no_input_says,
    writes_through_a_view, writes_what_a_view_shows, writes_to_what_it_reads, moves_what_it_holds,
    writes_to_more_than_it_computes, writes_to_another_type,
]  # fmt: skip


CHOICES = [
    lambda xp, x: xp.where(x > 0.5, xp.exp(x), x),
    lambda xp, x: xp.where(x > 0.5, xp.exp(x), x.dtype.type(2)),
    lambda xp, x: xp.where(x > 0.5, x.dtype.type(2), xp.exp(x)),
    lambda xp, x: xp.where(x > 0.5, x.dtype.type(2), x.dtype.type(3)),
    lambda xp, x: xp.where(x.reshape(17, 59).T > 0.5, xp.exp(x).reshape(59, 17), x.reshape(59, 17)).reshape(-1),
    lambda xp, x: xp.where(x[::-1] > 0.5, x[::-1], x),
]
"""Choices between contiguous numbers, one number, and numbers with strides."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", CHOICES)
def test_a_choice_between_numbers_has_the_same_bits_in_a_table(function, dtype, monkeypatch):
    monkeypatch.setitem(registry._KERNELS, ("sin", None), kernel_of(function))
    feed = np.random.RandomState(3).uniform(-2, 2, 17 * 59).astype(dtype)
    feed[::7] = np.nan
    fetch, executor = [layers.sin(fluid.data("x", [17 * 59], dtype))], fluid.Executor(jit=True)
    assert outside(source(executor, fetch, x=feed)) == []
    assert bits(run(executor, fetch, x=feed)) == bits([function(np, feed)])


@pytest.mark.parametrize("function", WRITES)
def test_a_kernel_that_writes_to_a_view_gives_the_same_bits_in_a_table(function, monkeypatch):
    monkeypatch.setitem(registry._KERNELS, ("sin", None), kernel_of(function))
    fetch, feed = [layers.sin(fluid.data("x", [4]))], np.arange(4, dtype="float32")
    executor = fluid.Executor(jit=True)
    assert outside(source(executor, fetch, x=feed)) == []
    assert bits(run(executor, fetch, x=feed)) == bits([function(np, feed)])


@pytest.mark.laws
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape",
    [
        (1,), (7,), (9,), (1030,), (3, 4), (2, 130), (130, 2), (1, 5), (5, 1), (2, 3, 4), (3, 1, 9), (4, 20, 9),
        (2, 3, 4, 5),
    ],
    ids=str,
)  # fmt: skip
def test_a_reduction_has_the_same_bits_in_a_table(shape, dtype, monkeypatch):
    feed = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x = fluid.data("x", list(shape), dtype)
    chosen = [axes for count in range(1, len(shape) + 1) for axes in combinations(range(len(shape)), count)]
    for ufunc in (np.add, np.multiply, np.maximum, np.minimum):
        for axes in (None, *chosen):
            if ufunc.identity is None and len(chosen[-1] if axes is None else axes) > 1:
                continue  # it is not recorded

            def reduced(xp, x, ufunc=ufunc, axes=axes):
                found = ufunc.reduce(x, axes, xp.float64 if dtype == "float32" else None, keepdims=True)
                return x * ufunc.reduce(x, axes, keepdims=True) + found.astype(x.dtype, copy=False)

            monkeypatch.setitem(registry._KERNELS, ("sin", None), kernel_of(reduced))
            executor, fetch = fluid.Executor(jit=True), [layers.sin(x)]
            assert outside(source(executor, fetch, x=feed)) == []
            assert bits(run(executor, fetch, x=feed)) == bits([reduced(np, feed)]), (ufunc, axes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ignored", [-1, 0, 1, 7])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_loss_of_single_numbers_gives_the_same_bits_in_a_table(normalize, ignored, dtype):
    """Also of labels that are all ignored, and of logits that are not finite."""
    shape = [40, 3]
    x, y = fluid.data("x", shape, dtype), fluid.data("y", shape, dtype)
    x.stop_gradient = False
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(x, y, ignored, normalize=normalize))
    (d_x,) = fluid.gradients(loss, x)
    rng, executor = np.random.default_rng(0), fluid.Executor(jit=True)
    feeds = [
        {"x": rng.standard_normal(shape).astype(dtype), "y": rng.integers(-1, 2, shape).astype(dtype)},
        {"x": np.full(shape, np.inf, dtype), "y": rng.uniform(size=shape).astype(dtype)},
        {"x": np.ones(shape, dtype), "y": np.full(shape, ignored, dtype)},
    ]
    assert outside(source(executor, [loss, d_x], **feeds[0])) == []
    for feed in feeds:
        expected = run(fluid.Executor(jit=False), [loss, d_x], **feed)
        assert bits(run(executor, [loss, d_x], **feed)) == bits(expected)


def writes_to_an_input(xp, x):
    x[0] = 1
    return xp.exp(x)


@pytest.mark.parametrize(
    "function",
    [
        writes_to_an_input,
        lambda xp, x: xp.exp(x) if x.sum() > 0 else x * 2,
        lambda xp, x: xp.asarray(x),
        lambda xp, x: x[::2],
        lambda xp, x: xp.cumsum(x),
        lambda xp, x: xp.exp(x)[x > 0],
    ],
)
def test_a_kernel_that_is_more_than_calls_on_elements_is_not_recorded(function):
    assert record_of(kernel_of(function), (4,)) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda x: layers.fill_constant([200, 100], "float32", 1.5),
        lambda x: layers.assign(np.ones((200, 100), "float32")),
    ],
)
def test_a_large_array_that_no_input_says_is_made_in_each_run(make):
    x = fluid.data("x", [4])
    executor, fetch = fluid.Executor(jit=True), [make(x), layers.exp(layers.tanh(x))]
    (call,) = outside(source(executor, fetch, x=np.ones(4, "float32")))
    assert call.removeprefix("fast_").startswith(("fill_constant", "assign_value"))


def test_a_kernel_that_returns_another_size_is_not_recorded(monkeypatch):
    monkeypatch.setitem(registry._KERNELS, ("sin", None), kernel_of(lambda xp, x: xp.exp(x)[:2].copy()))
    executor = fluid.Executor(jit=True)
    text = source(executor, [layers.sin(fluid.data("x", [4]))], x=np.ones(4, "float32"))
    assert "native" not in text


def test_a_kernel_of_a_user_runs_each_time():
    assert record_of(Kernel(lambda xp, x: xp.exp(x), (), False, False, False, None), (4,)) is None


# Updates

OPTIMIZERS = {
    "sgd": fluid.optimizer.SGD,
    "momentum": partial(fluid.optimizer.Momentum, momentum=0.9),
    "adam": fluid.optimizer.Adam,
    "adamax": fluid.optimizer.Adamax,
    "adagrad": fluid.optimizer.Adagrad,
    "rmsprop": fluid.optimizer.RMSProp,
    "ftrl": partial(fluid.optimizer.Ftrl, l1=0.01, l2=0.01),
    "decayed adagrad": fluid.optimizer.DecayedAdagrad,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_in_a_table_has_the_bits_of_its_loop(optimizer, max_norm, dtype, monkeypatch):
    clip = None if max_norm is None else fluid.clip.GradientClipByGlobalNorm(max_norm)
    fluid.default_startup_program().random_seed = 1
    x = fluid.data("x", [None, 32], dtype)
    loss = layers.mean(layers.square(layers.fc(layers.fc(x, 32, act="tanh"), 1)))
    OPTIMIZERS[optimizer](learning_rate=0.1, grad_clip=clip).minimize(loss)
    rng = np.random.default_rng(0)
    # The clip does nothing, scales, finds a norm whose factor would lose digits, and one that is no number.
    feeds = [(rng.standard_normal((3, 32)) * size).astype(dtype) for size in (1e-3, 1, 100, 1e18, np.nan, 1)]
    found = []
    for runs in (0, 2):
        monkeypatch.setattr(codegen, "RUNS_BEFORE_NATIVE", runs)
        executor, scope = fluid.Executor(jit=True), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        losses = [run(executor, [loss], scope, x=feed) for feed in feeds]
        state = [np.array(scope.find_var(name).get_tensor()) for name in sorted(scope.local_var_names())]
        found.append([*map(bits, losses), bits(state)])
        text = executor.plan_for(fluid.default_main_program(), {"x": feeds[0]}, [loss]).compiled.source
        if runs:
            assert outside(text) in ([], ["hold"])
    assert found[0] == found[1]


def test_an_update_in_a_table_keeps_powers_that_differ_apart(monkeypatch):
    fluid.default_startup_program().random_seed = 1
    x = fluid.data("x", [None, 64])
    loss = layers.mean(layers.fc(layers.fc(x, 32, name="first"), 1))
    fluid.optimizer.Adam(0.1).minimize(loss)
    feed = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    found = []
    for runs in (0, 2):
        monkeypatch.setattr(codegen, "RUNS_BEFORE_NATIVE", runs)
        executor, scope = fluid.Executor(jit=True), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        run(executor, [loss], scope, x=feed)
        power = next(name for name in sorted(scope.local_var_names()) if "beta1_pow" in name)
        for value in (0.9, 0.5):
            scope.find_var(power).get_tensor().set(np.array([value], "float32"), fluid.CPUPlace())
            run(executor, [loss], scope, x=feed)
        found.append(bits(np.array(scope.find_var(name).get_tensor()) for name in sorted(scope.local_var_names())))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shapes",
    [
        [(40, 50)], [(7,)], [(40, 50), (3,), (1, 4)], [(100, 90), (3,), (9001,)], [(40, 50), *[(3,)] * 9],
        [(3,), (100, 90), (5,), (2, 3), *[(100, 90)] * 2, *[(4,)] * 5],
    ],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False])
def test_a_clip_in_a_table_has_the_bits_of_its_function(together, shapes, dtype, monkeypatch):
    block = fluid.default_main_program().global_block()
    names = [f"g{i}" for i in range(len(shapes))]
    for name, shape in zip(names, shapes, strict=True):
        block.create_var(name, list(shape), dtype, persistable=True)
        if not together:
            block.append_op("clip_by_norm", {"X": name}, {"Out": name}, {"max_norm": 1.5})
    if together:
        bound = layers.fill_constant([1], dtype, 1.5)
        norm = block.create_var("norm", [1], dtype)
        block.append_op("clip_by_global_norm", {"X": names, "ClipNorm": bound}, {"Out": names, "Norm": norm})
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape) for shape in shapes]
    found = []
    for runs in (0, 1):
        monkeypatch.setattr(codegen, "RUNS_BEFORE_NATIVE", runs)
        executor, scope = fluid.Executor(jit=True), fluid.Scope()
        for size in (1, 1, 1e-3, 1e4, 1e20, 1e-30, 0, np.inf, np.nan):
            for name, value in zip(names, values, strict=True):
                scope.var(name).get_tensor().set((value * size).astype(dtype), fluid.CPUPlace())
            run(executor, [], scope)
            found.append(bits(np.array(scope.find_var(name).get_tensor()) for name in names))
        text = executor.plan_for(fluid.default_main_program(), {}, []).compiled.source
        assert ("native" in text) == (runs > 0) or shapes == [(7,)]
    assert found[: len(found) // 2] == found[len(found) // 2 :]


def test_a_clip_in_another_order_than_the_updates_is_in_the_call():
    y = fluid.data("x", [None, 24])
    for _ in range(6):
        y = layers.fc(y, 24, act="tanh")
    rule = fluid.optimizer.Momentum(0.1, 0.9)
    pairs = rule.backward(layers.mean(layers.square(y)))
    rule.apply_gradients(fluid.clip.GradientClipByGlobalNorm(0.1)(pairs[::-1]))
    executor, feed = fluid.Executor(jit=True), {"x": np.ones((4, 24), "float32")}
    executor.run(fluid.default_startup_program())
    for _ in range(2):
        executor.run(feed=feed)
    text = executor.plan_for(fluid.default_main_program(), feed, []).compiled.source
    (norm,) = [line for line in text.splitlines() if " = jit_clip_factor(" in line]
    assert norm.count("_GRAD") == len(pairs)  # and not one long vector
    assert outside(text) == []


# Arrays from outside


class Special(np.ndarray):
    """Array of another type."""


def chain(x, count=6):
    for i in range(count):
        x = layers.tanh(x) if i % 2 else layers.scale(x, 1.5, bias=0.25)
    return x


def test_a_chain_is_one_call():
    y = chain(fluid.data("x", [None, 3]))
    text = source(fluid.Executor(jit=True), [y], x=np.ones((2, 3), "float32"))
    assert outside(text) == [] and text.count("if native(") == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, row, column: layers.tanh(x * x + row) * layers.sigmoid(layers.elementwise_add(x, column, axis=0)),
        lambda x, row, column: layers.elementwise_mul(x + row, column, axis=0) + layers.square(x),
        lambda x, row, column: layers.logsigmoid(x),
        lambda x, row, column: layers.matmul(x, layers.elementwise_add(x, column, axis=0), transpose_y=True),
    ],
)
def test_loops_and_products_of_many_elements_are_in_the_call_with_their_bits(function, dtype):
    sizes = {"x": [90, 120], "row": [120], "column": [90]}
    feed = {name: np.random.RandomState(7).uniform(-2, 2, size).astype(dtype) for name, size in sizes.items()}
    y = function(*[fluid.data(name, size, dtype) for name, size in sizes.items()])
    executor, fetch = fluid.Executor(jit=True), [layers.scale(y, 2.0)]
    found = [bits(run(executor, fetch, **feed)) for _ in range(3)]
    assert found[1:] == found[:1] * 2
    assert outside(source(executor, fetch, **feed)) == []


def test_results_are_the_callers_own_in_every_run():
    x = fluid.data("x", [None, 3])
    fetch = [chain(x), layers.reshape(chain(x, 2), [-1]), layers.scale(x, 1.0)]
    executor, feed = fluid.Executor(jit=True), np.ones((2, 3), "float32")
    found = [run(executor, fetch, x=feed * i) for i in range(5)]
    for i, values in enumerate(found):
        assert bits(values) == bits(run(fluid.Executor(jit=False), fetch, x=feed * i))
        assert not any(np.may_share_memory(a, b) for other in found[:i] for a in values for b in other)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.T.copy().T,
        lambda x: np.repeat(x, 2, 1)[:, ::2],
        lambda x: x[::-1][::-1].view(type("Of", (np.ndarray,), {})),
    ],
)
def test_arrays_that_lie_otherwise_go_to_the_ordinary_calls(other):
    y = chain(fluid.data("x", [None, 3]))
    executor, x = fluid.Executor(jit=True), np.random.default_rng(0).standard_normal((4, 3), np.float32)
    expected = bits(run(fluid.Executor(jit=False), [y], x=x))
    for feed in (x, x, other(x), x, other(x)):
        assert bits(run(executor, [y], x=feed)) == expected


def test_state_is_found_where_it_is_in_each_run():
    w = layers.create_parameter([2, 3], "float32", name="w")
    y = chain(layers.elementwise_mul(fluid.data("x", [2, 3]), w))
    executor, scope, x = fluid.Executor(jit=True), fluid.Scope(), np.ones((2, 3), "float32")
    for i in range(5):
        scope.var("w").get_tensor().set(np.full((2, 3), i, "float32"), fluid.CPUPlace())
        (found,) = run(executor, [y], scope, x=x)
        assert bits([found]) == bits(run(fluid.Executor(jit=False), [y], scope, x=x))


def test_steps_around_a_table_see_what_it_wrote():
    x = fluid.data("x", [None, 4])
    h = chain(x)
    sorted_, order = layers.argsort(h)
    y = layers.elementwise_add(chain(sorted_), h)
    executor, feed = fluid.Executor(jit=True), np.random.default_rng(0).standard_normal((3, 4), np.float32)
    assert "argsort" in " ".join(outside(source(executor, [y, order], x=feed)))
    assert bits(run(executor, [y, order], x=feed)) == bits(run(fluid.Executor(jit=False), [y, order], x=feed))


def test_runs_at_the_same_time_have_memory_of_their_own():
    y = chain(fluid.data("x", [None, 3]), 200)
    executor = fluid.Executor(jit=True)
    feeds = [np.full((2, 3), i, "float32") for i in range(8)]
    expected = [bits(run(fluid.Executor(jit=False), [y], x=feed)) for feed in feeds]
    program = fluid.default_main_program()

    def runs(feed):
        return lambda: [bits(executor.run(program, feed={"x": feed}, fetch_list=[y])) for _ in range(50)]

    for found, wanted in zip(at_the_same_time([runs(feed) for feed in feeds]), expected, strict=True):
        assert found == [wanted] * 50


# Errors and switches


def test_an_error_behind_a_table_names_the_operator():
    x = fluid.data("x", [None, 3])
    label = fluid.data("label", [None, 1], "int64")
    loss = chain(layers.cross_entropy(layers.softmax(chain(x)), label))
    executor, feed = fluid.Executor(jit=True), np.ones((2, 3), "float32")
    for _ in range(3):
        run(executor, [loss], x=feed, label=np.array([[0], [2]]))
        with pytest.raises(ExecutionError, match=r"cross_entropy.*Label is 3"):
            run(executor, [loss], x=feed, label=np.array([[0], [3]]))


def test_there_are_no_tables_without_jit_nor_in_checked_runs():
    y = chain(fluid.data("x", [None, 3]))
    x = np.ones((2, 3), "float32")
    assert "native" not in source(fluid.Executor(jit=False), [y], x=x)
    assert "native" not in source(fluid.Executor(jit=True, check=True), [y], x=x)
    strategy = fluid.BuildStrategy()
    strategy.jit = False
    program = fluid.CompiledProgram(fluid.default_main_program(), build_strategy=strategy)
    executor = fluid.Executor(jit=True)
    for _ in range(3):
        executor.run(program, feed={"x": x}, fetch_list=[y])
    assert "native" not in executor.plan_for(program, {"x": x}, [y]).compiled.source


def test_a_plan_forms_tables_only_when_it_is_run_often(monkeypatch):
    monkeypatch.setattr(codegen, "RUNS_BEFORE_NATIVE", 4)
    y = chain(fluid.data("x", [None, 3]))
    executor, x, found = fluid.Executor(jit=True), np.ones((2, 3), "float32"), []
    for _ in range(5):
        run(executor, [y], x=x)
        found.append("native" in executor.plan_for(fluid.default_main_program(), {"x": x}, [y]).compiled.source)
    assert found == [False, False, False, True, True]


NORMALIZATIONS = {
    "batch_norm": (layers.batch_norm, (8, 6, 5, 7)),
    "batch_norm of rows": (layers.batch_norm, (40, 67)),
    "batch_norm, channels last": (lambda x: layers.batch_norm(x, data_layout="NHWC"), (8, 5, 7, 6)),
    "batch_norm, given": (lambda x: layers.batch_norm(x, use_global_stats=True), (8, 6, 5, 7)),
    "batch_norm of rows, given": (lambda x: layers.batch_norm(x, use_global_stats=True), (40, 67)),
    "layer_norm": (layers.layer_norm, (40, 67)),
    "layer_norm of images": (layers.layer_norm, (8, 6, 5, 7)),
    "layer_norm without parameters": (lambda x: layers.layer_norm(x, scale=False, shift=False), (40, 67)),
    "group_norm": (lambda x: layers.group_norm(x, 3), (8, 6, 5, 7)),
    "instance_norm": (layers.instance_norm, (8, 6, 5, 7)),
    "l2_normalize": (lambda x: layers.l2_normalize(x, -1), (40, 67)),
}


@pytest.mark.parametrize("what", NORMALIZATIONS)
def test_a_normalization_and_its_gradient_are_in_the_call(what):
    layer, shape = NORMALIZATIONS[what]
    x = fluid.data("x", shape)
    x.stop_gradient = False
    y = layer(x)
    parameters = [each for each in fluid.default_main_program().all_parameters() if each.trainable]
    fetch = [y, *fluid.gradients([layers.reduce_sum(layers.square(y + x))], [x, *parameters])]
    executor, scope = fluid.Executor(jit=True), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    feed = {"x": np.random.default_rng(0).standard_normal(shape).astype("float32")}
    start = {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}
    results = []
    for _ in range(3):
        for name, array in start.items():
            scope.var(name).get_tensor().set(array, fluid.CPUPlace())
        results.append(bits(run(executor, fetch, scope, **feed)))
    assert results[0] == results[1] == results[2]
    text = executor.plan_for(fluid.default_main_program(), feed, fetch).compiled.source
    assert not any("norm" in name for name in outside(text)), text


DRAWS = {
    "dropout": lambda x: layers.dropout(x, 0.3, dropout_implementation="upscale_in_train"),
    "dropout, seeded": lambda x: layers.dropout(x, 0.3, seed=3),
    "uniform_random": lambda x: x * layers.uniform_random([8, 6], min=0.0),
    "uniform_random of float64": lambda x: x * layers.cast(layers.uniform_random([8, 6], "float64"), "float32"),
    "gaussian_random": lambda x: x + layers.gaussian_random([8, 6], std=0.1),
    "gaussian_random, seeded": lambda x: x + layers.gaussian_random([8, 6], seed=5),
    "several": lambda x: layers.dropout(layers.gaussian_random([8, 6]) + layers.dropout(x, 0.3), 0.5),
}


@pytest.mark.skipif(sys.platform == "win32", reason="NumPy exports no functions there")
@pytest.mark.parametrize("what", DRAWS)
def test_random_numbers_are_those_of_the_generator_in_a_table(what):
    x = fluid.data("x", [8, 6])
    x.stop_gradient = False
    y = layers.tanh(DRAWS[what](layers.tanh(x)))
    fetch = [y, *fluid.gradients([y], [x])]
    feed, found = np.random.default_rng(1).standard_normal((8, 6), np.float32), []
    for jit in (True, False):
        executor = fluid.Executor(jit=jit)
        for seed in (5, 6):  # a new seed replaces the generator
            executor._rng = np.random.default_rng(seed)
            found.append([bits(run(executor, fetch, x=feed)) for _ in range(4)])
        if jit:
            assert not outside(executor.plan_for(fluid.default_main_program(), {"x": feed}, fetch).compiled.source)
    assert found[:2] == found[2:]
    assert (found[0] == found[1]) == ("seeded" in what)


def test_numbers_that_were_drawn_before_a_label_that_is_ignored_are_not_drawn_again():
    x, label = fluid.data("x", [8, 6]), fluid.data("label", [8, 1], "int64")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.dropout(x, 0.3), label))
    feed, labels = np.random.default_rng(1).standard_normal((8, 6), np.float32), np.arange(8)[:, None] % 6
    found = []
    for jit in (True, False):
        executor = fluid.Executor(jit=jit)
        executor._rng = np.random.default_rng(5)
        found.append([run(executor, [loss], x=feed, label=labels)[0] for _ in range(3)])
        found[-1] += [run(executor, [loss], x=feed, label=np.where(labels == 2, -100, labels))[0] for _ in range(3)]
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("named", ["softmax_with_cross_entropy", "fused_mean_loss"])
@pytest.mark.parametrize("classes", [3, 600])
def test_a_label_that_is_no_class_is_found_in_a_table(classes, named, dtype):
    x = fluid.data("x", [None, 3])
    label = fluid.data("label", [None, 1], dtype)
    rows = layers.softmax_with_cross_entropy(layers.fc(chain(x), classes), label)
    loss = layers.mean(rows)
    fetch = [loss, rows] if named == "softmax_with_cross_entropy" else [loss]  # fetched rows keep operators apart
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor, scope = fluid.Executor(jit=True), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    feed = np.random.default_rng(0).standard_normal((2, 3), np.float32)
    for _ in range(3):
        run(executor, fetch, scope, x=feed, label=np.array([[0], [2]], dtype))
    before = np.array(scope.find_var("fc_0.w_0").get_tensor())
    text = executor.plan_for(fluid.default_main_program(), {"x": feed, "label": np.array([[0], [2]], dtype)}, fetch)
    assert not any(named in name for name in outside(text.compiled.source))
    for wrong in (classes, -1):
        with pytest.raises(ExecutionError, match=rf"{named}.*Label is {wrong} in row 1") as caught:
            run(executor, fetch, scope, x=feed, label=np.array([[0], [wrong]], dtype))
        assert "layers.softmax_with_cross_entropy(" in str(caught.value)
    assert np.array_equal(np.array(scope.find_var("fc_0.w_0").get_tensor()), before)
    run(executor, fetch, scope, x=feed, label=np.array([[0], [2]], dtype))
    assert not np.array_equal(np.array(scope.find_var("fc_0.w_0").get_tensor()), before)


BY_NUMBER = {
    "cross_entropy": lambda w, i: layers.cross_entropy(layers.softmax(layers.reshape(w, [2, 3])), i),
    "cross_entropy of weights": lambda w, i: layers.cross_entropy(
        layers.softmax(layers.reshape(w, [2, 3])), layers.label_smooth(layers.one_hot(i, 3)), soft_label=True
    ),
    "softmax_with_cross_entropy of weights": lambda w, i: layers.softmax_with_cross_entropy(
        layers.reshape(w, [2, 3]), layers.one_hot(i, 3), soft_label=True
    ),
    "one_hot": lambda w, i: layers.mul(layers.one_hot(i, 3), w),
    "gather": lambda w, i: layers.gather(w, i),
    "gather, adding": lambda w, i: layers.gather(w, i, overwrite=False),
    "gather_nd": lambda w, i: layers.gather_nd(w, i),
    "index_sample": lambda w, i: layers.index_sample(layers.reshape(w, [2, 3]), i),
}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("named", BY_NUMBER)
def test_numbers_pick_elements_and_rows_in_a_table(named, dtype):
    w, i = fluid.data("w", [3, 2]), fluid.data("i", [2, 1], dtype)
    w.stop_gradient = False
    found = BY_NUMBER[named](layers.scale(chain(w), 2.0), i)
    fetch = [found, *fluid.gradients([layers.reduce_sum(layers.square(found))], [w])]
    feed = np.random.default_rng(0).standard_normal((3, 2), np.float32)
    executor = fluid.Executor(jit=True)
    for numbers in ([[0], [2]], [[1], [1]]):
        given = np.array(numbers, dtype)
        assert outside(source(executor, fetch, w=feed, i=given)) == []
        assert bits(run(executor, fetch, w=feed, i=given)) == bits(run(fluid.Executor(), fetch, w=feed, i=given))
    type = "one_hot" if "weights" in named else named.split(",")[0]
    with pytest.raises(ExecutionError, match=rf"^{type}2?: .* 3"):
        run(executor, fetch, w=feed, i=np.array([[0], [3]], dtype))
    assert bits(run(executor, fetch, w=feed, i=given)) == bits(run(fluid.Executor(), fetch, w=feed, i=given))


@pytest.mark.parametrize("rows", [5, 4000])
@pytest.mark.parametrize("padding", [None, 1, -1])
def test_rows_are_looked_up_in_a_table_whatever_its_size(padding, rows):
    fluid.default_startup_program().random_seed = 1
    ids = fluid.data("ids", [3, 2, 1], "int64")
    found = layers.embedding(ids, [rows, 4], padding_idx=padding)
    loss = layers.reduce_sum(layers.square(layers.tanh(found)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    given = np.array([[0, 1], [1, 4], [0, rows - 1]]).reshape(3, 2, 1)
    seen = []
    for jit in (True, False):
        executor, scope = fluid.Executor(jit=jit), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        seen.append([bits(run(executor, [found, loss, "embedding_0.w_0"], scope, ids=given)) for _ in range(4)])
        with pytest.raises(ExecutionError, match=r"lookup_table: W has .* rows, but element 1 of Ids is -7"):
            run(executor, [found], scope, ids=np.array([[0, -7], [0, 0], [0, 0]]).reshape(3, 2, 1))
    assert seen[0] == seen[1]


def test_a_label_that_is_ignored_finds_what_the_table_has_written_over():
    """The places of joined values are taken by later ones, while what was there is computed before the table."""
    x, wide, w, last = (
        fluid.data(name, shape)
        for name, shape in (("x", [32, 2048]), ("wide", [2048, 32]), ("w", [32, 32]), ("last", [32, 4]))
    )
    label = fluid.data("label", [64, 1], "int64")
    h = layers.concat([layers.matmul(x, wide), layers.matmul(layers.scale(x, 2.0), wide)], axis=0)
    for _ in range(3):
        first, second = layers.split(layers.matmul(layers.tanh(h), w), 2, dim=0)
        h = layers.concat([layers.matmul(first, w), layers.matmul(second, w)], axis=0)
    loss = layers.softmax_with_cross_entropy(layers.matmul(h, last), label, ignore_index=-100)
    rng = np.random.default_rng(0)
    feed = {each.name: rng.standard_normal(each.shape, np.float32) / 8 for each in (x, wide, w, last)}
    labels = np.zeros((64, 1), np.int64)
    executor = fluid.Executor(jit=True)
    assert "native" in source(executor, [loss], **feed, label=labels)
    labels[1] = -100
    expected = run(fluid.Executor(jit=False), [loss], **feed, label=labels)
    assert bits(run(executor, [loss], **feed, label=labels)) == bits(expected)


def test_an_array_that_is_fed_twice_has_the_product_of_one():
    """NumPy multiplies a matrix with its transpose by a function that rounds otherwise."""
    x, y = fluid.data("x", [33, 17]), fluid.data("y", [33, 17])
    products = [layers.matmul(x, y, transpose_y=True), layers.matmul(layers.reshape(x, [33, 17]), y, transpose_y=True)]
    feed = np.random.default_rng(0).standard_normal((33, 17), np.float32)
    executor = fluid.Executor(jit=True)
    found = [bits(run(executor, products, x=feed, y=feed)) for _ in range(3)]
    assert found == [bits(run(fluid.Executor(jit=False), products, x=feed, y=feed))] * 3


MEASURING = {
    "lars_momentum": lambda: fluid.optimizer.LarsMomentum(0.5, 0.9, 0.1, 0.01),
    "lamb": lambda: fluid.optimizer.Lamb(0.1, 0.01),
}


@pytest.mark.parametrize("named", MEASURING)
@pytest.mark.parametrize("special", [1.0, 0.0, np.inf, np.nan])
def test_updates_that_measure_whole_arrays_are_made_in_a_table(named, special):
    x, found, feed = fluid.data("x", [4, 6]), [], np.random.default_rng(0).standard_normal((4, 6), np.float32)
    fluid.default_startup_program().random_seed = 1
    h = layers.fc(x, 70, act="tanh")
    loss = layers.mean(layers.fc(h, 1))
    MEASURING[named]().minimize(loss)
    names = [var.name for var in fluid.default_main_program().list_vars() if var.persistable]
    for jit in (True, False):
        executor, scope = fluid.Executor(jit=jit), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        for factor in (1, 1, 1, 1, special, special):
            run(executor, [loss], scope, x=feed * np.float32(factor))
        found.append([bits([np.array(scope.find_var(name).get_tensor())]) for name in names])
        if jit:
            text = executor.plan_for(fluid.default_main_program(), {"x": feed}, [loss]).compiled.source
            assert not any(named in name for name in outside(text))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [[2, 3, 5], [2, 1, 4, 5]])
def test_losses_of_rows_in_several_dimensions_are_made_in_a_table(shape, dtype):
    x, label = fluid.data("x", shape, dtype), fluid.data("label", [*shape[:-1], 1], "int64")
    x.stop_gradient = False
    rows = layers.softmax_with_cross_entropy(layers.tanh(chain(x)), label)
    loss = layers.reduce_sum(layers.square(rows))
    fetch = [rows, loss, *fluid.gradients([loss], [x])]
    rng = np.random.default_rng(0)
    feed = {"x": rng.standard_normal(shape).astype(dtype), "label": rng.integers(0, shape[-1], label.shape)}
    executor = fluid.Executor(jit=True)
    assert outside(source(executor, fetch, **feed)) == []
    for factor in (1, 100, np.nan):
        given = {**feed, "x": (feed["x"] * factor).astype(dtype)}
        assert bits(run(executor, fetch, **given)) == bits(run(fluid.Executor(jit=False), fetch, **given))
    feed["label"][1] = 5
    with pytest.raises(ExecutionError, match=r"Label is 5 in row \[1, "):
        run(executor, fetch, **feed)
