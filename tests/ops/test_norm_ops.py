"""Norms and what is clipped by them, against exact arithmetic: every order, element type, size and magnitude."""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from growth import assert_grows
from one_op import append, gradient, run

import minigraph as fluid
from minigraph.errors import ExecutionError, OpError
from minigraph.kernels.norm import SHORT, short_joined

pytestmark = pytest.mark.numbers

ORDERS = [0.5, 1.0, 2.0, 2.5, 3.0, 100.0, math.inf]
SIZES = [0, 1, 300]
MAGNITUDES = {
    "float16": [6e-8, 1.0, 6e4],
    "float32": [1e-44, 1e-38, 1.0, 1e38],
    "float64": [1e-320, 1e-300, 1e-160, 1.0, 1e160, 1e300],
}
CASES = [(dtype, magnitude) for dtype, magnitudes in MAGNITUDES.items() for magnitude in magnitudes]

each_order = pytest.mark.parametrize("p", ORDERS)
each_size = pytest.mark.parametrize("size", SIZES)
each_magnitude = pytest.mark.parametrize(("dtype", "magnitude"), CASES)


def values(dtype, magnitude, *shape):
    """Numbers of both signs around a magnitude, and a zero where there is room for one."""
    signs = np.where(np.arange(math.prod(shape)) % 2, -1, 1).reshape(shape)
    drawn = np.random.default_rng(7).uniform(0.2, 1, shape) * signs
    if drawn.size > 3:
        drawn.reshape(-1)[3] = 0
    return (drawn * magnitude).astype(dtype)


def number(value, dtype="float64"):
    return np.array([value], dtype)


DIGITS = Context(prec=60, Emax=10**8, Emin=-(10**8))
"""Decimal arithmetic with any exponent, much quicker than fractions."""


def power(size, p):
    """A decimal to the power of an order; roots and products are quicker than logarithms."""
    if p == 0.5:
        return size.sqrt()
    if p == 2.5:
        return size**2 * size.sqrt()
    return size ** int(p) if p == int(p) else size ** Decimal(p)


def exact_norm(arrays, p):
    """The joint norm of order `p`, to 50 digits and with any exponent."""
    with localcontext(DIGITS):
        sizes = [Decimal(abs(each)) for array in arrays for each in array.reshape(-1).tolist()]
        if p == math.inf:
            return Fraction(max(sizes, default=0))
        total = sum((power(+size, p) for size in sizes if size), Decimal(0))  # rounded to 60 digits
        return Fraction(total ** (1 / Decimal(p))) if total else Fraction(0)


def to_decimal(number):
    """A fraction, or a number that `Decimal` takes, to 60 digits."""
    return Decimal(number.numerator) / number.denominator if isinstance(number, Fraction) else Decimal(number)


def bounded(exact, limits):
    """What is left of an exact number in a type: infinity beyond its range."""
    return Decimal("inf").copy_sign(exact) if abs(exact) > Decimal(float(limits.max)) else exact


def assert_close(found, exact, roundings=4):
    """Each number is the exact one up to a few roundings of its type, also where that is denormal."""
    limits = np.finfo(found.dtype)
    assert found.size == len(exact)
    with localcontext(DIGITS):
        relative, least = roundings * Decimal(float(limits.eps)), 2 * Decimal(float(limits.smallest_subnormal))
        for value, expected in zip(found.reshape(-1).tolist(), map(to_decimal, exact), strict=True):
            expected = bounded(expected, limits)
            if expected.is_infinite() or math.isinf(value):
                assert value == expected
                continue
            assert abs(Decimal(value) - expected) <= relative * abs(expected) + least, (value, float(expected))


def assert_scaled(found, x, threshold, norm):
    """`found` is `x` scaled down from `norm` to the threshold, and the same bits where that is not less."""
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    if norm <= Fraction(threshold):
        assert found.tobytes() == x.tobytes()
        return
    with localcontext(DIGITS):
        factor = Decimal(threshold) / to_decimal(norm)
        exact = [Decimal(each) * factor for each in x.reshape(-1).tolist()]
    assert_close(found, exact, 6 if x.dtype == np.float64 else 2)  # the norm has a few roundings in float64


