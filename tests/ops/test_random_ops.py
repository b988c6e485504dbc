"""Random operators: distributions, bounds, seeds, and what dropout does to a tensor."""

import math

import numpy as np
import pytest
from distributions import normal_cdf
from one_op import append, gradient, run

import minigraph as fluid
from minigraph.errors import OpError
from minigraph.kernels import find_kernel

DRAWING = ["uniform_random", "gaussian_random", "truncated_gaussian_random"]
DTYPES = pytest.mark.parametrize("dtype", [4, 5, 6])
X = np.arange(1, 10_001, dtype="float32").reshape(100, 100)


CUT = normal_cdf(np.array(2.0))
CDF = {
    "uniform_random": lambda z: (z + 1) / 2,
    "gaussian_random": normal_cdf,
    "truncated_gaussian_random": lambda z: (normal_cdf(z) - (1 - CUT)) / (2 * CUT - 1),
}
MOMENTS = {"uniform_random": (0, 1 / 3), "gaussian_random": (0, 1), "truncated_gaussian_random": (0, 0.8796**2)}


def executor_seeded(seed):
    executor = fluid.Executor()
    executor._rng = np.random.default_rng(seed)
    return executor


# Drawing


@DTYPES
@pytest.mark.parametrize("op", DRAWING)
def test_the_numbers_have_the_distribution(op, dtype):
    """Kolmogorov and Smirnov's distance stays under its 0.1 % point, and the moments within four standard errors."""
    x = run(op, shape=[200, 100], dtype=dtype, seed=5)
    assert x.dtype == {4: "float16", 5: "float32", 6: "float64"}[dtype]
    values = np.sort(x.astype("float64").ravel())
    n = values.size
    steps = np.arange(n + 1) / n
    cdf = CDF[op](values)
    rounding = 1e-3 if dtype == 4 else 0
    assert max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()) < 1.95 / math.sqrt(n) + rounding
    mean, variance = MOMENTS[op]
    assert abs(values.mean() - mean) < 4 * math.sqrt(variance / n)
    assert abs(values.var() / variance - 1) < 4 * math.sqrt(2 / n) + 2e-3


@pytest.mark.parametrize("op", DRAWING)
def test_the_numbers_do_not_depend_on_each_other(op):
    x = run(op, shape=[200, 100], seed=5).astype("float64").ravel()
    for lag in (1, 2, 100):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 4 / math.sqrt(x.size)


def test_mean_and_deviation_are_moved_and_stretched():
    x = run("gaussian_random", shape=[20_000], mean=-3.0, std=0.5, seed=2)
    assert abs(x.mean() + 3) < 0.02 and abs(x.std() - 0.5) < 0.02
    x = run("truncated_gaussian_random", shape=[20_000], mean=-3.0, std=0.5, seed=2)
    assert abs(x.mean() + 3) < 0.02 and abs(x.std() - 0.5 * 0.8796) < 0.02
    assert x.min() >= -4 and x.max() <= -2
    for op in DRAWING[1:]:
        assert (run(op, shape=[3], mean=1.5, std=0.0) == 1.5).all()


@DTYPES
@pytest.mark.parametrize("seed", range(5))
def test_a_truncated_normal_stays_within_two_deviations(dtype, seed):
    x = run("truncated_gaussian_random", shape=[5000], dtype=dtype, seed=seed + 1)
    assert 1.9 < np.abs(x).max() <= 2


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-1.0, 1.0, 5), (1e8, 1e8 + 16, 5), (0.0, 1e-40, 5), (1000.0, 1001.0, 4), (0.1, 0.2, 4), (-0.3, 0.1, 6)],
)
def test_the_upper_bound_is_never_drawn(low, high, dtype):
    x = run("uniform_random", shape=[100_000], min=low, max=high, dtype=dtype, seed=3)
    low, high = np.float32(low), np.float32(high)
    assert low <= x.min().astype("float64") and x.max().astype("float64") < high


def test_the_diagonal_is_set_element_by_element():
    x = run("uniform_random", shape=[3, 3], diag_num=3, diag_step=3, diag_val=9.0)
    assert (x == 9).astype(int).tolist() == np.eye(3).tolist()
    x = run("uniform_random", shape=[2, 5], diag_num=2, diag_step=6, diag_val=9.0)
    assert np.flatnonzero(x == 9).tolist() == [0, 7]
    x = run("uniform_random", shape=[2, 2], diag_num=2, diag_step=0, diag_val=9.0)
    assert np.flatnonzero(x == 9).tolist() == [0, 1]


