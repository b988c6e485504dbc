"""Laws of clipping for gradients of any size and magnitude, against exact rational arithmetic.

A norm is the root of a fraction, found by an integer square root to more digits than any float has. Rounding is
counted in units of the gradient's type, with one of its smallest number where that is denormal.
"""

import math
from fractions import Fraction

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from exact_norms import exact_norm, root
from hypothesis import given, settings
from hypothesis import strategies as st
from one_clip import InProgram, clip_everywhere, same_bits

import minigraph as fluid
from minigraph.clip import (
    ClipPipeline,
    GradientClipByAxisNorm,
    GradientClipByBlockRMS,
    GradientClipByGlobalNorm,
    GradientClipByGlobalPNorm,
    GradientClipByNorm,
    GradientClipByPNorm,
    GradientClipByValue,
)

pytestmark = pytest.mark.numbers

few = settings(max_examples=settings.default.max_examples * 3 // 10)


# Which elements have a norm together


def rows(arrays):
    return [[row] for array in arrays for row in array.reshape(-1, array.shape[-1] if array.size else 1)]


def one_by_one(arrays):
    return [[array] for array in arrays]


def together(arrays):
    return [list(arrays)]


NORMS = {
    "norm": (GradientClipByNorm, one_by_one, 2),
    "global norm": (GradientClipByGlobalNorm, together, 2),
    "p norm 1": (lambda c: GradientClipByPNorm(c, 1.0), one_by_one, 1),
    "p norm 4": (lambda c: GradientClipByPNorm(c, 4.0), one_by_one, 4),
    "p norm inf": (lambda c: GradientClipByPNorm(c, math.inf), one_by_one, math.inf),
    "global p norm 1": (lambda c: GradientClipByGlobalPNorm(c, 1.0), together, 1),
    "global p norm 4": (lambda c: GradientClipByGlobalPNorm(c, 4.0), together, 4),
    "axis norm": (lambda c: GradientClipByAxisNorm(c, -1), rows, 2),
    "block rms": (GradientClipByBlockRMS, one_by_one, 2),
}
"""Strategy for a threshold, which elements have a norm together, and its order."""

JOINT = [name for name in NORMS if name.startswith("global")]

each_norm = pytest.mark.parametrize("name", NORMS)


def limit_of(name, group, threshold):
    """The largest norm of a group."""
    return Fraction(threshold) * (root(Fraction(group[0].size)) if name == "block rms" else 1)


# What is drawn

DTYPES = ["float16", "float32", "float64"]
SHAPES = [(1,), (5,), (2, 3), (0, 3), (4, 2), (2, 2, 2), (0,)]


def elements(dtype):
    """Everything finite: zeros, denormal numbers, and the largest of the type."""
    return hnp.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)


@st.composite
def gradients(draw, dtype=None):
    """One to three tensors of a type: any numbers, or numbers of one magnitude."""
    dtype = dtype or draw(st.sampled_from(DTYPES))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    if draw(st.booleans()):
        return [draw(hnp.arrays(dtype, shape, elements=elements(dtype))) for shape in shapes]
    low, high = {"float16": (-7, 4), "float32": (-38, 38), "float64": (-300, 300)}[dtype]
    rng, scale = np.random.default_rng(draw(st.integers(0, 999))), 10.0 ** draw(st.integers(low, high))
    return [(rng.uniform(-1, 1, shape) * scale).astype(dtype) for shape in shapes]


@st.composite
def problems(draw, name, dtype=None):
    """Gradients, and a threshold anywhere around their norm that the type and float32, as attributes are, can hold."""
    grads = draw(gradients(dtype))
    _, groups, p = NORMS[name]
    lengths = [exact_norm(group, p) for group in groups(grads) if group]
    length = draw(st.sampled_from(lengths)) if lengths else Fraction(1)
    length *= Fraction(draw(st.sampled_from([2**-12, 0.1, 0.9, 1.0, 1.1, 3.0, 2**12])))
    kind = np.float16 if grads[0].dtype == np.float16 else np.float32
    least, most = (Fraction(float(end)) for end in (np.finfo(kind).tiny, np.finfo(kind).max))
    # The factor is a normal number.
    least = max([least, *(each * Fraction(2) ** -1000 for each in lengths)])
    return grads, float(kind(float(min(max(length, least), most / 2))))