@pytest.mark.laws
@each_order
@each_size
@each_magnitude
def test_a_global_norm_is_the_exact_one(dtype, magnitude, size, p):
    xs = [values(dtype, magnitude, size), values(dtype, magnitude / 8, 2, size), np.zeros((0, 2), dtype)]
    found = run("global_norm", {"X": xs}, p=p)
    assert (found.dtype, found.shape) == (np.dtype("float64" if dtype == "float64" else "float32"), (1,))
    assert_close(found, [exact_norm(xs, p)], 2 if p >= 1 else 8)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "size"), [(0.01, 1000), (0.01, 10_000), (0.005, 4)])
def test_a_root_of_low_order_may_leave_the_range_on_the_way(p, size):
    p = float(np.float32(p))  # as an attribute holds it
    x = np.full(size, 1e-300)  # the root alone is 10000 ** 100
    assert_close(run("global_norm", {"X": [x]}, p=p), [exact_norm([x], p)], 10_000)


def clip_together(xs, threshold, **attrs):
    """What `clip_by_global_norm` makes of several arrays, and their norm."""
    program, feed = fluid.Program(), {"threshold": number(threshold)}
    feed |= {f"x_{i}": x for i, x in enumerate(xs)}
    block = program.global_block()
    for name, array in feed.items():
        block.create_var(name=name, shape=array.shape, dtype=array.dtype)
    outputs = [block.create_var(name=f"out_{i}") for i in range(len(xs) + 1)]
    block.append_op(
        "clip_by_global_norm",
        {"X": [f"x_{i}" for i in range(len(xs))], "ClipNorm": "threshold"},
        {"Out": outputs[:-1], "Norm": outputs[-1]},
        attrs,
    )
    return fluid.Executor().run(program, feed=feed, fetch_list=outputs)


@pytest.mark.laws
@each_order
@each_size
@each_magnitude
def test_tensors_are_scaled_together_to_the_threshold(dtype, magnitude, size, p):
    xs = [values(dtype, magnitude, size, 2), values(dtype, magnitude / 8, size), np.zeros((0, 2), dtype)]
    norm = exact_norm(xs, p)
    for times in (Fraction(1, 4), Fraction(3)):
        threshold = float(norm * times) if size and norm * times < Fraction(1e308) else 1e308
        *found, found_norm = clip_together(xs, threshold, p=p)
        for each, x in zip(found, xs, strict=True):
            assert_scaled(each, x, threshold, norm)
        assert_close(found_norm, [norm], 2 if p >= 1 else 8)


@pytest.mark.laws
@each_order
@each_size
@each_magnitude
def test_each_slice_is_scaled_by_a_norm_of_its_own(dtype, magnitude, size, p):
    x = values(dtype, magnitude, 4, size)
    x[1] = 0
    x[2] = values(dtype, magnitude / 8, size)
    norms = [exact_norm([row], p) for row in x]
    threshold = float(norms[0] / 2) if size else 1.0
    found = run("clip_by_axis_norm", {"X": x, "MaxNorm": number(threshold)}, axes=[-1], p=p)
    across = run("clip_by_axis_norm", {"X": np.ascontiguousarray(x.T), "MaxNorm": number(threshold)}, axes=[0], p=p)
    for row, column, original, norm in zip(found, across.T.copy(), x, norms, strict=True):
        assert_scaled(row, original, threshold, norm)
        assert_scaled(column, original, threshold, norm)


@pytest.mark.laws
@each_size
@each_magnitude
def test_all_axes_or_none_are_the_whole_tensor(dtype, magnitude, size):
    x = values(dtype, magnitude, 2, size)
    norm = exact_norm([x], 2)
    threshold = float(norm / 2)
    threshold = float(np.float32(threshold)) if 1e-45 < threshold < 1e38 else 1.0  # as the attribute holds it
    for axes in ([], [0, 1], [-1, 0]):
        assert_scaled(run("clip_by_axis_norm", {"X": x}, axes=axes, max_norm=threshold), x, threshold, norm)
    assert_scaled(run("clip_by_norm", {"X": x}, max_norm=threshold), x, threshold, norm)


@each_size
@each_magnitude
def test_values_are_bounded_exactly(dtype, magnitude, size):
    x = values(dtype, magnitude, size)
    low, high = number(-magnitude / 2, dtype), number(magnitude / 4, dtype)
    found = run("clip", {"X": x, "Min": low, "Max": high}, min=0.0, max=1.0)
    bounds = Fraction(low.item()), Fraction(high.item())
    assert found.dtype == x.dtype
    assert [Fraction(v) for v in found.tolist()] == [min(max(Fraction(v), bounds[0]), bounds[1]) for v in x.tolist()]


