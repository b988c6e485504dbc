"""What is drawn has the distribution it should: initializers, integers, permutations, masks, categories.

Distances are compared with the 0.1 % point of Kolmogorov and Smirnov's distribution, counts with that of chi-squared;
everything is drawn from fixed seeds, so that a test that passes goes on passing.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from distributions import normal_cdf
from one_op import run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.initializer import (
    MSRA,
    Bilinear,
    Constant,
    Normal,
    NumpyArrayInitializer,
    TruncatedNormal,
    Uniform,
    Xavier,
)


def distance(sample, cdf):
    """Kolmogorov and Smirnov's: the largest gap between the sample's distribution and `cdf`, as an exact fraction.

    The steps of the sample's distribution are fractions, and a float is one, so that nothing is rounded.
    """
    values = np.sort(np.asarray(sample, "float64").ravel())
    n = len(values)
    heights = [Fraction(float(height)) for height in cdf(values)]
    return max(max(Fraction(i + 1, n) - h, h - Fraction(i, n)) for i, h in enumerate(heights))


def assert_distributed(sample, cdf):
    n = np.size(sample)
    assert distance(sample, cdf) < 1.95 / math.sqrt(n)


def assert_counts(counts, probabilities):
    """Pearson's statistic stays below the 0.1 % point, by Wilson and Hilferty's approximation."""
    counts, expected = np.asarray(counts, "float64"), np.asarray(probabilities) * np.sum(counts)
    statistic, k = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    assert statistic < k * (1 - 2 / (9 * k) + 3.09 * math.sqrt(2 / (9 * k))) ** 3


def test_the_distance_is_exact():
    assert distance([0.5], lambda z: z) == Fraction(1, 2)
    assert distance([0.125, 0.25, 0.75], lambda z: z) == Fraction(2, 3) - Fraction(1, 4)


def initialized(initializer, shape, dtype="float32", seed=0):
    """The value of a parameter after the startup program has run."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        param = layers.create_parameter(shape, dtype, name="w", default_initializer=initializer)
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    return np.array(scope.find_var(param.name).get_tensor())


MATRIX, FILTERS = [60, 100], [20, 30, 3, 3]
CUT = float(normal_cdf(np.array(2.0)))


def uniform(limit):
    return lambda z: (z + limit) / (2 * limit)


def normal(deviation, mean=0.0):
    return lambda z: normal_cdf((z - mean) / deviation)


@pytest.mark.laws
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("initializer", "shape", "cdf", "variance"),
    [
        (Uniform(-2.0, 2.0, seed=3), MATRIX, uniform(2), 4 / 3),
        (Normal(1.0, 0.5, seed=3), MATRIX, normal(0.5, 1.0), 0.25),
        (
            TruncatedNormal(1.0, 0.5, seed=3), MATRIX,
            lambda z: (normal_cdf((z - 1) / 0.5) - (1 - CUT)) / (2 * CUT - 1), 0.25 * 0.8796**2,
        ),
        (Xavier(seed=3), MATRIX, uniform(math.sqrt(6 / 160)), 2 / 160),
        (Xavier(uniform=False, seed=3), MATRIX, normal(math.sqrt(2 / 160)), 2 / 160),
        (Xavier(seed=3), FILTERS, uniform(math.sqrt(6 / 450)), 2 / 450),
        (Xavier(uniform=False, fan_in=3, fan_out=5, seed=3), MATRIX, normal(0.5), 0.25),
        (MSRA(seed=3), MATRIX, uniform(math.sqrt(6 / 60)), 2 / 60),
        (MSRA(uniform=False, seed=3), FILTERS, normal(math.sqrt(2 / 270)), 2 / 270),
        (MSRA(fan_in=24, seed=3), MATRIX, uniform(0.5), 1 / 12),
    ],
)  # fmt: skip
def test_start_values_have_their_distribution(initializer, shape, cdf, variance, dtype):
    values = initialized(initializer, shape, dtype).astype("float64")
    assert_distributed(values, cdf)
    assert abs(values.var() / variance - 1) < 4 * math.sqrt(2 / values.size) + 2e-3


DRAWING = [Uniform(), Normal(), TruncatedNormal(), Xavier(), Xavier(False), MSRA(), MSRA(False)]


@pytest.mark.parametrize("initializer", DRAWING, ids=lambda initializer: type(initializer).__name__)
def test_the_seed_of_the_program_or_of_the_initializer_fixes_start_values(initializer):
    first, again, other = (initialized(initializer, [50], seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    free = [initialized(initializer, [50]) for _ in range(2)]
    assert not np.array_equal(*free)
    own = type(initializer)(seed=9)
    assert np.array_equal(initialized(own, [50], seed=5), initialized(own, [50], seed=6))


def test_a_seed_of_the_program_reproduces_a_whole_training():
    def losses():
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 11
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, 6])
            h = layers.dropout(layers.fc(x, 8, act="relu"), 0.5)
            loss = layers.mean(layers.square(layers.fc(h, 1)))
            fluid.optimizer.Adam(0.1).minimize(loss)
        executor, scope, feed = fluid.Executor(), fluid.Scope(), {"x": np.ones((4, 6), "float32")}
        executor.run(startup, scope=scope)
        return [executor.run(main, feed, [loss], scope=scope)[0].item() for _ in range(5)]

    assert losses() == losses()