# Seeds


@pytest.mark.parametrize("op", DRAWING)
def test_a_seed_fixes_the_numbers(op):
    draw = lambda **attrs: run(op, shape=[5], **attrs)  # noqa: E731
    assert np.array_equal(draw(seed=7), draw(seed=7))
    assert np.array_equal(draw(seed=-7), draw(seed=-7))
    assert not np.array_equal(draw(seed=7), draw(seed=8))
    assert not np.array_equal(draw(seed=7), draw(seed=-7))
    assert not np.array_equal(draw(), draw())


@pytest.mark.parametrize("op", [*DRAWING, "dropout"])
def test_without_a_seed_every_run_differs_and_all_follow_from_the_generator_of_the_executor(op):
    inputs, attrs = ({"X": X}, {}) if op == "dropout" else ({}, {"shape": [5]})
    program, variables, feed = append(op, inputs, **attrs)
    first, second, again = executor_seeded(1), executor_seeded(2), executor_seeded(1)
    runs = [e.run(program, feed=feed, fetch_list=variables["Out"])[0] for e in (first, first, second, again, again)]
    assert not np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])
    assert np.array_equal(runs[0], runs[3]) and np.array_equal(runs[1], runs[4])


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("uniform_random", {"shape": [2], "min": 1.0, "max": 1.0}, "min must be less than max, got min=1 and max=1"),
        ("uniform_random", {"shape": [2], "min": math.nan}, "min must be less than max"),
        ("uniform_random", {"shape": [3, 3], "diag_num": 3, "diag_step": 4}, "reach beyond 9 elements"),
        ("uniform_random", {"shape": [3, 3], "diag_num": -1}, "must not be negative"),
        ("uniform_random", {"shape": [2], "dtype": 3}, "Out must be floating point, got int64"),
        ("gaussian_random", {"shape": []}, "shape is empty"),
        ("gaussian_random", {"shape": [-1, 2]}, "shape must not be negative"),
        ("gaussian_random", {"shape": [2], "std": -1.0}, "std must not be negative"),
        ("truncated_gaussian_random", {"shape": [2], "std": math.nan}, "std must not be negative"),
    ],
)
def test_what_cannot_be_drawn_is_refused(op, attrs, message):
    with pytest.raises(OpError, match=message):
        append(op, {}, **attrs)


# Dropout


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_as_often_as_asked_and_keeps_the_rest(p, dtype):
    x = (X / 10_000).astype(dtype)
    for name in ("downgrade_in_infer", "upscale_in_train"):
        attrs = {"dropout_prob": p, "dropout_implementation": name, "fix_seed": True, "seed": 11}
        y, mask = run("dropout", {"X": x}, **attrs)
        assert (y.dtype, mask.dtype) == (x.dtype, np.uint8)
        assert set(np.unique(mask)) == {0, 1}
        assert abs(mask.mean() - (1 - p)) < 4 * math.sqrt(p * (1 - p) / x.size)
        factor = 1 / (1 - p) if name == "upscale_in_train" else 1
        assert np.allclose(y, x * mask * factor, rtol=1e-3 if dtype == "float16" else 1e-6, atol=0)
        cotangent = np.random.default_rng(1).standard_normal(x.shape).astype(dtype)
        d_x = gradient("dropout", {"X": x}, "X", cotangent=cotangent, **attrs)
        assert np.allclose(d_x, cotangent * mask * factor, rtol=1e-3 if dtype == "float16" else 1e-6, atol=0)


@pytest.mark.parametrize("name", ["downgrade_in_infer", "upscale_in_train"])
def test_dropout_of_nothing_and_of_everything(name):
    y, mask = run("dropout", {"X": X}, dropout_prob=0.0, dropout_implementation=name)
    assert np.array_equal(y, X) and mask.all()
    y, mask = run("dropout", {"X": X}, dropout_prob=1.0, dropout_implementation=name)
    assert not y.any() and not mask.any()
    assert not gradient("dropout", {"X": X}, "X", dropout_prob=1.0, dropout_implementation=name).any()
    y, _ = run("dropout", {"X": X}, dropout_prob=1 - 1e-9, dropout_implementation=name)  # 1 in float32
    assert not y.any()