@pytest.mark.parametrize("dtype", MAGNITUDES)
@pytest.mark.parametrize(("p", "threshold"), [(1.0, 7.0), (2.0, 5.0), (math.inf, 4.0)])
def test_a_norm_exactly_at_the_threshold_changes_no_bit(dtype, p, threshold):
    x = np.array([[3, -4], [-0.0, 0]], dtype)
    for type, inputs, attrs in [
        ("clip_by_axis_norm", {"X": x}, {"axes": [1], "max_norm": threshold, "p": p}),
        ("clip_by_axis_norm", {"X": x}, {"axes": [], "max_norm": threshold, "p": p}),
    ]:
        assert run(type, inputs, **attrs).tobytes() == x.tobytes()
    found, norm = run("clip_by_global_norm", {"X": [x], "ClipNorm": number(threshold, dtype)}, p=p)
    assert found.tobytes() == x.tobytes() and norm.tolist() == [threshold]


@each_order
def test_the_norm_of_one_number_is_its_magnitude(p):
    for value in (5.0, -0.1, 1e-320, -1.7e308):
        assert run("global_norm", {"X": [number(value)]}, p=p).tolist() == [abs(value)]


@each_order
@pytest.mark.parametrize("dtype", MAGNITUDES)
def test_what_is_not_finite_stays_visible(dtype, p):
    finite, infinite, nan = [np.array([1, each, 2], dtype) for each in (0, -math.inf, math.nan)]
    assert run("global_norm", {"X": [finite, infinite]}, p=p) == math.inf
    assert np.isnan(run("global_norm", {"X": [infinite, finite, nan]}, p=p))
    x = np.stack([finite, infinite, nan])
    found = run("clip_by_axis_norm", {"X": x}, axes=[1], max_norm=4096.0, p=p)
    np.testing.assert_array_equal(found[0], finite)
    np.testing.assert_array_equal(found[1], [0, math.nan, 0])
    assert np.isnan(found[2]).all()


def test_strict_makes_everything_nan_when_the_norm_is_not_finite():
    x = np.array([1, math.inf], "float32")
    loose, _ = run("clip_by_global_norm", {"X": [x], "ClipNorm": number(1.0)})
    strict, norm = run("clip_by_global_norm", {"X": [x], "ClipNorm": number(1.0)}, strict=True)
    np.testing.assert_array_equal(loose, [0, math.nan])
    assert np.isnan(strict).all() and norm == math.inf
    beyond = np.full(100, 3e38, "float32")  # the norm is finite, though float32 cannot hold it
    found, norm = run("clip_by_global_norm", {"X": [beyond], "ClipNorm": number(1.0, "float32")}, strict=True)
    assert_close(found, [Fraction(1, 10)] * 100)
    assert norm == math.inf


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan])
def test_a_threshold_that_is_computed_must_be_positive_too(threshold):
    x = np.ones(3)
    with pytest.raises(ExecutionError, match="ClipNorm must be positive"):
        run("clip_by_global_norm", {"X": [x], "ClipNorm": number(threshold)}, strict=True)
    with pytest.raises(ExecutionError, match="MaxNorm must be positive"):
        run("clip_by_axis_norm", {"X": x, "MaxNorm": number(threshold)}, axes=[])


@pytest.mark.parametrize(
    ("type", "attrs", "message"),
    [
        ("global_norm", {"p": 0.0}, "p must be positive"),
        ("global_norm", {"p": -math.inf}, "p must be positive"),
        ("global_norm", {"p": math.nan}, "p must be positive"),
        ("clip_by_axis_norm", {"axes": [2]}, "axes must be in"),
        ("clip_by_axis_norm", {"axes": [1, -1]}, "axes names a dimension twice"),
        ("clip_by_axis_norm", {"axes": [], "max_norm": 0.0}, "max_norm must be positive"),
        ("clip_by_axis_norm", {"axes": [], "p": -2.0}, "p must be positive"),
    ],
)
def test_what_has_no_meaning_is_refused_when_the_operator_is_made(type, attrs, message):
    x = np.ones((2, 3))
    with pytest.raises(OpError, match=message):
        append(type, {"X": [x] if type == "global_norm" else x}, **attrs)
    with pytest.raises(OpError, match="must be floating point"):
        append("global_norm", {"X": [np.ones(3, "int64")]})


