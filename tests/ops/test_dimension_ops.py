"""Edge facts about operators along dimensions: products, running sums, norms, extremes, sorting; and of division."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from one_op import append, gradient, run

from minigraph.errors import ExecutionError, OpError

FLOATS = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])

# Rests, quotients and powers


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_divided_toward_zero(dtype):
    x, y = (
        np.array(a, dtype) for a in zip(*itertools.product(range(-9, 10), [*range(-4, 0), *range(1, 5)]), strict=True)
    )
    quotients = [math.trunc(Fraction(int(a), int(b))) for a, b in zip(x, y, strict=True)]
    assert run("elementwise_floordiv", {"X": x, "Y": y}).tolist() == quotients
    rests = [int(a) - q * int(b) for a, b, q in zip(x, y, quotients, strict=True)]
    assert run("elementwise_mod", {"X": x, "Y": y}).tolist() == rests


@FLOATS
def test_a_floating_point_rest_has_the_sign_of_the_divisor(dtype):
    x = np.array([-7.5, 7.5, -6, 6, 5, np.inf, np.nan], dtype)
    y = np.array([3, -3, 3, -3, np.inf, 2, 2], dtype)
    expected = [1.5, -1.5, 0, 0, 5, np.nan, np.nan]
    assert np.array_equal(run("elementwise_mod", {"X": x, "Y": y}), expected, equal_nan=True)
    assert np.isnan(run("elementwise_mod", {"X": x[:1], "Y": np.zeros(1, dtype)})).all()


@pytest.mark.parametrize("type", ["elementwise_mod", "elementwise_floordiv"])
def test_integer_division_by_zero_is_an_error(type):
    with pytest.raises(ExecutionError, match="integer division by zero"):
        run(type, {"X": np.array([1, 2]), "Y": np.array([1, 0])})


def test_only_integers_are_floor_divided():
    with pytest.raises(OpError, match="X must hold integers, got float32"):
        append("elementwise_floordiv", {"X": np.ones(2, "float32"), "Y": np.ones(2, "float32")})


def test_powers_of_integers_are_exact_and_fractions_are_cut():
    x, y = np.array([2, 3, -2, 1, -1, -1, 7]), np.array([-1, -2, 3, -1, -1, -2, 22])
    expected = [int(Fraction(int(a)) ** int(b)) for a, b in zip(x, y, strict=True)]
    assert run("elementwise_pow", {"X": x, "Y": y}).tolist() == expected
    with pytest.raises(ExecutionError, match="0 has no negative power"):
        run("elementwise_pow", {"X": np.array([0]), "Y": np.array([-1])})


def test_the_slopes_of_a_power_are_finite_where_it_is_smooth():
    x, y = np.array([0.0, 0.0, -2.0, 3.0]), np.array([0.0, 2.0, 2.0, 0.0])
    assert gradient("elementwise_pow", {"X": x, "Y": y}, "X").tolist() == [0, 0, -4, 0]
    found = gradient("elementwise_pow", {"X": x, "Y": y}, "Y")
    assert np.array_equal(found, [-np.inf, 0, np.nan, np.log([3.0])[0]], equal_nan=True)


# Products and running sums


def products_of_others(row):
    return [math.prod(other for j, other in enumerate(row) if j != i) for i in range(len(row))]


@FLOATS
def test_the_slope_of_a_product_is_the_product_of_the_others(dtype):
    x = np.array([[0, 2, 3], [0, 0, 5], [-1, 4, 2], [0.5, np.inf, 2]], dtype)
    expected = [products_of_others(row) for row in x.tolist()]
    assert gradient("reduce_prod", {"X": x}, "X", dim=[1]).tolist() == expected
    whole = gradient("reduce_prod", {"X": x[2:3]}, "X", reduce_all=True)
    assert whole.tolist() == expected[2:3]


def test_the_slope_of_a_product_takes_linear_time_and_does_not_divide():
    x = np.full(200_001, 1.0)
    x[1234] = 0
    found = gradient("reduce_prod", {"X": x}, "X", dim=[0])
    assert found[1234] == 1 and np.count_nonzero(found) == 1


def test_a_product_of_nothing_is_one():
    assert run("reduce_prod", {"X": np.zeros((0, 2), "float32")}, dim=[0]).tolist() == [1, 1]
    assert run("reduce_all", {"X": np.zeros((0, 2), bool)}, dim=[0]).tolist() == [True, True]
    assert run("reduce_any", {"X": np.zeros((0, 2), bool)}, dim=[0]).tolist() == [False, False]


def running(row, exclusive, reverse):
    ordered = row[::-1] if reverse else row
    totals = [sum(ordered[: i if exclusive else i + 1]) for i in range(len(row))]
    return totals[::-1] if reverse else totals


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums_leave_out_what_they_should(exclusive, reverse):
    rows = [[1, -2, 5, 7], [0, 3, 3, -9]]
    attrs = {"exclusive": exclusive, "reverse": reverse}
    expected = [running(row, **attrs) for row in rows]
    for dtype in ("int32", "int64", "float16", "float32", "float64"):
        x = np.array(rows, dtype)
        assert run("cumsum", {"X": x}, **attrs).tolist() == expected
        assert run("cumsum", {"X": x.T.copy()}, axis=-2, **attrs).T.tolist() == expected


def test_a_running_sum_without_the_element_itself_survives_infinity():
    x = np.array([1.0, np.inf, 2.0], "float32")
    assert run("cumsum", {"X": x}, exclusive=True).tolist() == [0, 1, np.inf]


def test_running_sums_do_not_pile_up_errors():
    x = np.full(100_000, 0.1, "float32")
    expected = np.arange(1, x.size + 1) * float(x[0])
    assert np.allclose(run("cumsum", {"X": x}), expected, rtol=1e-7, atol=0)


# Norms


@pytest.mark.parametrize("porder", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(
    ("dtype", "size"), [("float16", 200), ("float32", 1e30), ("float64", 1e300), ("float64", 1e-200)]
)
def test_norms_along_a_dimension_neither_overflow_nor_underflow(dtype, size, porder):
    x = (np.array([[3, -4], [0, 0]]) * size).astype(dtype)
    expected = float(abs(x[0]).max()) * ((3 / 4) ** porder + 1) ** (1 / porder)
    found = run("p_norm", {"X": x}, porder=porder, axis=1)
    assert np.allclose(found, np.array([expected, 0]), rtol=np.finfo(dtype).eps * 4, atol=0)
    slopes = gradient("p_norm", {"X": x}, "X", porder=porder, axis=1, epsilon=0.0)
    assert np.allclose(
        slopes[0], np.sign(x[0]) * (np.abs(x[0].astype("float64")) / expected) ** (porder - 1), rtol=2e-3
    )
    assert slopes[1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("porder", "expected"),
    [
        (1.0, [[0.6666666666666666, -0.6666666666666666], [0.6666666666666666, 0.6666666666666666]]),
        (2.0, [[0.5454545454545454, -0.7272727272727273], [0.3090169943749474, 0.6180339887498948]]),
        (0.5, [[0.7518078993766352, -0.6510847396259811], [1.3024785661018206, 0.9209914264407282]]),
        (3.0, [[0.4341224268022147, -0.7717732032039372], [0.15805906700123315, 0.6322362680049326]]),
    ],
)
def test_epsilon_bounds_the_slope_of_a_norm(porder, expected):
    """The slopes are those of Paddle 1.8.5, which rounds 1 / 3 to float32."""
    attrs = {"porder": porder, "axis": 1, "epsilon": 0.5}
    found = gradient("p_norm", {"X": np.array([[3, -4], [0.5, 1]])}, "X", cotangent=np.ones(2), **attrs)
    np.testing.assert_allclose(found, expected, rtol=1e-7 if porder == 3 else 1e-14)
    assert gradient("p_norm", {"X": np.zeros((1, 2))}, "X", **attrs).tolist() == [[0, 0]]


@pytest.mark.parametrize("porder", [0.0, np.inf, -np.inf, -1.0, np.nan])
def test_the_order_of_a_norm_is_positive_and_finite(porder):
    with pytest.raises(OpError, match="porder must be positive and finite"):
        append("p_norm", {"X": np.ones((2, 3))}, porder=porder)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e30), ("float64", 1e200), ("float16", 300)])
def test_normalizing_neither_overflows_nor_turns(dtype, size):
    x = np.array([[3, -4], [6, 8]], dtype) * np.array(size, dtype)
    length, unit = run("norm", {"X": x}, axis=1)
    assert np.allclose(unit, [[0.6, -0.8], [0.6, 0.8]], rtol=2e-3)
    assert np.allclose(length / np.array(size, dtype), [[5], [10]], rtol=2e-3)


def test_normalizing_zeros_gives_zeros():
    x = np.zeros((2, 2), "float32")
    length, unit = run("norm", {"X": x}, axis=1, epsilon=1e-10)
    assert unit.tolist() == [[0, 0], [0, 0]] and np.allclose(length, 1e-5)
    assert np.allclose(gradient("norm", {"X": x}, "X", axis=1, epsilon=1e-10), 1e5, rtol=1e-6)


@pytest.mark.parametrize("type", ["norm", "p_norm", "cumsum", "arg_max", "arg_min", "argsort"])
def test_an_axis_that_is_not_there_is_refused(type):
    for axis in (2, -3):
        with pytest.raises(OpError, match=r"axis must be in \[-2, 2\)"):
            append(type, {"X": np.ones((2, 3))}, axis=axis)


# Extremes and sorting


@FLOATS
def test_the_first_of_several_extremes_is_found_and_nan_is_one(dtype):
    x = np.array([[1, 3, 3], [2, 2, 2], [np.inf, np.nan, np.nan]], dtype)
    assert run("arg_max", {"X": x}, axis=1).tolist() == [1, 0, 1]
    assert run("arg_min", {"X": x}, axis=-1, keepdims=True).tolist() == [[0], [0], [1]]


def test_the_index_in_a_vector_has_shape_1():
    for keepdims in (False, True):
        found = run("arg_min", {"X": np.array([4, 2, 2])}, axis=0, keepdims=keepdims, dtype=2)
        assert found.tolist() == [1] and found.dtype == np.int32


def test_nothing_has_no_extreme():
    with pytest.raises(OpError, match="no elements along dimension 0"):
        append("arg_max", {"X": np.zeros((0, 2))}, axis=0)
    assert run("arg_max", {"X": np.zeros((0, 2))}, axis=1).shape == (0,)
    with pytest.raises(OpError, match="dtype must be int32 or int64"):
        append("arg_max", {"X": np.zeros(2)}, axis=0, dtype=5)


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_keeps_equal_elements_in_order_and_puts_nan_at_the_large_end(descending):
    x = np.array([2, 1, np.nan, 2, 1, -np.inf, np.nan, np.inf])

    def key(i):
        size = (1, 0.0) if math.isnan(x[i]) else (0, x[i])
        return tuple(-part for part in size) if descending else size

    expected = sorted(range(len(x)), key=key)
    values, indices = run("argsort", {"X": x}, descending=descending)
    assert indices.tolist() == expected
    assert np.array_equal(values, x[expected], equal_nan=True)


def test_the_gradient_of_sorting_goes_where_the_elements_stood():
    x = np.array([[3.0, 1.0, 2.0], [5.0, 5.0, 4.0]])
    cotangent = np.array([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
    assert gradient("argsort", {"X": x}, "X", cotangent=cotangent).tolist() == [[30, 10, 20], [50, 60, 40]]
    down = gradient("argsort", {"X": x.T.copy()}, "X", cotangent=cotangent.T.copy(), axis=0, descending=True)
    assert down.T.tolist() == [[10, 30, 20], [40, 50, 60]]
