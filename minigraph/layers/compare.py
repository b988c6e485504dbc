"""Comparisons and logic, element by element; their results are booleans through which no gradient flows."""

from __future__ import annotations

from typing import Any, Protocol

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, constant, emit, layer, layer_called

__all__ = [
    "allclose", "elementwise_equal", "equal", "greater_equal", "greater_than", "has_inf", "has_nan", "is_empty",
    "isfinite", "less_equal", "less_than", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal",
]  # fmt: skip


@layer
def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """``x < y``, written to `cond` if given. `force_cpu` changes nothing."""
    return _emit("less_than", None, cond, X=x, Y=y, force_cpu=force_cpu)


def _emit(op_type: str, name: str | None, out: Variable | None, **slots_and_attrs: Any) -> Variable:
    """The operator; no gradient flows through its result, but `out` stays as it is."""
    result = emit(op_type, name, into=out, **slots_and_attrs)
    return constant(result) if out is None else result


class Comparison(Protocol):
    def __call__(self, x: Variable, y: Variable, cond: Variable | None = None) -> Variable: ...


def _comparison(op_type: str, formula: str) -> Comparison:
    @layer_called(op_type, formula)
    def comparison(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
        return _emit(op_type, None, cond, X=x, Y=y)

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
        return _emit(op_type, name, out, X=x, Y=y)

    return logical


logical_and = _logical("logical_and", "Whether both are true, written to `out` if given.")
logical_or = _logical("logical_or", "Whether one or both are true, written to `out` if given.")
logical_xor = _logical("logical_xor", "Whether exactly one is true, written to `out` if given.")


@layer
def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Whether `x` is false, written to `out` if given."""
    return _emit("logical_not", name, out, X=x)


@layer
def isfinite(x: Variable) -> Variable:
    """Whether every element is finite, one boolean of shape [1]."""
    return emit("isfinite", X=x)


@layer
def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``x == y``, as a layer that can be given a name."""
    return constant(LayerHelper("elementwise_equal", name).emit("equal", X=x, Y=y))


@layer
def has_nan(x: Variable) -> Variable:
    """Whether any element is NaN, bool[1]."""
    return constant(emit("isnan", X=x))


@layer
def has_inf(x: Variable) -> Variable:
    """Whether any element is infinite, bool[1]."""
    return constant(emit("isinf", X=x))


@layer
def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether there are no elements, bool[1]; written to `cond` if given."""
    return _emit("is_empty", None, cond, X=x)


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
    return constant(emit("allclose", name, Input=input, Other=other, rtol=rtol, atol=atol, equal_nan=equal_nan))
