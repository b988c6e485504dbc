"""Edge facts about kernels: buffers, quicker variants, the other array module, bounds, norms, sums."""

import decimal
import itertools
import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from asserting import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_calls import OTHER, array_type, calls, each_array, flat
from sampled import DETERMINISTIC, each

import minigraph as fluid
from minigraph.errors import ExecutionError, OpError
from minigraph.kernels import find_kernel, find_specializer
from minigraph.kernels.activation import sigmoid
from minigraph.kernels.clip import clip_by_global_norm, clip_by_norm, clip_by_norm_grad, norm
from minigraph.kernels.elementwise import elementwise_div, elementwise_max, elementwise_min
from minigraph.kernels.metric import accuracy, top_k
from minigraph.kernels.optimizer import sgd
from minigraph.kernels.reduce import mean, reduce_max, reduce_min
from minigraph.kernels.reduce import sum as sum_kernel
from minigraph.kernels.sums import add_over, sum_of_rows, sum_of_squares

FLOATS = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])


pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("like_an_executor")]


def assert_all_same_bits(found, expected):
    for value, other in zip(flat(asked_for(found, expected)), flat(expected), strict=True):
        assert_same_bits(value, other)


def asked_for(found, expected):
    """What a kernel has computed, without the outputs that are left out here."""
    return [value for value, wanted in zip(found, expected, strict=True) if wanted is not None]


# Buffers and quicker functions


def garbage(array):
    return np.full_like(array, 77)


@each(DETERMINISTIC)
def test_a_buffer_receives_the_same_bits(sample, dtype):
    for call in calls(sample, dtype):
        functions = [call] if call.kernel.takes_out else []
        functions += [quicker] if call.kernel.takes_out and (quicker := call.quicker()) else []
        for function in functions:
            buffers = [each_array(garbage, entry) for entry in call.expected]
            found = function(out=call.out(buffers))
            assert_all_same_bits(found, call.expected)
            for entry, buffer in zip(found, buffers, strict=True):
                assert buffer is None or all(map(operator.is_, flat([entry]), flat([buffer])))


@each(DETERMINISTIC)
def test_a_buffer_may_be_an_input(sample, dtype):
    for call in calls(sample, dtype):
        if not call.kernel.takes_out or any(isinstance(entry, list) for entry in call.expected):
            continue
        for places in shared_places(call):
            inputs = [each_array(np.copy, entry) for entry in call.inputs]
            arrays = flat(inputs)
            buffers = [None if i is None else arrays[i] for i in places]
            assert_all_same_bits(call(inputs=inputs, out=call.out(buffers)), call.expected)


def shared_places(call):
    """For each output the number of an input to write over: an update's own state, or any of the same type."""
    arrays = flat(call.inputs)
    choices = []
    for slot, expected in zip(call.op.definition.outputs, call.expected, strict=True):
        # Fluid's SquaredAccumOut belongs to SquaredAccumulator.
        base = slot.name.removesuffix("Out") if slot.name.endswith("Out") and slot.name != "DDOut" else ""
        own = next((names for name, names in call.op.inputs.items() if base and name.startswith(base)), None)
        if expected is None:
            choices.append([None])
        elif own:
            names = [name for names in call.op.inputs.values() for name in names]
            choices.append([names.index(own[0])])
        else:
            choices.append([i for i, a in enumerate(arrays) if array_type(a) == array_type(expected)])
    return [places for places in itertools.product(*choices) if len(set(places)) == len(places)]


@each(DETERMINISTIC)
def test_a_quicker_function_gives_the_bits_of_the_kernel(sample, dtype):
    for call in calls(sample, dtype):
        for xp in (np, OTHER):
            quicker = call.quicker(xp)
            if quicker is not None:
                assert_all_same_bits(quicker(), call(xp))