def assert_rounds_to(found, exact, roundings, length=0):
    """Each element is what it ought to be, up to some roundings of its type.

    One that is smaller than `length`, their norm, by all exponents of float64 may lose its digits: the quotient of the
    two is denormal.
    """
    unit, least = (Fraction(float(x)) for x in (np.finfo(found.dtype).eps, np.finfo(found.dtype).smallest_subnormal))
    least += Fraction(float(np.finfo("float64").smallest_subnormal)) * roundings * Fraction(length)
    for value, right in zip(found.reshape(-1).tolist(), exact, strict=True):
        assert abs(Fraction(value) - right) <= roundings * unit * abs(right) + least, (value, float(right))


def assert_near(found, expected, roundings):
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert_rounds_to(one, [Fraction(x) for x in other.reshape(-1).tolist()], roundings)


# Laws


@pytest.mark.laws
@each_norm
@few
@given(data=st.data())
def test_a_clipped_norm_is_at_most_the_threshold_and_the_direction_stays(name, data):
    make, groups, p = NORMS[name]
    grads, threshold = data.draw(problems(name))
    clipped = clip_everywhere(make(threshold), grads)
    for before, after in zip(groups(grads), groups(clipped), strict=True):
        length, limit = exact_norm(before, p), limit_of(name, before, threshold)
        unit, least = (Fraction(float(getattr(np.finfo(grads[0].dtype), x))) for x in ("eps", "smallest_subnormal"))
        room = 2 * unit * limit + least * sum(array.size for array in after)
        assert exact_norm(after, p) <= max(limit, length if length <= limit else 0) + room
        factor = min(limit / length, Fraction(1)) if length else Fraction(1)
        for x, y in zip(before, after, strict=True):
            assert_rounds_to(y, [Fraction(each) * factor for each in x.reshape(-1).tolist()], 2, limit)


@pytest.mark.laws
@each_norm
@few
@given(data=st.data())
def test_up_to_the_threshold_no_bit_changes(name, data):
    make, groups, p = NORMS[name]
    grads, threshold = data.draw(problems(name))
    clipped = clip_everywhere(make(threshold), grads)
    for before, after in zip(groups(grads), groups(clipped), strict=True):
        if exact_norm(before, p) * (1 + Fraction(1, 10**15)) <= limit_of(name, before, threshold):
            assert same_bits(after, before)


@pytest.mark.laws
@each_norm
@few
@given(data=st.data())
def test_clipping_twice_is_clipping_once(name, data):
    make, *_ = NORMS[name]
    grads, threshold = data.draw(problems(name))
    once = InProgram(make(threshold), grads)(grads)
    assert_near(InProgram(make(threshold), once)(once), once, 2)
    pair = ClipPipeline([make(threshold), make(threshold)])
    assert same_bits(InProgram(pair, grads)(grads), InProgram(make(threshold), once)(once))


@pytest.mark.laws
@pytest.mark.parametrize("name", JOINT)
@few
@given(data=st.data())
def test_how_elements_are_grouped_into_tensors_does_not_matter(name, data):
    make, *_ = NORMS[name]
    grads, threshold = data.draw(problems(name))
    whole = [np.concatenate([grad.reshape(-1) for grad in grads])]
    single = [np.array([value], whole[0].dtype) for value in whole[0]] or whole
    joined = [
        np.concatenate([cut.reshape(-1) for cut in InProgram(make(threshold), given)(given)])
        for given in (grads, whole, single)
    ]
    # Each is within two roundings of the exact result.
    assert_near(joined[1:], [joined[0]] * 2, 4)


@pytest.mark.parametrize("name", NORMS)
def test_the_factor_may_be_smaller_than_any_float(name):
    clipped = clip_everywhere(NORMS[name][0](1e-38), [np.array([7.93e284, 0.0, 0.0, 0.0])])
    limit = 2e-38 if name == "block rms" else 1e-38
    np.testing.assert_allclose(clipped, [[limit, 0, 0, 0]], rtol=1e-7)


