"""Edge facts about functions of one variable: accuracy, limits at the infinities, ties, powers, slopes."""

import math
from fractions import Fraction

import numpy as np
import pytest
from kernel_calls import OTHER
from one_op import append, gradient, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError
from minigraph.kernels.error_function import erf, erfc

FLOATS = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
EXTREMES = np.array([-np.inf, np.inf, np.nan])
MODULES = pytest.mark.parametrize("xp", [np, OTHER], ids=["numpy", "other"])

# The error function


def points():
    random = np.random.default_rng(4)
    edges = [0.84375, 1.25, 1 / 0.35, 6.0, 27.0]
    near_edges = [np.nextafter(edge, to) for edge in edges for to in (0, 99)]
    tiny = [5e-324, 1e-310, 1e-200, 1e-20, 0.0]
    positive = np.concatenate([random.uniform(0, 7, 20_000), np.geomspace(1e-8, 1, 2000), edges, near_edges, tiny])
    return np.concatenate([positive, -positive])


@MODULES
def test_erf_is_right_to_the_last_digits(xp):
    x = points()
    expected = np.array([math.erf(v) for v in x])
    with np.errstate(all="ignore"):
        found = erf(xp, x)
    assert (np.abs(found - expected) <= 1e-15 * np.abs(expected) + 5e-324).all()
    assert (np.signbit(found) == np.signbit(x)).all()


@MODULES
def test_erfc_keeps_its_digits_where_it_is_small(xp):
    x = np.concatenate([points(), np.linspace(7, 26, 500)])
    expected = np.array([math.erfc(v) for v in x])
    with np.errstate(all="ignore"):
        found = erfc(xp, x)
    assert (np.abs(found - expected) <= 2e-15 * expected + 1e-300).all()


def test_erf_of_narrow_types_is_rounded_once_or_nearly():
    x = points().astype("float32")
    expected = np.array([math.erf(v) for v in x])
    assert (np.abs(run("erf", {"X": x}) - expected) <= 6.5e-8 * np.abs(expected) + 1e-44).all()
    expected = np.array([math.erfc(v) for v in x])
    assert (np.abs(erfc(np, x) - expected) <= 6.5e-8 * expected + 1e-44).all()
    x = np.linspace(-4, 4, 999).astype("float16")
    expected = np.array([math.erf(v) for v in x]).astype("float16")
    assert np.array_equal(run("erf", {"X": x}), expected)


def test_gelu_of_float32_has_the_error_of_the_square_of_x():
    x = np.concatenate([np.linspace(-13, 13, 20_001), [0.0, -1e-30, 1e-30]]).astype("float32")
    wide = x.astype("float64")
    unit = np.finfo("float32").eps * (1 + wide**2)
    share = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide])
    assert (np.abs(run("gelu", {"X": x}) - wide * share) <= 3 * unit * np.abs(wide * share) + 1e-44).all()
    slope = wide * np.exp(-(wide**2) / 2) / math.sqrt(2 * math.pi)
    assert (np.abs(gradient("gelu", {"X": x}, "X") - share - slope) <= 3 * unit * (share + np.abs(slope)) + 1e-44).all()


def test_gelu_keeps_its_digits_where_it_is_small():
    x = np.linspace(-30, 10, 2001)
    expected = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])
    assert np.allclose(run("gelu", {"X": x}), expected, rtol=1e-12, atol=0)  # x ** 2 times an ulp
    inner = [math.sqrt(2 / math.pi) * (v + 0.044715 * v**3) for v in x]
    expected = np.array([v / (1 + math.exp(-2 * u)) if u > -300 else 0.0 for v, u in zip(x, inner, strict=True)])
    assert np.allclose(run("gelu", {"X": x}, approximate=True), expected, rtol=1e-12, atol=1e-250)


# Limits


LIMITS = {
    "erf": (-1, 1), "gelu": (0, np.inf), "softplus": (0, np.inf), "logsigmoid": (-np.inf, 0), "softsign": (-1, 1),
    "swish": (0, np.inf), "elu": (-1, np.inf), "leaky_relu": (-np.inf, np.inf), "relu6": (0, 6),
    "hard_sigmoid": (0, 1), "hard_swish": (0, np.inf), "rsqrt": (np.nan, 0), "reciprocal": (0, 0),
    "floor": (-np.inf, np.inf), "ceil": (-np.inf, np.inf), "round": (-np.inf, np.inf),
}  # fmt: skip


@FLOATS
@pytest.mark.parametrize("type", LIMITS)
def test_infinity_gives_the_limit_and_nan_stays(type, dtype):
    assert np.array_equal(run(type, {"X": EXTREMES.astype(dtype)}), [*LIMITS[type], np.nan], equal_nan=True)