@each(DETERMINISTIC)
def test_another_array_module_agrees(sample, dtype):
    tolerance = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3}[dtype]
    for call in calls(sample, dtype):
        for value, expected in zip(flat(asked_for(call(OTHER), call.expected)), flat(call.expected), strict=True):
            assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
            assert np.allclose(value, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


# Clipping by value


def append(type, inputs, attrs):
    """One operator on data variables of the types of `inputs`; returns the program and its output."""
    program = fluid.Program()
    block = program.global_block()
    for slot, array in inputs.items():
        block.create_var(name=slot, shape=array.shape, dtype=array.dtype)
    out = block.create_var(name="result")
    block.append_op(type, {slot: slot for slot in inputs}, {"Out": out}, attrs)
    return program, out


def run(type, inputs, **attrs):
    program, out = append(type, inputs, attrs)
    return fluid.Executor().run(program, feed=inputs, fetch_list=[out])[0]


@FLOATS
def test_clip_keeps_nan_and_brings_infinity_to_the_bound(dtype):
    x = np.array([np.nan, np.inf, -np.inf, 0.25, 0.5, -0.75], dtype)
    expected = np.array([np.nan, 0.5, -0.75, 0.25, 0.5, -0.75], dtype)
    assert np.array_equal(run("clip", {"X": x}, min=-0.75, max=0.5), expected, equal_nan=True)


def test_a_bias_of_zero_leaves_minus_zero():
    for dtype in ("float16", "float32", "float64"):
        x = fluid.data(f"x_{dtype}", [3], dtype)
        (y,) = fluid.Executor().run(
            feed={x.name: np.array([-0.0, 0.0, 1.0], dtype)}, fetch_list=[fluid.layers.scale(x)]
        )
        assert list(np.signbit(y)) == [True, False, False]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (np.nan, 1.0), (0.0, np.nan)])
def test_clip_needs_min_below_max(low, high):
    x = np.zeros(3, "float32")
    with pytest.raises(OpError, match="min must be below max"):
        append("clip", {"X": x}, {"min": low, "max": high})
    bounds = {"Min": np.array([low], "float32"), "Max": np.array([high], "float32")}
    with pytest.raises(ExecutionError, match="Min must be below Max"):
        run("clip", {"X": x, **bounds}, min=-1.0, max=1.0)


def test_the_gradient_of_clip_is_zero_at_a_bound():
    x = np.array([-1, -0.5, 0, 1, 2, np.nan], "float32")
    d_x = find_kernel("clip_grad", "cpu").function(np, x, None, None, np.ones_like(x), min=-1.0, max=1.0)
    assert d_x.tolist() == [0, 1, 1, 0, 0, 0]


# Clipping by norm


def exact_norm(x):
    """The norm of the numbers as they are stored, to 60 digits."""
    with decimal.localcontext(decimal.Context(prec=60)):
        total = sum(Fraction(float(v)) ** 2 for v in np.ravel(x))
        return (decimal.Decimal(total.numerator) / decimal.Decimal(total.denominator)).sqrt()


def exactly_clipped(x, threshold):
    """``x * threshold / norm`` to 60 digits, then rounded to the dtype of `x`."""
    with decimal.localcontext(decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))):
        factor = decimal.Decimal(threshold) / exact_norm(x)
        return (
            np.array([float(decimal.Decimal(float(v)) * factor) for v in np.ravel(x)]).reshape(x.shape).astype(x.dtype)
        )


def assert_within_two_ulps(found, expected):
    assert found.dtype == expected.dtype
    assert (np.abs(found.astype("float64") - expected) <= 2 * np.spacing(np.abs(expected)).astype("float64")).all()


EXTREME = {
    "float32 1e30": np.array([1e30, -2e30, 0], "float32"),
    "float32 norm beyond the range": np.full(64, 3e38, "float32"),
    "float32 1e-30": np.array([1e-30, 2e-30, -3e-30], "float32"),
    "float32 denormal": np.array([1e-40, 3e-45, 0], "float32"),
    "float32 many of 1e-30": np.full((100, 100), 1e-30, "float32"),
    "float32 many of 1e25": np.full((100, 100), 1e25, "float32"),
    "float32 large and small": np.array([1e30, 1e-30, 1], "float32"),
    "float64 1e200": np.array([1e200, -3e200], "float64"),
    "float64 norm beyond the range": np.full(64, 1.7e308, "float64"),
    "float64 1e-200": np.array([1e-200, 2e-200], "float64"),
    "float64 denormal": np.array([5e-324, -2e-320], "float64"),
    "float64 large and small": np.array([1e308, 1e-308, 1], "float64"),
    "float16 largest": np.full(64, 65504, "float16"),
    "float16 denormal": np.array([6e-8, 1e-7], "float16"),
    "float16 200s": np.full(64, 200, "float16"),
}