@pytest.mark.parametrize("dtype", [2, 3])
def test_integers_are_equally_likely_up_to_but_without_the_upper_bound(dtype):
    drawn = run("randint", shape=[20_000], low=-3, high=4, dtype=dtype, seed=5)
    assert_counts(np.bincount(drawn + 3, minlength=7), np.full(7, 1 / 7))


@pytest.mark.slow
def test_every_order_is_equally_likely():
    main = fluid.Program()
    with fluid.program_guard(main):
        order = layers.randperm(3)
    executor, counts = fluid.Executor(), {}
    executor._rng = np.random.default_rng(4)
    for _ in range(3000):
        found = tuple(executor.run(main, fetch_list=[order])[0].tolist())
        counts[found] = counts.get(found, 0) + 1
    assert_counts(list(counts.values()), np.full(6, 1 / 6))


def test_categories_are_drawn_with_their_probabilities():
    probabilities = np.array([0.1, 0.0, 0.6, 0.3])
    drawn = run("sampling_id", {"X": np.tile(probabilities.astype("float32"), (20_000, 1))}, seed=5)
    counts = np.bincount(drawn, minlength=4)
    assert counts[1] == 0
    assert_counts(counts[[0, 2, 3]], probabilities[[0, 2, 3]])


def test_the_last_category_that_can_be_is_drawn_where_rounding_leaves_a_gap():
    almost = np.array([[0.25, 0.5, 0.0]])
    drawn = [run("sampling_id", {"X": almost}, min=0.75, max=1.0, seed=seed)[0] for seed in range(1, 9)]
    assert set(drawn) == {1}


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_dropout_drops_each_element_with_its_probability_and_alone(p):
    _, mask = run("dropout", {"X": np.ones((100, 200), "float32")}, dropout_prob=p, fix_seed=True, seed=5)
    assert_counts(np.bincount(mask.ravel(), minlength=2), [p, 1 - p])
    pairs = mask.ravel()[:-1] * 2 + mask.ravel()[1:]
    q = 1 - p
    assert_counts(np.bincount(pairs, minlength=4), [p * p, p * q, q * p, q * q])


@pytest.mark.slow
def test_samples_of_distributions_have_theirs():
    main = fluid.Program()
    with fluid.program_guard(main):
        flat = layers.Uniform([0.0, -2.0], [1.0, 2.0]).sample([5000], seed=3)
        bell = layers.Normal(1.0, 2.0).sample([5000], seed=4)
    flat, bell = fluid.Executor().run(main, fetch_list=[flat, bell])
    assert flat.shape == (5000, 2) and bell.shape == (5000,)
    assert_distributed(flat[:, 0], lambda z: z)
    assert_distributed(flat[:, 1], uniform(2))
    assert_distributed(bell, normal(2.0, 1.0))