SLOPES = {
    "erf": (0, 0), "gelu": (0, 1), "softplus": (0, 1), "logsigmoid": (1, 0), "softsign": (0, 0), "swish": (0, 1),
    "elu": (0, 1), "leaky_relu": (0.02, 1), "relu6": (0, 0), "hard_sigmoid": (0, 0), "hard_swish": (0, 1),
}  # fmt: skip


@FLOATS
@pytest.mark.parametrize("type", SLOPES)
def test_the_slope_at_infinity_is_the_limit(type, dtype):
    found = gradient(type, {"X": EXTREMES[:2].astype(dtype)}, "X")
    assert found.dtype == dtype and np.allclose(found, SLOPES[type], rtol=1e-3, atol=0)


def test_approximate_gelu_has_the_same_limits():
    assert run("gelu", {"X": EXTREMES[:2]}, approximate=True).tolist() == [0, np.inf]
    assert gradient("gelu", {"X": EXTREMES[:2]}, "X", approximate=True).tolist() == [0, 1]


@FLOATS
def test_far_from_zero_nothing_overflows(dtype):
    x = np.array([-60000, -100, 100, 60000], dtype)
    assert np.allclose(run("softplus", {"X": x}), [0, 0, x[2], x[3]], atol=1e-30)
    assert np.allclose(run("logsigmoid", {"X": x}), [x[0], x[1], 0, 0], atol=1e-30)
    assert np.allclose(gradient("elu", {"X": x}, "X", alpha=2.0), [0, 0, 1, 1], atol=1e-30)


# Rounding


@FLOATS
def test_halves_are_rounded_away_from_zero(dtype):
    below = np.nextafter(np.array(0.5, dtype), np.array(0, dtype))
    largest = np.finfo(dtype).max
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, below, -below, 1023, largest, -0.0], dtype)
    found = run("round", {"X": x})
    expected = [math.copysign(math.floor(abs(Fraction(float(v))) + Fraction(1, 2)), v) for v in x]
    assert found.tolist() == expected
    assert (np.signbit(found) == np.signbit(x)).all()


@pytest.mark.parametrize("type", ["floor", "ceil", "round"])
def test_rounding_has_no_slope(type):
    assert gradient(type, {"X": np.array([[0.5, -1.0], [2.0, 1e30]], "float32")}, "X").tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("type", ["floor", "sin", "rsqrt", "softplus", "gelu", "relu6", "l1_norm", "norm"])
def test_functions_of_real_numbers_refuse_integers(type):
    with pytest.raises(OpError, match="floating point"):
        append(type, {"X": np.array([1, 2])}, **({"axis": 0} if type == "norm" else {}))


# Powers


def test_the_power_zero_has_no_slope_anywhere():
    x = np.array([0.0, 2.0, -3.0, np.inf], "float32")
    assert run("pow", {"X": x}, factor=0.0).tolist() == [1, 1, 1, 1]
    assert gradient("pow", {"X": x}, "X", factor=0.0).tolist() == [0, 0, 0, 0]
    zero = np.array([0.0], "float32")
    assert gradient("pow", {"X": x, "FactorTensor": zero}, "X", factor=2.0).tolist() == [0, 0, 0, 0]


def test_powers_of_integers_are_exact():
    x = np.array([3, -7, 2, 0], "int64")
    assert run("pow", {"X": x}, factor=13.0).tolist() == [3**13, (-7) ** 13, 2**13, 0]
    assert run("pow", {"X": x[:3]}, factor=-1.0).tolist() == [0, 0, 0]
    assert run("pow", {"X": x, "FactorTensor": np.array([2.0], "float32")}).tolist() == [9, 49, 4, 0]


def test_integers_have_whole_powers_only():
    x = np.array([1, 2])
    with pytest.raises(OpError, match=r"the power must be whole, got 0.5"):
        append("pow", {"X": x}, factor=0.5)
    with pytest.raises(ExecutionError, match=r"the power must be whole, got 2.5"):
        run("pow", {"X": x, "FactorTensor": np.array([2.5], "float32")})
    with pytest.raises(ExecutionError, match="0 has no negative power"):
        run("pow", {"X": np.array([1, 0])}, factor=-1.0)
    with pytest.raises(OpError, match="FactorTensor must hold one number"):
        append("pow", {"X": x, "FactorTensor": np.array([1.0, 2.0])})


# Pieces


def test_leaky_relu_goes_by_the_sign_for_every_slope():
    x = np.array([-2.0, -0.0, 3.0], "float32")
    for alpha in (2.0, 1.0, 0.25, 0.0, -0.5):
        assert run("leaky_relu", {"X": x}, alpha=alpha).tolist() == [-2.0 * alpha, 0, 3]
    for alpha in (2.0, 1.0, 0.25, 0.0):
        assert gradient("leaky_relu", {"X": x}, "X", alpha=alpha).tolist() == [alpha, alpha, 1]
    with pytest.raises(OpError, match="alpha must not be negative where a gradient is taken"):
        gradient("leaky_relu", {"X": x}, "X", alpha=-0.5)