@pytest.mark.parametrize("xp", [np, OTHER], ids=["numpy", "other"])
@pytest.mark.parametrize("x", EXTREME.values(), ids=EXTREME)
def test_norms_neither_overflow_nor_underflow(x, xp):
    scale, ratio = norm(xp, [x])
    with decimal.localcontext(decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))):
        found = decimal.Decimal(float(scale)) * decimal.Decimal(float(ratio))
        assert abs(found / exact_norm(x) - 1) < 1e-14


@pytest.mark.laws
@pytest.mark.parametrize("xp", [np, OTHER], ids=["numpy", "other"])
@pytest.mark.parametrize("times", [1e-3, 0.5, 2.0])
@pytest.mark.parametrize("x", EXTREME.values(), ids=EXTREME)
def test_extreme_values_are_scaled_or_left_alone(x, times, xp):
    with decimal.localcontext(decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))):
        threshold = float(exact_norm(x) * decimal.Decimal(times))
    for found in (
        clip_by_norm(xp, x, max_norm=threshold),
        clip_by_global_norm(xp, [x], np.array([threshold]))[0][0],
        clip_by_global_norm(xp, [x, np.zeros(3, "float64")], np.array([threshold]))[0][0],
    ):
        if times > 1 or not 0 < threshold < np.inf:
            assert_same_bits(found, x) if threshold > 0 else None
        else:
            assert_within_two_ulps(found, exactly_clipped(x, threshold))


@pytest.mark.slow
@pytest.mark.parametrize("x", EXTREME.values(), ids=EXTREME)
def test_the_threshold_may_be_far_from_the_values(x):
    for threshold in (1e-44, 1e-30, 1e30):
        expected = x if exact_norm(x) <= threshold else exactly_clipped(x, threshold)
        assert_within_two_ulps(clip_by_norm(np, x, max_norm=threshold), expected)


@FLOATS
@pytest.mark.parametrize("xp", [np, OTHER], ids=["numpy", "other"])
def test_a_norm_at_or_under_the_threshold_changes_no_bit(dtype, xp):
    x = np.array([3, -4, 0, -0.0], dtype)
    for threshold in (5.0, 6.0, math.inf):
        assert_same_bits(clip_by_norm(xp, x, max_norm=threshold), x)
        (found,), total = clip_by_global_norm(xp, [x], np.array([threshold], dtype))
        assert_same_bits(found, x)
        assert_same_bits(total, np.array([5], dtype))
    zeros = np.zeros((2, 3), dtype)
    assert_same_bits(clip_by_norm(xp, zeros, max_norm=1e-30), zeros)


@pytest.mark.slow
@given(
    hnp.arrays(
        np.float32, hnp.array_shapes(max_dims=2, max_side=6), elements=st.floats(-(2.0**127), 2.0**127, width=32)
    ),
    st.floats(1e-30, 1e30),
)
def test_clipping_never_lengthens_and_never_turns(x, threshold):
    y = clip_by_norm(np, x, max_norm=threshold)
    length = exact_norm(x)
    if length <= decimal.Decimal(threshold) * decimal.Decimal("0.9999999999"):
        assert_same_bits(y, x)
    else:
        assert exact_norm(y) <= decimal.Decimal(threshold) * decimal.Decimal("1.000001") + decimal.Decimal("1e-44")
        assert (np.sign(y) * np.sign(x) >= 0).all()


@pytest.mark.parametrize("xp", [np, OTHER], ids=["numpy", "other"])
@FLOATS
def test_nan_and_infinity_stay_visible(dtype, xp):
    with np.errstate(all="ignore"):
        nan = clip_by_norm(xp, np.array([1, np.nan, np.inf], dtype), max_norm=1.0)
        inf = clip_by_norm(xp, np.array([1, -2, np.inf], dtype), max_norm=1.0)
        finite = np.array([1, 2], "float32")
        (with_nan, beside_nan), _ = clip_by_global_norm(xp, [np.array([np.nan, 1], dtype), finite], np.array([1.0]))
        (with_inf, beside_inf), total = clip_by_global_norm(
            xp, [np.array([-np.inf, 1], dtype), finite], np.array([1.0])
        )
    assert np.isnan(nan).all() and np.isnan(with_nan).all() and np.isnan(beside_nan).all()
    assert np.array_equal(inf, np.array([0, 0, np.nan], dtype), equal_nan=True)
    assert np.array_equal(with_inf, np.array([np.nan, 0], dtype), equal_nan=True)
    assert beside_inf.tolist() == [0, 0]
    assert total == np.inf