def test_the_functions_of_distributions_are_their_formulas():
    x = np.array([0.25, 0.5], "float32")
    with fluid.dygraph.guard():
        flat, bell = layers.Uniform(0.0, 2.0), layers.Normal([0.5, 1.0], [1.0, 2.0])
        other, value = layers.Normal(0.0, 1.0), fluid.dygraph.to_variable(x)
        found = {
            "flat": (flat.log_prob(value).numpy(), np.log([0.5, 0.5])),
            "spread": (flat.entropy().numpy(), np.log([2])),
            "bell": (
                bell.log_prob(value).numpy(),
                -((x - [0.5, 1]) ** 2) / (2 * np.array([1, 4])) - np.log([1, 2]) - math.log(2 * math.pi) / 2,
            ),
            "entropy": (bell.entropy().numpy(), np.log([1, 2]) + (1 + math.log(2 * math.pi)) / 2),
            "divergence": (bell.kl_divergence(other).numpy(), (np.array([1.25, 5]) - 1 - np.log([1.0, 4.0])) / 2),
        }
    for name, (value, expected) in found.items():
        np.testing.assert_allclose(value, expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64"])
def test_an_array_of_any_type_starts_a_parameter(dtype):
    values = np.array([[0, 1, 2], [1, 0, 3]]).astype(dtype)
    assert np.array_equal(initialized(NumpyArrayInitializer(values), [2, 3], dtype), values)
    with fluid.program_guard(fluid.Program()):
        assert np.array_equal(fluid.Executor().run(feed={}, fetch_list=[layers.assign(values)])[0], values)


def test_bilinear_filters_interpolate():
    """A transposed convolution with stride 2 doubles a picture; inside, halfway between two pixels is their mean."""
    filters = initialized(Bilinear(), [1, 1, 4, 4])
    assert np.allclose(filters[0, 0], np.outer([0.25, 0.75, 0.75, 0.25], [0.25, 0.75, 0.75, 0.25]))
    ramp = np.arange(5, dtype="float32").reshape(1, 1, 1, 5).repeat(5, axis=2)
    doubled = run("conv2d_transpose", {"Input": ramp, "Filter": filters}, strides=[2, 2], paddings=[1, 1])
    assert np.allclose(doubled[0, 0, 4, 2:8], np.arange(0.75, 3.5, 0.5))


def test_a_constant_is_the_same_everywhere():
    assert (initialized(Constant(2.5), [3, 2]) == 2.5).all()


def test_a_global_seed_is_that_of_all_later_programs():
    before, program = fluid.Program(), fluid.Program()
    text = str(program)
    try:
        program.global_seed(17)
        later = fluid.Program()
        assert (before.random_seed, program.random_seed, later.random_seed) == (0, 17, 17)
        assert later.clone().random_seed == 17
        later.random_seed = 3
        assert later.clone().random_seed == 3
        assert fluid.Program.parse(text).random_seed == 0
        assert fluid.Program.parse(str(program)).random_seed == 17
        with pytest.raises(fluid.errors.WrongTypeError):
            program.global_seed(1.5)
        assert fluid.Program().random_seed == 17
    finally:
        program.global_seed(0)
    assert fluid.Program().random_seed == 0


def test_distributions_that_do_not_fit_are_refused():
    with fluid.program_guard(fluid.Program()):
        outcomes, normal = layers.Categorical([0.0, 1.0]), layers.MultivariateNormalDiag([0.0], np.eye(1))
        for one, other in ((outcomes, normal), (normal, outcomes)):
            with pytest.raises(WrongTypeError, match=f"other must be a {type(one).__name__}"):
                one.kl_divergence(other)
        for scale in ([1.0, 2.0], np.ones((2, 3))):
            with pytest.raises(ProgramError, match="scale must be a square matrix"):
                layers.MultivariateNormalDiag([0.0, 0.0], scale)


@pytest.mark.slow
def test_outcomes_far_apart_have_no_entropy():
    with fluid.program_guard(fluid.Program()):
        far, even = layers.Categorical([[1000.0, 0.0]]), layers.Categorical(np.zeros((1, 4)))
        found = fluid.Executor().run(fetch_list=[far.entropy(), even.entropy(), even.kl_divergence(even)])
    np.testing.assert_allclose(np.concatenate(found), [[0], [np.log(4)], [0]], atol=1e-6)


def test_a_distribution_of_arrays_is_that_of_variables():
    mean, variance = np.array([0.3, 0.5], "float32"), np.diag(np.array([0.4, 0.5], "float32"))
    with fluid.program_guard(fluid.Program()):
        arrays = layers.MultivariateNormalDiag(mean, variance)
        variables = layers.MultivariateNormalDiag(layers.assign(mean), layers.assign(variance))
        results = [each.kl_divergence(other) for each in (arrays, variables) for other in (arrays, variables)]
        found = fluid.Executor().run(fetch_list=[*results, arrays.entropy()])
    assert all(each.shape == (1,) for each in found)
    np.testing.assert_allclose(found[:4], np.zeros((4, 1)), atol=1e-6)
    np.testing.assert_allclose(found[4], [np.log(2 * np.pi * np.e) + np.log(0.2) / 2], rtol=1e-6)


@pytest.mark.parametrize("kind", [layers.Normal, layers.Uniform])
@pytest.mark.parametrize(
    ("first", "second", "shape", "declared"),
    [
        ([None, 1], [None, 1], [1], (1, -1, 1)),
        ([None, 3], [None, 3], [7, 2], (7, 2, -1, 3)),
        ([None, 3], [None, 1], [2], (2, -1, 3)),
        ([2, None], [2, None], [5], (5, 2, -1)),
        ([None, 3], [None, 3], [], (-1, 3)),
    ],
)
def test_a_batch_that_only_a_run_knows_is_sampled(kind, first, second, shape, declared):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        samples = kind(fluid.data("a", first), fluid.data("b", second)).sample(shape, seed=1)
        assert samples.shape == declared
        sizes = [[400 if size is None else size for size in each] for each in (first, second)]
        feed = {"a": np.full(sizes[0], 3.0, "float32"), "b": np.full(sizes[1], 5.0, "float32")}
        (found,) = fluid.Executor().run(feed=feed, fetch_list=[samples])
    assert found.shape == tuple(400 if size == -1 else size for size in declared)
    if kind is layers.Normal:
        assert_distributed(found, lambda x: normal_cdf((x - 3) / 5))
    else:
        assert_distributed(found, lambda x: np.clip((x - 3) / 2, 0, 1))