@pytest.mark.slow
@few
@given(data=st.data())
def test_by_value_is_exact(data):
    grads, threshold = data.draw(problems("p norm inf"))
    clipped = clip_everywhere(GradientClipByValue(threshold), grads)
    bound = Fraction(threshold)
    for before, after in zip(grads, clipped, strict=True):
        exact = [min(max(Fraction(x), -bound), bound) for x in before.reshape(-1).tolist()]
        assert [Fraction(x) for x in after.reshape(-1).tolist()] == exact
        unchanged = np.abs(before) <= threshold
        assert before[unchanged].tobytes() == after[unchanged].tobytes()
    assert same_bits(InProgram(GradientClipByValue(threshold), clipped)(clipped), clipped)


@pytest.mark.laws
@each_norm
@given(
    dtype=st.sampled_from(DTYPES), shapes=st.lists(st.sampled_from(SHAPES), min_size=1), threshold=st.floats(1e-4, 1e4)
)
@settings(max_examples=15)
def test_zeros_stay_the_zeros_they_are(name, dtype, shapes, threshold):
    grads = [np.copysign(np.zeros(shape, dtype), -1) for shape in shapes]
    assert same_bits(clip_everywhere(NORMS[name][0](float(np.float16(threshold))), grads), grads)


@pytest.mark.laws
@each_norm
@given(exponent=st.integers(-120, 120), dtype=st.sampled_from(["float32", "float64"]))
@settings(max_examples=15)
def test_exactly_at_the_threshold_no_bit_changes(name, exponent, dtype):
    quartet = {1: [3, -2], 4: [5, 0], math.inf: [-5, 3]}.get(NORMS[name][2], [3, -4])
    grads = [np.array([quartet], dtype) * dtype_power(dtype, exponent), np.zeros((2, 2), dtype)]
    threshold = 5 * 2.0**exponent
    if name == "block rms":
        grads[0], threshold = np.repeat(grads[0][:, :1], 4, 1), 3 * 2.0**exponent
    assert same_bits(clip_everywhere(NORMS[name][0](threshold), grads), grads)


def dtype_power(dtype, exponent):
    return np.array(2.0**exponent, dtype)