def test_a_global_norm_is_the_norm_of_everything_together():
    rng = np.random.default_rng(3)
    xs = [rng.standard_normal((3, 4)).astype("float32"), rng.standard_normal(7), np.zeros((0, 2), "float32"),
          rng.standard_normal(5).astype("float16")]  # fmt: skip
    clipped, total = clip_by_global_norm(np, xs, np.array([0.5], "float32"))
    joint = math.sqrt(sum(float(np.vdot(x.astype("float64"), x.astype("float64"))) for x in xs))
    assert total.dtype == np.float32
    assert total == pytest.approx(joint, rel=1e-7)
    for y, x in zip(clipped, xs, strict=True):
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        assert np.allclose(y, x * (0.5 / joint), rtol=1e-3 if x.dtype == np.float16 else 1e-6)


def test_a_global_norm_of_nothing_is_zero():
    for xp in (np, OTHER):
        clipped, total = clip_by_global_norm(xp, [], np.array([1], "float32"))
        assert clipped == [] and total.tolist() == [0]


@pytest.mark.parametrize("max_norm", [0.0, -1.0, np.nan])
def test_a_norm_can_only_be_clipped_to_something_positive(max_norm):
    with pytest.raises(OpError, match="max_norm must be positive"):
        append("clip_by_norm", {"X": np.zeros(3, "float32")}, {"max_norm": max_norm})


@pytest.mark.parametrize("xp", [np, OTHER], ids=["numpy", "other"])
def test_the_gradient_of_clip_by_norm_is_the_identity_up_to_the_threshold(xp):
    d_out = np.array([1, 2, 3], "float32")
    for x in (np.zeros(3, "float32"), np.array([3, 0, 4], "float32")):
        assert_same_bits(clip_by_norm_grad(xp, x, d_out, max_norm=5.0), d_out)


@pytest.mark.parametrize("x", EXTREME.values(), ids=EXTREME)
def test_the_gradient_of_clip_by_norm_is_across_its_input(x):
    d_out = np.linspace(1, 2, x.size).reshape(x.shape).astype(x.dtype)
    with decimal.localcontext(decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))):
        threshold = float(exact_norm(x) / 2)
    if not 0 < threshold < np.inf:
        return
    d_x = clip_by_norm_grad(np, x, d_out, max_norm=threshold)
    unit = x / np.abs(x).max().astype("float64")
    assert np.isfinite(d_x).all()
    assert abs(np.vdot(unit, d_x.astype("float64"))) < 4 * np.finfo(x.dtype).eps * x.size


# Sums


@pytest.mark.slow
def test_a_sum_of_squares_of_many_is_that_of_float64():
    rng = np.random.default_rng(5)
    for x in (np.full(300_001, 0.1, "float32"), rng.standard_normal(300_001).astype("float32"),
              rng.standard_normal((3, 20_001)).astype("float32").T, np.full(20_001, 300, "float16")):  # fmt: skip
        expected = math.fsum((x.astype("float64") ** 2).ravel().tolist())
        assert sum_of_squares(np, x) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("shape", [(200_000, 3), (50, 4000, 3), (4100, 1), (2048, 7)])
