"""Comparisons, logic, and Python's operators on variables."""

import numpy as np
import pytest
from one_op import append, run

import minigraph as fluid
from minigraph import layers
from minigraph.dygraph import to_variable
from minigraph.errors import OpError, ProgramError, WrongTypeError

TYPES = {
    "equal": np.equal, "not_equal": np.not_equal, "less_than": np.less, "less_equal": np.less_equal,
    "greater_than": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip


@pytest.fixture
def program():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield fluid.default_main_program()


def test_no_gradient_flows_through_a_condition(program):
    x = fluid.data("x", [4])
    x.stop_gradient = False
    conditions = [x < 1.0, x == x, layers.less_than(x, x), layers.has_nan(x), layers.where(x > 1.0)]
    conditions += [layers.logical_and(x < 1.0, x > 0.0), layers.logical_not(x < 1.0)]
    assert all(each.stop_gradient for each in conditions)


# Operators of programs


@pytest.mark.parametrize("type", TYPES)
def test_nan_equals_nothing_and_zeros_are_equal(type):
    x = np.array([np.nan, 0.0, np.inf, 1.0], "float32")
    y = np.array([np.nan, -0.0, np.inf, np.nan], "float32")
    expected = {"not_equal": [True, False, False, True], "less_than": [False] * 4, "greater_than": [False] * 4}
    assert run(type, {"X": x, "Y": y}).tolist() == expected.get(type, [False, True, True, False])


def test_equality_is_exact():
    x = np.array([1e-9, 1.0], "float64")
    y = np.array([0.0, 1.0 + 1e-9], "float64")
    assert run("equal", {"X": x, "Y": y}).tolist() == [False, False]
    assert run("not_equal", {"X": x, "Y": y}).tolist() == [True, True]
    large = np.array([2**53 + 1])
    assert run("equal", {"X": large, "Y": large - 1}).tolist() == [False]


def test_operands_must_go_together():
    x = np.zeros(3, "float32")
    with pytest.raises(OpError, match="X and Y must have one element type"):
        append("less_than", {"X": x, "Y": x.astype("float64")})
    with pytest.raises(OpError, match="X must be a number, got bool"):
        append("less_than", {"X": x > 0, "Y": x > 0})
    with pytest.raises(OpError, match="do not broadcast"):
        append("equal", {"X": x, "Y": np.zeros(2, "float32")})
    with pytest.raises(OpError, match="Y must be bool, got float32"):
        append("logical_and", {"X": x > 0, "Y": x})
    with pytest.raises(OpError, match="X and Y must have equal shapes"):
        append("logical_or", {"X": x > 0, "Y": np.array([True])})
    with pytest.raises(OpError, match="X must be bool, got int32"):
        append("reduce_any", {"X": np.zeros(3, "int32")})


@pytest.mark.parametrize("type", TYPES)
def test_either_operand_may_be_the_smaller_one(type):
    x, y = np.array([[1.0], [2.0]]), np.array([1.0, 2.0, 3.0])
    assert run(type, {"X": x, "Y": y}).tolist() == TYPES[type](x, y).tolist()
    assert run(type, {"X": y, "Y": x}).tolist() == TYPES[type](y, x).tolist()


def test_everything_is_finite_or_not():
    for dtype in ("float16", "float32", "float64"):
        for value, expected in ((1.0, True), (np.inf, False), (-np.inf, False), (np.nan, False)):
            found = run("isfinite", {"X": np.array([[0.0, value]], dtype)})
            assert found.shape == (1,) and found.dtype == bool and found[0] == expected
    assert run("isfinite", {"X": np.zeros((0, 3), "float32")}).tolist() == [True]


def test_a_result_may_be_written_to_a_variable(program):
    x, y = fluid.data("x", [2]), fluid.data("y", [2])
    given = program.global_block().create_var(name="given", dtype="bool")
    assert layers.less_than(x, y, cond=given) is given
    assert layers.logical_not(given, out=given) is given
    (found,) = fluid.Executor().run(
        program, feed={"x": np.array([1, 3], "float32"), "y": np.array([2, 2], "float32")}, fetch_list=[given]
    )
    assert found.tolist() == [False, True]


def test_no_gradient_flows_through_a_comparison(program):
    x = fluid.data("x", [2])
    x.stop_gradient = False
    smaller = x < 0.5
    assert smaller.stop_gradient and layers.equal(x, x).stop_gradient
    loss = layers.reduce_sum(x * layers.cast(smaller, "float32"))
    (grad,) = fluid.gradients([loss], [x])
    feed = {"x": np.array([0.25, 3], "float32")}
    assert fluid.Executor().run(program, feed=feed, fetch_list=[grad])[0].tolist() == [1, 0]


# Python's operators


X = np.array([-7, 7, -6, 4], "int64")
Y = np.array([3, -3, 3, 4], "int64")

OPERATORS = {
    "<": (lambda x, y: x < y, np.less), "<=": (lambda x, y: x <= y, np.less_equal),
    ">": (lambda x, y: x > y, np.greater), ">=": (lambda x, y: x >= y, np.greater_equal),
    "==": (lambda x, y: x == y, np.equal), "!=": (lambda x, y: x != y, np.not_equal),
    "%": (lambda x, y: x % y, np.fmod), "//": (lambda x, y: x // y, lambda x, y: np.trunc(x / y).astype("int64")),
    "&": (lambda x, y: (x < 0) & (y < 0), lambda x, y: (x < 0) & (y < 0)),
    "|": (lambda x, y: (x < 0) | (y < 0), lambda x, y: (x < 0) | (y < 0)),
    "^": (lambda x, y: (x < 0) ^ (y < 0), lambda x, y: (x < 0) ^ (y < 0)),
    "~": (lambda x, y: ~(x < y), lambda x, y: ~(x < y)),
    "< number": (lambda x, y: x < 4, lambda x, y: x < 4), ">= number": (lambda x, y: x >= 4, lambda x, y: x >= 4),
    "% number": (lambda x, y: x % 4, lambda x, y: np.fmod(x, 4)),
    "// number": (lambda x, y: y // 2, lambda x, y: np.trunc(y / 2)),
    "number %": (lambda x, y: 10 % y, lambda x, y: np.fmod(10, y)),
    "number //": (lambda x, y: 10 // y, lambda x, y: np.trunc(10 / y)),
    "** number": (lambda x, y: x**2, lambda x, y: x**2),
    "number **": (lambda x, y: 2 ** (y * y), lambda x, y: 2 ** (y * y)),
    "**": (lambda x, y: x ** (y * y), lambda x, y: x ** (y * y)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_that_of_numpy_in_both_modes(name, program):
    function, truth = OPERATORS[name]
    expected = truth(X, Y)
    x, y = fluid.data("x", [4], "int64"), fluid.data("y", [4], "int64")
    (found,) = fluid.Executor().run(program, feed={"x": X, "y": Y}, fetch_list=[function(x, y)])
    with fluid.dygraph.guard():
        eager = function(to_variable(X), to_variable(Y)).numpy()
    for result in (found, eager):
        assert result.tolist() == expected.tolist()
        assert (result.dtype == bool) == (expected.dtype == bool)


def test_floating_point_rests_have_the_sign_of_the_divisor():
    x = np.array([-7, 7, -6, 6, -0.5], "float32")
    y = np.array([3, -3, 3, -3, np.inf], "float32")
    with fluid.dygraph.guard():
        found = (to_variable(x) % to_variable(y)).numpy()
    assert found.tolist() == [2, -2, 0, 0, np.inf]


def test_a_power_of_a_batch_is_one_operator(program):
    x = layers.data("x", [3])
    assert (x**0.5).shape == (2.0**x).shape == (-1, 3)
    types = [op.type for op in program.global_block().ops]
    assert types == ["fill_constant", "elementwise_pow", "fill_constant_batch_size_like", "elementwise_pow"]
    feed = {"x": np.full((2, 3), 4, "float32")}
    found = fluid.Executor().run(program, feed=feed, fetch_list=[x**0.5, 2.0**x])
    assert [a.tolist() for a in found] == [[[2.0] * 3] * 2, [[16.0] * 3] * 2]


def test_a_number_is_compared_as_it_is(program):
    x = fluid.data("x", [2], "int64")
    result = x == 2**53 + 1
    feed = {"x": np.array([2**53 + 1, 2**53])}
    assert fluid.Executor().run(program, feed=feed, fetch_list=[result])[0].tolist() == [True, False]
    z = fluid.data("z", [1], "float64")
    assert fluid.Executor().run(program, feed={"z": np.array([0.1])}, fetch_list=[z == 0.1])[0].tolist() == [True]
    with pytest.raises(WrongTypeError, match=r"holds integers, 2.5 is none"):
        x < 2.5  # noqa: B015
    # A variable that is no integer converts the other one, not itself.
    assert fluid.Executor().run(
        program, feed={"x": np.array([2, 3]), "z": np.array([2.5])}, fetch_list=[x < z]
    )[0].tolist() == [True, False]  # fmt: skip


def test_tensors_without_dimensions_stay_without():
    x = fluid.to_tensor(3.0)
    for found, expected in ((x**2, 9), (2**x, 8), (x % 2, 1), (1 / x, 1 / 3), (x < 4, True)):
        assert found.shape == () and found.numpy() == np.float32(expected)


def test_variables_are_hashed_by_identity(program):
    x, y = fluid.data("x", [2]), fluid.data("y", [3])
    assert {x: 1, y: 2}[y] == 2
    assert x in {x, y} and len({x, y, x}) == 2
    assert not program.global_block().ops, "nothing asked =="
    assert x in [x, y], "a list asks for identity first"
    assert (x == None) is False and (x != None) is True and (x == "x") is False  # noqa: E711
    assert not program.global_block().ops


def test_the_result_of_equality_cannot_decide(program):
    x, y, z = fluid.data("x", [2]), fluid.data("y", [2]), fluid.data("z", [3])
    with pytest.raises(ProgramError, match="cannot decide an `if`") as caught:
        x in [y]  # noqa: B015
    assert "`in` a list asks ==" in caught.value.hint
    with pytest.raises(OpError, match="do not broadcast") as caught:
        x in [z]  # noqa: B015
    assert "write `is`" in caught.value.hint
    with pytest.raises(WrongTypeError, match="cannot be compared with an array"):
        x == np.zeros(2)  # noqa: B015


def test_tensors_in_a_list_are_found_by_value():
    with fluid.dygraph.guard():
        one, other, two = (to_variable(np.array([v], "float32")) for v in (1, 1, 2))
        assert one in [other] and one not in [two]
        assert {one: "a"}.get(other) is None, "dictionaries go by identity"