@pytest.mark.laws
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_large_tensors_are_no_exception(name, dtype):
    size = 10**6 if name in ("norm", "global norm") and dtype != "float16" else 10**5
    rng = np.random.default_rng(3)
    grads = [rng.standard_normal((size // 10, 10)).astype(dtype), rng.standard_normal(7).astype(dtype)]
    make, groups, p = NORMS[name]
    threshold = 0.5
    clipped = clip_everywhere(make(threshold), grads)
    if name == "axis norm":
        assert (np.linalg.norm(clipped[0].astype("float64"), axis=1) <= 0.5 * (1 + 4 * np.finfo(dtype).eps)).all()
        return
    for before, after in zip(groups(grads), groups(clipped), strict=True):
        length, limit = exact_norm(before, p), limit_of(name, before, threshold)
        factor = float(min(limit / length, Fraction(1)))
        for x, y in zip(before, after, strict=True):
            eps, least = float(np.finfo(dtype).eps), float(np.finfo(dtype).smallest_subnormal)
            # Two roundings here and there, and those of a sum of a million squares, whose order is the library's.
            np.testing.assert_allclose(y.astype("float64"), x.astype("float64") * factor, rtol=4 * eps, atol=least)


# The gradient of a clipped gradient


def pull_back(strategy, grads, cotangents, executor=None):
    """Clipped gradients, and what `cotangents` of them are for the gradients before."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        block = program.global_block()
        sources = [
            block.create_var(name=f"g{i}", shape=x.shape, dtype=x.dtype, is_data=True) for i, x in enumerate(grads)
        ]
        params = [block.create_parameter(f"p{i}", x.shape, x.dtype) for i, x in enumerate(grads)]
        given_ = [
            block.create_var(name=f"c{i}", shape=x.shape, dtype=x.dtype, is_data=True) for i, x in enumerate(grads)
        ]
        clipped = [grad for _, grad in strategy(list(zip(params, sources, strict=True)))]
        back = fluid.gradients(clipped, sources, given_)
    feed = {f"g{i}": x for i, x in enumerate(grads)} | {f"c{i}": x for i, x in enumerate(cotangents)}
    found = (executor or fluid.Executor()).run(program, feed=feed, fetch_list=[*clipped, *back], scope=fluid.Scope())
    return found[: len(grads)], found[len(grads) :]


SMOOTH = {
    "value": lambda c: GradientClipByValue(c, -c / 2),
    **{name: make for name, (make, *_) in NORMS.items() if name != "p norm inf"},
    "pipeline": lambda c: ClipPipeline([GradientClipByNorm(2 * c), GradientClipByGlobalNorm(c)]),
    "guarded": lambda c: GradientClipByGlobalNorm(c, nonfinite="zero"),
}

each_smooth = pytest.mark.parametrize("name", SMOOTH)


def drawn(seed):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.2, 1, shape) * rng.choice([-1, 1], shape) for shape in ((3, 2), (4,))]


@each_smooth
@pytest.mark.parametrize("threshold", [0.13, 0.71])
def test_above_the_threshold_the_gradient_is_the_central_difference(name, threshold):
    grads, cotangents = drawn(0), drawn(1)
    strategy = SMOOTH[name](threshold)
    _, back = pull_back(strategy, grads, cotangents)
    program = InProgram(strategy, grads)

    def weighted(arrays):
        return sum(np.vdot(cut, weight) for cut, weight in zip(program(arrays), cotangents, strict=True))

    step = 1e-6
    for k, found in enumerate(back):
        for index in np.ndindex(found.shape):
            ends = []
            for sign in (1, -1):
                moved = [grad.copy() for grad in grads]
                moved[k][index] += sign * step
                ends.append(weighted(moved))
            assert found[index] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)


@each_smooth
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_under_the_threshold_and_at_zero_the_gradient_passes_unchanged(name, dtype):
    cotangents = [x.astype(dtype) for x in drawn(1)]
    for scale in (1.0, 1e-30, 0.0):
        grads = [(x * scale).astype(dtype) for x in drawn(0)]
        for executor in (fluid.Executor(), fluid.Interpreter()):
            clipped, back = pull_back(SMOOTH[name](64.0), grads, cotangents, executor)
            assert same_bits(clipped, grads) and same_bits(back, cotangents)


@pytest.mark.parametrize(
    "strategy",
    [GradientClipByNorm(5.0), GradientClipByGlobalNorm(5.0), GradientClipByPNorm(5.0), GradientClipByAxisNorm(5.0)],
)
def test_exactly_at_the_threshold_the_gradient_passes_unchanged(strategy):
    cotangents = [np.array([[0.25, -7.0]])]
    assert same_bits(pull_back(strategy, [np.array([[3.0, 4.0]])], cotangents)[1], cotangents)


def test_exactly_at_a_bound_no_gradient_passes():
    _, back = pull_back(GradientClipByValue(2.0, -1.0), [np.array([2.0, -1.0, 1.5])], [np.array([3.0, 5.0, 7.0])])
    assert back[0].tolist() == [0.0, 0.0, 7.0]


@pytest.mark.parametrize("magnitude", [1e-30, 1e30])
@pytest.mark.parametrize("kind", [GradientClipByNorm, GradientClipByGlobalNorm, GradientClipByPNorm])
def test_the_gradient_neither_overflows_nor_underflows(kind, magnitude):
    grad, cotangent = np.array([3.0, 4.0]), np.array([2.0, -1.0])
    for dtype in ("float32", "float64"):
        given_ = [(grad * magnitude).astype(dtype)], [cotangent.astype(dtype)]
        (found,) = pull_back(kind(magnitude), *given_)[1]
        # What points along the gradient is lost: d(x / |x|) = (c - u <u, c>) / |x|.
        along = grad / 5
        np.testing.assert_allclose(found, (cotangent - along * (along @ cotangent)) / 5, rtol=1e-5)


@pytest.mark.parametrize("order", [1.0, 3.0])
def test_a_pipeline_passes_the_gradient_through_each_of_its_clips(order):
    grads, cotangents = drawn(0), drawn(1)
    first, second = GradientClipByPNorm(0.5, order), GradientClipByGlobalPNorm(0.25, order)
    middle, _ = pull_back(first, grads, cotangents)
    (_, between) = pull_back(second, middle, cotangents)
    (_, expected) = pull_back(first, grads, between)
    (_, found) = pull_back(ClipPipeline([first, second]), grads, cotangents)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