def test_many_rows_are_added_as_exactly_as_a_long_row(shape):
    x = np.full(shape, 0.1, "float32")
    axes = tuple(range(len(shape) - 1))
    rows = math.prod(shape[:-1])
    total = add_over(np, x, axes)
    assert total.shape == shape[-1:]
    assert np.allclose(total, rows * float(np.float32(0.1)), rtol=2e-6, atol=0)
    kept = add_over(np, x, axes, keepdims=True, divisor=rows)
    assert kept.shape == (1,) * len(axes) + shape[-1:]
    assert np.allclose(kept, 0.1, rtol=2e-6, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape", [(0, 5), (5, 0), (2000, 0), (1, 1), (7, 1), (1, 9), (128, 10), (1023, 6), (1024, 6), (3001, 130)]
)
def test_rows_are_added_within_a_few_roundings_whatever_their_layout(shape, dtype):
    x = np.random.default_rng(8).lognormal(0, 2, shape).astype(dtype)
    exact = np.array([math.fsum(column) for column in x.T.tolist()])
    for rows in (x, np.asfortranarray(x)):
        found, out = sum_of_rows(rows), np.full(shape[1], 7, dtype)
        assert (found.shape, found.dtype) == ((shape[1],), np.dtype(dtype))
        assert (np.abs(found - exact) <= 30 * np.finfo(dtype).eps * exact).all()
        assert sum_of_rows(rows, out) is out
        assert out.tobytes() == found.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((7, 1), (1,)), ((1, 9), (1,)), ((5, 1000), (1,)), ((3, 1030), (1,)), ((4, 3, 33, 31), (2, 3)),
        ((4, 3, 33, 31), (0, 2, 3)), ((4, 3, 33, 32), (0, 2, 3)), ((0, 5), (1,)), ((5, 0), (1,)), ((2, 3, 4), (0, 2)),
    ],
)  # fmt: skip
def test_last_dimensions_are_added_within_a_few_roundings_whatever_their_layout(shape, axes, dtype):
    x = np.random.default_rng(8).lognormal(0, 2, shape).astype(dtype)
    exact = np.sum(x.astype(np.longdouble), axis=axes)
    for laid in (x, np.asfortranarray(x)):
        found = add_over(np, laid, axes)
        assert (found.shape, found.dtype) == (exact.shape, np.dtype(dtype))
        assert (np.abs(found - exact) <= 30 * np.finfo(dtype).eps * exact).all()
        assert add_over(np, laid, axes, out=(out := np.full(exact.shape, 7, dtype))) is out
        assert out.tobytes() == found.tobytes()
        kept = add_over(np, laid, axes, keepdims=True)
        assert kept.shape == tuple(1 if i in axes else size for i, size in enumerate(shape))
        assert kept.tobytes() == found.tobytes()


@pytest.mark.parametrize("factor", [None, (1.0, 1.0, 8.0), (1.0, 1.0, 0.5)])
def test_a_long_vector_is_updated_in_pieces_with_the_bits_of_one(factor):
    rng, count = np.random.default_rng(9), 300_001
    param, grad, moment1 = (rng.standard_normal(count).astype("float32") for _ in range(3))
    moment2, power = rng.random(count).astype("float32"), np.array([0.5], "float32")
    rate, attrs = np.array([0.01], "float32"), {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}
    shrunk = grad * np.float32(1 / 8) if factor == (1.0, 1.0, 8.0) else grad
    adam = find_kernel("adam", "cpu").function
    expected = adam(np, param, shrunk, rate, moment1, moment2, power, power, None, None, None, **attrs)
    state = [[x.copy()] for x in (param, moment1, moment2, power, power)]
    find_kernel("merged_adam", "cpu").function(
        np, state[0], [grad], rate, *state[1:], None, None, None, None if factor is None else np.array(factor),
        sizes=(count,), out=tuple(state), **attrs,
    )  # fmt: skip
    for (found,), value in zip(state, expected, strict=True):
        assert found.tobytes() == value.tobytes()


def test_float16_is_summed_in_float32():
    x = np.full((4096, 2), 1, "float16")
    assert add_over(np, x, (0,)).tolist() == [4096, 4096]
    assert mean(np, np.full((1000, 100), 3, "float16")).tolist() == [3]
    assert sum_kernel(np, [np.array([2048], "float16"), *[np.array([1], "float16")] * 4]).tolist() == [2052]


def test_a_sum_may_write_over_any_of_its_terms():
    for position in range(4):
        xs = [np.array([10.0**i]) for i in range(4)]
        assert sum_kernel(np, xs, out=xs[position]) is xs[position]
        assert xs[position].tolist() == [1111]


@pytest.mark.parametrize(("dtype", "low", "high"), [("float32", -np.inf, np.inf), ("int32", -(2**31), 2**31 - 1)])
def test_the_extreme_of_nothing_is_the_neutral_number(dtype, low, high):
    attrs = {"dim": (0,), "keep_dim": False, "reduce_all": False, "out_dtype": -1}
    assert reduce_max(np, np.zeros((0, 2), dtype), **attrs).tolist() == [low, low]
    assert reduce_min(np, np.zeros((0, 2), dtype), **attrs).tolist() == [high, high]
    assert np.isnan(mean(np, np.zeros((0, 2), "float32"))).all()


def test_extremes_show_nan():
    x, y = np.array([np.nan, 1, np.nan], "float32"), np.array([1, np.nan, np.nan], "float32")
    for kernel in (elementwise_max, elementwise_min):
        assert np.isnan(kernel(np, x, y, axis=-1)).all()
    for kernel in (reduce_max, reduce_min):
        assert np.isnan(kernel(np, x, dim=(0,), keep_dim=False, reduce_all=True, out_dtype=-1)).all()