def test_elu_goes_by_the_sign_for_every_scale():
    x = np.array([-1.0, 0.5])
    np.testing.assert_allclose(run("elu", {"X": x}, alpha=-0.5), [0.5 - 0.5 / np.e, 0.5])
    np.testing.assert_allclose(gradient("elu", {"X": x}, "X", alpha=-0.5, cotangent=np.ones(2)), [-0.5 / np.e, 1])


def test_the_slope_of_selu_has_all_digits():
    found = gradient("selu", {"X": np.array([-1.0])}, "X", cotangent=np.ones(1), scale=1.5, alpha=1.25)
    np.testing.assert_allclose(found, [1.5 * 1.25 / np.e], rtol=1e-15)


def test_the_ends_of_pieces_have_the_slope_outside():
    x = np.array([-1, 0, 6, 7, 3], "float32")
    assert gradient("relu6", {"X": x}, "X").tolist() == [0, 0, 0, 0, 1]
    x = np.array([-3, 3, -4, 4, 0], "float32")
    assert gradient("hard_swish", {"X": x}, "X").tolist() == [0, 1, 0, 1, 0.5]
    # Beyond the threshold the function is a line of this slope.
    assert gradient("hard_swish", {"X": np.array([9.0])}, "X", threshold=5.0, scale=2.0).tolist() == [2.5]


@pytest.mark.parametrize(
    ("x", "alpha", "mode", "message"),
    [
        ((2, 3), (2,), "all", "Alpha must hold one number"),
        ((3,), (3,), "channel", "at least 2 dimensions"),
        ((2, 3), (2,), "channel", "each of the 3 channels"),
        ((2, 3), (3,), "element", r"Alpha must have shape \[1, 3\]"),
        ((2, 3), (2, 3), "element", r"Alpha must have shape \[1, 3\]"),
        ((2, 3), (1,), "rows", "mode must be all, channel or element"),
    ],
)
def test_slopes_that_do_not_fit_are_refused(x, alpha, mode, message):
    with pytest.raises(OpError, match=message):
        append("prelu", {"X": np.zeros(x), "Alpha": np.zeros(alpha)}, mode=mode)


def test_the_layer_prelu_makes_its_slopes():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3, 5, 5])
        shapes = {mode: (1, 3, 5, 5) if mode == "element" else None for mode in ("all", "channel", "element")}
        shapes |= {"all": (1,), "channel": (1, 3, 1, 1)}
        for mode, shape in shapes.items():
            out = layers.prelu(x, mode, param_attr=f"alpha_{mode}")
            assert out.block.var(f"alpha_{mode}").shape == shape
        with pytest.raises(ProgramError, match="mode must be all, channel or element"):
            layers.prelu(x, "rows")
        with pytest.raises(ProgramError, match=r"the number of slopes for .* is not known"):
            layers.prelu(fluid.data("z", [None, -1, 5]), "channel")


def test_the_layer_swish_heeds_beta():
    x = np.array([1.0, -2.0], "float32")
    with fluid.dygraph.guard():
        found = layers.swish(fluid.dygraph.to_variable(x), beta=3.0).numpy()
    assert np.allclose(found, x / (1 + np.exp(-3 * x.astype("float64"))), rtol=1e-6)


@pytest.mark.parametrize("beta", [[3.0], [0.5, -1.0]])
def test_a_beta_of_swish_that_is_a_variable_is_used_and_has_a_gradient(beta):
    x = np.array([[1.0, -2.0], [0.5, 3.0]])
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        given, factor = fluid.data("x", [None, 2], "float64"), fluid.data("beta", [len(beta)], "float64")
        factor.stop_gradient = False
        out = layers.swish(given, beta=factor)
        grads = fluid.gradients(out, [factor])
        feed = {"x": x, "beta": np.array(beta)}
        found, slope = fluid.Executor().run(feed=feed, fetch_list=[out, *grads])
    share = 1 / (1 + np.exp(-x * beta))
    np.testing.assert_allclose(found, x * share, rtol=1e-12)
    slopes = x * x * share * (1 - share)
    np.testing.assert_allclose(slope, [slopes.sum()] if len(beta) == 1 else slopes.sum(0), rtol=1e-12)


@pytest.mark.parametrize(
    ("type", "expected"), [("rsqrt", [-0.0, -15811389.0, 0.0]), ("reciprocal", [-0.0, -9.999999e19, 0.0])]
)
def test_gradients_near_0_are_those_of_paddle_where_a_power_of_the_result_overflows(type, expected):
    x, d = (np.array(each, "float32") for each in ([1e-30, 1e-25, 1e-22], [0.0, 1e-30, -0.0]))
    np.testing.assert_allclose(gradient(type, {"X": x}, "X", cotangent=d), np.float32(expected), rtol=2e-7)