def test_what_is_dropped_is_zero_even_if_it_was_infinite():
    x = np.array([np.inf, np.nan] * 50, "float32")
    y, mask = run("dropout", {"X": x}, fix_seed=True, seed=1)
    assert not y[mask == 0].any()
    assert np.array_equal(y[mask == 1], x[mask == 1], equal_nan=True)


def test_the_test_drops_nothing():
    for name, factor in (("downgrade_in_infer", np.float32(0.75)), ("upscale_in_train", np.float32(1))):
        attrs = {"dropout_prob": 0.25, "dropout_implementation": name, "is_test": True}
        y, mask = run("dropout", {"X": X}, **attrs)
        assert np.array_equal(y, X * factor) and mask.all()
        assert (gradient("dropout", {"X": X}, "X", **attrs) == factor).all()


def test_the_share_that_is_kept_is_rounded_to_float32_as_in_fluid():
    y, _ = run("dropout", {"X": np.ones(3)}, dropout_prob=0.1, is_test=True)
    assert y.tolist() == [0.8999999761581421] * 3


@pytest.mark.slow
def test_the_expected_value_is_that_of_the_test():
    for name in ("downgrade_in_infer", "upscale_in_train"):
        attrs = {"dropout_prob": 0.3, "dropout_implementation": name}
        (tested, _) = run("dropout", {"X": X}, is_test=True, **attrs)
        trained = [run("dropout", {"X": X}, fix_seed=True, seed=s, **attrs)[0].mean() for s in range(40)]
        assert np.mean(trained) == pytest.approx(tested.mean(), rel=5e-3)


def test_a_fixed_mask_is_the_same_in_every_run_and_for_every_type():
    def mask(**given):
        x = given.pop("x", X)
        seed = {"Seed": given.pop("Seed")} if "Seed" in given else {}
        return run("dropout", {"X": x, **seed}, **given)[1]

    fixed = mask(fix_seed=True, seed=3)
    assert np.array_equal(fixed, mask(fix_seed=True, seed=3))
    assert np.array_equal(fixed, mask(fix_seed=True, seed=3, x=X.astype("float64")))
    assert np.array_equal(fixed, mask(Seed=np.array([3], "int32")))
    assert np.array_equal(fixed, mask(Seed=np.array([3], "int32"), fix_seed=True, seed=4))
    assert not np.array_equal(fixed, mask(fix_seed=True, seed=4))
    assert np.array_equal(mask(fix_seed=True), mask(fix_seed=True))
    assert not np.array_equal(mask(seed=3), mask(seed=3))


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        ({"X": X}, {"dropout_prob": 1.5}, r"dropout_prob must be in \[0, 1\], got 1.5"),
        ({"X": X}, {"dropout_prob": -0.1}, r"dropout_prob must be in \[0, 1\], got -0.1"),
        ({"X": X}, {"dropout_prob": math.nan}, r"dropout_prob must be in \[0, 1\]"),
        ({"X": X}, {"dropout_implementation": "scale"}, "must be downgrade_in_infer or upscale_in_train, got 'scale'"),
        ({"X": X.astype("int64")}, {}, "X must be floating point"),
        ({"X": X, "Seed": np.array([3.0])}, {}, "Seed must hold an integer"),
        ({"X": X, "Seed": np.array([3, 4])}, {}, "Seed must hold one number"),
    ],
)
def test_a_dropout_that_makes_no_sense_is_refused(inputs, attrs, message):
    with pytest.raises(OpError, match=message):
        append("dropout", inputs, **attrs)


def test_dropout_writes_into_its_buffers():
    kernel = find_kernel("dropout", "cpu").function
    attrs = {"dropout_prob": 0.5, "dropout_implementation": "upscale_in_train", "fix_seed": True, "seed": 3}
    for is_test in (False, True):
        expected = kernel(np, X, None, is_test=is_test, **attrs)
        x = X.copy()
        mask = np.empty(X.shape, np.uint8)
        found = kernel(np, x, None, is_test=is_test, out=(x, mask), **attrs)
        assert found[0] is x and found[1] is mask
        assert np.array_equal(x, expected[0]) and np.array_equal(mask, expected[1])


def test_normal_numbers_differ_from_run_to_run():
    main = fluid.Program()
    with fluid.program_guard(main):
        drawn = fluid.layers.randn([5])
    executor = fluid.Executor()
    first, second = (executor.run(main, fetch_list=[drawn])[0] for _ in range(2))
    assert not np.array_equal(first, second)