# Other facts


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integers_are_divided_toward_zero(dtype):
    numbers = np.arange(0 if dtype == "uint8" else -9, 10)
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(numbers, numbers[numbers != 0]))
    expected = [int(Fraction(int(a), int(b))) for a, b in zip(x, y, strict=True)]
    assert elementwise_div(np, x, y, axis=-1).tolist() == expected


def test_large_integers_are_divided_exactly():
    x, y = np.array([2**62 + 1, -(2**62) - 1]), np.array([1, 3])
    assert elementwise_div(np, x, y, axis=-1).tolist() == [2**62 + 1, -(2**62 // 3)]


def test_integer_division_by_zero_is_an_error():
    with pytest.raises(ExecutionError, match="integer division by zero"):
        run("elementwise_div", {"X": np.array([1, 2]), "Y": np.array([1, 0])})


@FLOATS
def test_sigmoid_does_not_overflow(dtype):
    x = np.array([-np.inf, -60000, -100, 0, 100, 60000, np.inf], dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y = sigmoid(np, x)
    assert np.allclose(y, [0, 0, 0, 0.5, 1, 1, 1], atol=1e-37 if dtype != "float16" else 0)


RECORDED_TIES = [
    ([0, 2, 2, 1, 0, 2, 1, 2, 2], 9, [7, 1, 8, 5, 2, 3, 6, 0, 4]),
    ([1, 1, 1, 2, 3, 3, 3], 7, [4, 6, 5, 3, 1, 0, 2]),
    ([1, 1, 0, 1, 2, 2, 2, 0, 2, 1], 10, [8, 4, 5, 6, 1, 3, 9, 0, 7, 2]),
    ([4, 3, 4, 3, 4, 0, 3, 3, 4], 7, [8, 4, 2, 0, 1, 3, 7]),
    ([1, 2, 1, 2, 2, 0, 2, 1, 0, 0, 2, 0], 10, [3, 4, 10, 1, 6, 7, 0, 2, 8, 9]),
    ([3, 1, 2, 2, 2, 2, 0, 2, 3], 8, [0, 8, 7, 4, 3, 5, 2, 1]),
    ([0, 0, 1, 1, 1, 1], 4, [4, 3, 5, 2]),
    ([2, 3, 2, 3, 3, 1, 4, 0, 1, 3], 10, [6, 3, 9, 1, 4, 0, 2, 8, 5, 7]),
    ([1, 2, 0, 2, 2, 1], 5, [3, 4, 1, 5, 0]),
    ([3, 3, 0, 4, 4, 0], 2, [4, 3]),
    ([3, 1, 1, 2, 1, 2, 5, 1, 2, 0, 1, 5, 3, 2, 2, 4, 0, 0, 5, 5], 4, [11, 6, 19, 18]),
    (
        [1, 4, 4, 1, 0, 1, 3, 4, 2, 0, 2, 1, 4, 3, 1, 1, 2, 2, 4, 2],
        16,
        [2, 1, 7, 18, 12, 13, 6, 8, 16, 10, 19, 17, 3, 15, 0, 5],
    ),
]
"""A row, how many elements to take, and which ones fluid 1.8.5 took on a CPU, in its order."""


@pytest.mark.parametrize(("row", "k", "expected"), RECORDED_TIES)
def test_top_k_takes_equal_elements_in_the_order_of_the_original(row, k, expected):
    x = np.array([row, range(len(row))], "float32")
    values, indices = top_k(np, x, None, k=k)
    assert indices.tolist() == [expected, list(range(len(row)))[::-1][:k]]
    assert np.array_equal(values, np.take_along_axis(x, indices, 1))


@pytest.mark.parametrize("module", [np, OTHER])
def test_top_k_takes_nan_first_and_the_first_of_equal_elements_beside_it(module):
    x = np.array([[1, np.nan, 3, 2, 3, 1], [0, -1, np.nan, np.inf, 0, np.nan]], "float32")
    values, indices = top_k(module, x, None, k=4)
    assert indices.tolist() == [[1, 2, 4, 3], [2, 5, 3, 0]]
    assert np.array_equal(values, np.take_along_axis(x, indices, 1), equal_nan=True)
    assert top_k(module, x[:, ::-1], None, k=1)[1].tolist() == [[4], [0]]


@pytest.mark.parametrize("k", [0, 4])
def test_top_k_has_no_more_than_a_row_holds(k):
    x = np.zeros((2, 3), "float32")
    with pytest.raises(OpError, match="k"):
        append("top_k", {"X": x}, {"k": k})
    with pytest.raises(ExecutionError, match=r"K must be in \[1, 3\]"):
        top_k(np, x, np.array([k]), k=1)


def test_the_accuracy_of_no_rows_is_zero():
    found = accuracy(np, None, np.zeros((0, 2), "int64"), np.zeros((0, 1), "int64"))
    assert [a.tolist() for a in found] == [[0], [0], [0]]


def test_a_wider_learning_rate_leaves_the_parameter_its_type():
    param, grad = np.ones(3, "float16"), np.ones(3, "float16")
    assert_same_bits(sgd(np, param, np.array([0.5], "float32"), grad, None), np.full(3, 0.5, "float16"))
    assert sgd(np, param, np.array([0.5], "float32"), grad, None, out=param) is param


def test_outer_products_of_a_batch_are_those_of_its_matrices():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 3, 1)).astype("float32"), rng.normal(size=(5, 1, 4)).astype("float32")
    matmul = find_kernel("matmul", "cpu").function
    found, buffer = matmul(np, x, y, transpose_X=False, transpose_Y=False, alpha=1.0), np.empty((5, 3, 4), "float32")
    assert np.array_equal(found, np.stack([np.outer(a, b) for a, b in zip(x, y, strict=True)]))
    assert matmul(np, x, y, transpose_X=False, transpose_Y=False, alpha=1.0, out=buffer) is buffer
    assert np.array_equal(buffer, found)


@pytest.mark.parametrize("type", ["elementwise_add_grad", "elementwise_mul_grad"])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("rows", [1, 4])
def test_quicker_gradients_of_unknown_sizes_broadcast_as_the_kernel_does(type, wanted, rows):
    random = np.random.RandomState(0)
    x, y, d = (random.randn(n, 3).astype("float32") for n in (4, rows, 4))
    unknown = array_type(np.empty((0, 3), "float32"))._replace(shape=(-1, 3))
    function = find_specializer(type)(np, unknown, unknown, unknown, axis=-1, wanted=wanted)
    expected = find_kernel(type, "cpu").function(np, x, y, d, axis=-1, wanted=wanted)
    for a, b in zip(function(x, y, d), expected, strict=True):
        assert a is b is None or a.tobytes() == b.tobytes()


def test_the_quicker_sum_adds_up_arrays_of_tensors_too():
    one = array_type(np.zeros(2, "float32"))
    add = find_specializer("sum")(np, [one, one])
    first, second = np.array([1, 2], "float32"), np.array([3, 4], "float32")
    found = add([[first, None], [second, first]])
    assert [each.tolist() for each in found] == [[4, 6], [1, 2]] and add([first, second]).tolist() == [4, 6]


@pytest.mark.parametrize("type", ["lars_momentum", "lamb"])
def test_the_rate_of_measured_updates_is_rounded_once(type):
    """The ratio of lengths is float64 and so is its product with the rate, whichever NumPy multiplies."""
    kernel, rng = find_kernel(type, "cpu").function, np.random.default_rng(0)
    for _ in range(50):
        param, grad = rng.standard_normal((2, 9)).astype(np.float32)
        rate, zeros, ones = np.array([0.1], np.float32), np.zeros(9, np.float32), np.ones(1, np.float32)
        if type == "lars_momentum":
            attrs = {"mu": 0.0, "lars_coeff": 0.25, "lars_weight_decay": 0.0}
            found, _ = kernel(np, param, grad, zeros, rate, None, **attrs)
            step, factor = grad, 0.25
        else:
            attrs = {"weight_decay": 0.0, "beta1": 0.0, "beta2": 0.0, "epsilon": 1.0}
            found, *_ = kernel(np, param, grad, rate, zeros, zeros, ones, ones, None, **attrs)
            step, factor = grad / (np.abs(grad) + np.float32(1)), 1
        lengths = [math.sqrt(math.fsum(float(x) ** 2 for x in array)) for array in (param, step)]
        exact = float(rate[0]) * (factor * lengths[0] / lengths[1])
        np.testing.assert_array_equal(found, param - step * np.float32(exact))