# Gradients where no central difference reaches


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
@each_magnitude
def test_the_gradient_of_a_norm_is_exact_at_every_magnitude(dtype, magnitude, p):
    x = values(dtype, magnitude, 5)
    norm = exact_norm([x], p)
    found = gradient("global_norm", {"X": [x]}, "X", p=p)
    sizes = [Fraction(float(each)) for each in x]
    if p == math.inf:
        ties = [abs(s) == norm for s in sizes]
        expected = [Fraction(int(np.sign(s)) * tie, sum(ties)) for s, tie in zip(sizes, ties, strict=True)]
    else:
        expected = [Fraction(int(np.sign(s))) * (abs(s) / norm) ** int(p - 1) for s in sizes]
    assert_close(found, expected, 8)


@each_order
def test_the_gradient_of_a_norm_of_zeros_is_zero(p):
    for x in (np.zeros(3), np.zeros(0)):
        assert gradient("global_norm", {"X": [x]}, "X", p=p).tolist() == [0] * x.size


def test_equal_magnitudes_share_the_gradient_of_the_largest():
    x = np.array([2, -2, 1, 0.0])
    assert gradient("global_norm", {"X": [x, np.array([2.0])]}, "X", p=math.inf).tolist() == [1 / 3, -1 / 3, 0, 0]


def test_an_element_at_zero_has_gradient_zero_for_low_orders_too():
    assert gradient("global_norm", {"X": [np.array([0.0, 4.0])]}, "X", p=0.5).tolist() == [0, 1]


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_at_the_threshold_and_at_zero_the_gradient_of_a_clip_is_the_identity(p):
    d_out = np.array([1.0, 2, 3])
    for x, threshold in ((np.array([3.0, 0, -4]), {1.0: 7.0, 2.0: 5.0}.get(p, 4.0)), (np.zeros(3), 1.0)):
        joint = {"X": [x], "ClipNorm": number(threshold)}
        assert gradient("clip_by_global_norm", joint, "X", cotangent=d_out, p=p).tolist() == d_out.tolist()
        assert gradient("clip_by_global_norm", joint, "ClipNorm", cotangent=d_out, p=p).tolist() == [0]
        found = gradient("clip_by_axis_norm", {"X": x}, "X", cotangent=d_out, axes=[0], max_norm=threshold, p=p)
        assert found.tolist() == d_out.tolist()


@each_magnitude
def test_the_gradient_of_a_clip_is_across_its_input_at_every_magnitude(dtype, magnitude):
    x, d_out = values(dtype, magnitude, 5), np.arange(1, 6).astype(dtype)
    norm = exact_norm([x], 2)
    threshold = float(norm / 2)
    units = [Fraction(float(each)) / norm for each in x]
    along = sum(u * Fraction(float(d)) for u, d in zip(units, d_out, strict=True))
    factor = Fraction(threshold) / norm
    expected = [factor * (Fraction(float(d)) - along * u) for u, d in zip(units, d_out, strict=True)]
    clip_norm = number(threshold)
    for found in (
        gradient("clip_by_global_norm", {"X": [x], "ClipNorm": clip_norm}, "X", cotangent=d_out),
        gradient("clip_by_axis_norm", {"X": x, "MaxNorm": clip_norm}, "X", cotangent=d_out, axes=[]),
    ):
        assert found.dtype == x.dtype
        tolerance = 16 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(
            found.astype("float64"), [float(e) for e in expected], rtol=tolerance, atol=tolerance
        )


@pytest.mark.timing
@pytest.mark.parametrize("p", [2.0, 3.0, math.inf])
def test_the_time_grows_with_the_number_of_elements(p):
    executor = fluid.Executor()

    def work(size):
        program, variables, feed = append("global_norm", {"X": [np.ones(size, "float32")]}, p=p)

        def run():
            executor.run(program, feed=feed, fetch_list=variables["Out"])

        run()  # prepares the program
        return run

    assert_grows(work, 2**16, factor=16, limit=100)  # 256 if it were quadratic


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_only_short_arrays_are_joined(dtype):
    short, long = np.ones(3, dtype), np.ones(SHORT + 1, dtype)
    assert [x.size for x in short_joined([short, short, long, long, short])] == [6, SHORT + 1, SHORT + 1, 3]
