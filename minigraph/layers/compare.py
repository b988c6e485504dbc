"""Comparisons and logic, element by element; their results are booleans through which no gradient flows."""

from __future__ import annotations

from typing import Any, Protocol

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, layer, layer_called

__all__ = [
    "allclose", "elementwise_equal", "equal", "greater_equal", "greater_than", "has_inf", "has_nan", "is_empty",
    "isfinite", "less_equal", "less_than", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal",
]  # fmt: skip


@layer
def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """``x < y``, written to `cond` if given. `force_cpu` changes nothing."""
    return _compare("less_than", x, y, cond, **({} if force_cpu is None else {"force_cpu": force_cpu}))


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None, **attrs: Any) -> Variable:
    inputs = {"X": check_variable(x, f"{op_type}: x"), "Y": check_variable(y, f"{op_type}: y")}
    return _append(LayerHelper(op_type), op_type, inputs, cond, "cond", attrs)


class Comparison(Protocol):
    def __call__(self, x: Variable, y: Variable, cond: Variable | None = None) -> Variable: ...


def _comparison(op_type: str, formula: str) -> Comparison:
    @layer_called(op_type, formula)
    def comparison(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
        return _compare(op_type, x, y, cond)

    return comparison


less_equal = _comparison("less_equal", "``x <= y``, written to `cond` if given.")
greater_than = _comparison("greater_than", "``x > y``, written to `cond` if given.")
greater_equal = _comparison("greater_equal", "``x >= y``, written to `cond` if given.")
equal = _comparison("equal", "``x == y``, written to `cond` if given.")
not_equal = _comparison("not_equal", "``x != y``, written to `cond` if given.")


class Logical(Protocol):
    def __call__(self, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable: ...


def _logical(op_type: str, formula: str) -> Logical:
    @layer_called(op_type, formula)
    def logical(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
        inputs = {"X": check_variable(x, f"{op_type}: x"), "Y": check_variable(y, f"{op_type}: y")}
        return _append(LayerHelper(op_type, name), op_type, inputs, out, "out", {})

    return logical


logical_and = _logical("logical_and", "Whether both are true, written to `out` if given.")
logical_or = _logical("logical_or", "Whether one or both are true, written to `out` if given.")
logical_xor = _logical("logical_xor", "Whether exactly one is true, written to `out` if given.")


@layer
def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Whether `x` is false, written to `out` if given."""
    inputs = {"X": check_variable(x, "logical_not: x")}
    return _append(LayerHelper("logical_not", name), "logical_not", inputs, out, "out", {})


@layer
def isfinite(x: Variable) -> Variable:
    """Whether every element is finite, one boolean of shape [1]."""
    return LayerHelper("isfinite").unary("isfinite", {"X": check_variable(x, "isfinite: x")})


@layer
def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``x == y``, as a layer that can be given a name."""
    helper = LayerHelper("elementwise_equal", name)
    inputs = {"X": check_variable(x, "elementwise_equal: x"), "Y": check_variable(y, "elementwise_equal: y")}
    return _append(helper, "equal", inputs, None, "out", {})


@layer
def has_nan(x: Variable) -> Variable:
    """Whether any element is NaN, bool[1]."""
    return _append(LayerHelper("isnan"), "isnan", {"X": check_variable(x, "has_nan: x")}, None, "cond", {})


@layer
def has_inf(x: Variable) -> Variable:
    """Whether any element is infinite, bool[1]."""
    return _append(LayerHelper("isinf"), "isinf", {"X": check_variable(x, "has_inf: x")}, None, "cond", {})


@layer
def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether there are no elements, bool[1]; written to `cond` if given."""
    return _append(LayerHelper("is_empty"), "is_empty", {"X": check_variable(x, "is_empty: x")}, cond, "cond", {})


@layer
def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Whether ``|input - other| <= atol + rtol * |other|`` everywhere, bool[1]; with `equal_nan` NaN equals NaN."""
    inputs = {"Input": check_variable(input, "allclose: input"), "Other": check_variable(other, "allclose: other")}
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return _append(LayerHelper("allclose", name), "allclose", inputs, None, "out", attrs)


def _append(
    helper: LayerHelper, op_type: str, inputs: dict[str, Variable], given: Variable | None, what: str,
    attrs: dict[str, Any],
) -> Variable:  # fmt: skip
    result = helper.temporary() if given is None else check_variable(given, f"{op_type}: {what}")
    helper.append(op_type, inputs, {"Out": result}, attrs)
    if given is None:
        result.stop_gradient = True
    return result
