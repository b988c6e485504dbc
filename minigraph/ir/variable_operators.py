"""Python's operators on variables: ``x + y``, ``2 * x``, ``-x``, ``x ** 2``, ``x < y``, ``a & ~b``.

With a Python number, addition, subtraction, multiplication and division become one ``scale`` operator. Results have
bare names ``tmp_<n>``, as in fluid. `Arithmetic` gives a class these operators.

As in fluid, ``x == y`` is an operator of the program; ``x is y`` tells whether two variables are the same. Variables
are hashed by identity, so that they can be in sets and dictionaries. Python searches a list with ``==``, so that
``x in variables`` is an error unless the first one is `x` itself (in fluid it is always true). Minigraph itself
compares variables by identity or by name.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np

from minigraph.errors import MinigraphError, OpError, WrongTypeError, is_ours
from minigraph.support.undo import all_or_nothing
from minigraph.types import DType, TensorType, as_dtype


class Operand:
    """The part of a variable that operators and subscripts use."""

    __slots__ = ()

    name: str
    block: Any
    stop_gradient: bool
    tensor_type: TensorType | None

    @property
    def shape(self) -> tuple[int, ...] | None:
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        raise NotImplementedError


V = TypeVar("V", bound=Operand)
_NUMBERS = (int, float)


def is_eager(var: Any) -> bool:
    """Whether a variable has a value of its own, as in the imperative mode."""
    return hasattr(var, "value")


def _append(x: V, op_type: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> V:
    block = x.block.program.current_block()
    out: V = block.fresh("tmp")
    block.append_op(op_type, inputs, {"Out": out}, attrs)
    return out


def _affine(x: V, scale: float, bias: float) -> V:
    if not x.dtype.is_floating and (scale != int(scale) or bias != int(bias)):
        raise WrongTypeError(f"{x} holds integers, which a number with a fraction would not stay")
    return _append(x, "scale", {"X": x}, {"scale": scale, "bias": bias})


def _binary(op_type: str, x: V, y: V) -> V:
    if y.dtype is not x.dtype:
        y = astype(y, x.dtype)
    # A leading -1 is a batch dimension, to be laid over the other's first.
    axis = 0 if y.tensor_type is not None and y.tensor_type.shape[:1] == (-1,) else -1
    return _append(x, op_type, {"X": x, "Y": y}, {"axis": axis})


def _constant_like(x: V, value: float) -> V:
    """A tensor of `x`'s shape filled with `value`."""
    assert x.shape is not None
    if not x.shape:  # in the imperative mode
        filled = _append(x, "fill_any_like", {"X": x}, {"dtype": int(x.dtype), "value": float(value)})
    elif -1 not in x.shape:
        filled = _append(x, "fill_constant", {}, {"shape": x.shape, **_number(x, value)})
    else:
        batch = x.shape.index(-1)
        shape = [1 if dim < 0 and i != batch else dim for i, dim in enumerate(x.shape)]
        attrs = {"shape": shape, **_number(x, value), "input_dim_idx": batch, "output_dim_idx": batch}
        filled = _append(x, "fill_constant_batch_size_like", {"Input": x}, attrs)
    filled.stop_gradient = True
    return filled


def _scalar(x: V, value: float) -> V:
    if x.shape == ():
        return _constant_like(x, value)
    filled = _append(x, "fill_constant", {}, {"shape": [1], **_number(x, value)})
    filled.stop_gradient = True
    return filled


def _number(x: V, value: float) -> dict[str, Any]:
    """Attributes that fill a tensor of `x`'s type with `value`; as text where a float32 would not hold it."""
    if not x.dtype.is_floating and not float(value).is_integer():
        raise WrongTypeError(f"{x} holds integers, {value!r} is none", hint="Convert it with layers.cast first.")
    attrs: dict[str, Any] = {"dtype": int(x.dtype), "value": float(value)}
    if x.dtype not in (DType.FP16, DType.FP32) and math.isfinite(value) and _rounded(value) != value:
        attrs["str_value"] = str(value if x.dtype.is_floating else int(value))
    return attrs


def _rounded(value: float) -> float:
    """Round to float32, as the attribute ``value`` does."""
    return ctypes.c_float(value).value


def _is_number(value: Any) -> bool:
    if isinstance(value, _NUMBERS):
        return True
    return not isinstance(value, Operand) and getattr(value, "shape", None) == ()


def _operator(sign: str) -> Callable[[Callable[[V, Any], V]], Callable[[V, Any], V]]:
    """Decorate a method: it undoes what it did when it fails, and reports wrong operands by errors of the project."""

    def decorate(method: Callable[[V, Any], V]) -> Callable[[V, Any], V]:
        def operator(x: V, y: Any) -> V:
            try:
                if is_eager(x):
                    result = method(x, y)
                else:
                    with all_or_nothing():
                        result = method(x, y)
            except (TypeError, ValueError, ArithmeticError) as error:
                if isinstance(error, MinigraphError) or is_ours(sys._getframe(1)):
                    raise  # a layer, which the user has called, is at fault
                raise _no_operand(sign, x, y, str(error)) from error
            # Containers compare tensors with None and with names: those are never equal.
            if (
                result is NotImplemented
                and type(y).__module__ in ("builtins", "numpy")
                and (sign not in ("==", "!=") or isinstance(y, list | tuple))
            ):
                raise _no_operand(sign, x, y)
            return result

        return operator

    return decorate


def _no_operand(sign: str, x: V, y: Any, why: str = "") -> WrongTypeError:
    hint = "Give a variable or a number."
    if isinstance(y, np.ndarray | list | tuple):
        hint = "Make it a variable with layers.assign."
    shown = f"{y!r:.80}" if not isinstance(y, np.ndarray) else f"an array, {y.dtype}{list(y.shape)}"
    return WrongTypeError(
        f"{sign} takes a variable and another one or a number, got {shown}" + (f": {why}" if why else ""),
        details=[str(x)], hint=hint,
    )  # fmt: skip


@_operator("+")
def add(x: V, y: Any) -> Any:
    if _is_number(y):
        return _affine(x, 1.0, float(y))
    return _binary("elementwise_add", x, y) if isinstance(y, Operand) else NotImplemented


@_operator("-")
def subtract(x: V, y: Any) -> Any:
    if _is_number(y):
        return _affine(x, 1.0, -float(y))
    return _binary("elementwise_sub", x, y) if isinstance(y, Operand) else NotImplemented


@_operator("-")
def subtract_from(x: V, y: Any) -> V:
    return _affine(x, -1.0, float(y)) if _is_number(y) else NotImplemented


@_operator("*")
def multiply(x: V, y: Any) -> Any:
    if _is_number(y):
        return _affine(x, float(y), 0.0)
    return _binary("elementwise_mul", x, y) if isinstance(y, Operand) else NotImplemented


@_operator("/")
def divide(x: V, y: Any) -> Any:
    if _is_number(y):
        # Integers are divided by the operator, which truncates; as a factor 1/y they would lose that.
        return _affine(x, 1.0 / y, 0.0) if x.dtype.is_floating else _binary("elementwise_div", x, _scalar(x, y))
    return _binary("elementwise_div", x, y) if isinstance(y, Operand) else NotImplemented


@_operator("/")
def divide_into(x: V, y: Any) -> V:
    return _binary("elementwise_div", _constant_like(x, y), x) if _is_number(y) else NotImplemented


def _operand(x: V, y: Any) -> Any:
    """`y` as a variable, None if it is neither that nor a number."""
    return _scalar(x, y) if _is_number(y) else y if isinstance(y, Operand) else None


def _with_number(sign: str, op_type: str) -> Callable[[V, Any], V]:
    """``x op y`` where a number becomes a tensor of shape [1], as in fluid."""

    @_operator(sign)
    def operator(x: V, y: Any) -> V:
        other = _operand(x, y)
        return NotImplemented if other is None else _binary(op_type, x, other)

    return operator


def _from_number(sign: str, op_type: str) -> Callable[[V, Any], V]:
    """``y op x`` for a number `y`, which becomes a tensor in the shape of `x`, as in fluid."""

    @_operator(sign)
    def operator(x: V, y: Any) -> V:
        return _binary(op_type, _constant_like(x, y), x) if _is_number(y) else NotImplemented

    return operator


to_power = _with_number("**", "elementwise_pow")


def _compare(sign: str, op_type: str) -> Callable[[V, Any], V]:
    """``x op y`` as booleans that no gradient flows through."""

    @_operator(sign)
    def operator(x: V, y: Any) -> V:
        if isinstance(y, np.ndarray) and y.ndim:
            raise WrongTypeError(f"{x} cannot be compared with an array", hint="Make it a variable with layers.assign.")
        other = _operand(x, y)
        if other is None:
            return NotImplemented
        if other.dtype.is_floating and not x.dtype.is_floating:
            x = astype(x, other.dtype)  # the other way round 2 < 2.5 would be 2 < 2
        try:
            result = _binary(op_type, x, other)
        except OpError as error:
            error.hint = f"{error.hint} To ask whether two variables are the same, write `is`.".strip()
            raise
        result.stop_gradient = True
        return result

    return operator


equal, less_than = _compare("==", "equal"), _compare("<", "less_than")


def _combine(sign: str, op_type: str) -> Callable[[V, Any], V]:
    """``x op y`` of two variables of booleans."""

    @_operator(sign)
    def operator(x: V, y: Any) -> V:
        return _append(x, op_type, {"X": x, "Y": y}, {}) if isinstance(y, Operand) else NotImplemented

    return operator


def astype(self: V, dtype: Any) -> V:
    """The variable converted to `dtype`."""
    attrs = {"in_dtype": int(self.dtype), "out_dtype": int(as_dtype(dtype))}
    with nullcontext() if is_eager(self) else all_or_nothing():
        return _append(self, "cast", {"X": self}, attrs)


_BY_UFUNC = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "true_divide": "__rtruediv__", "power": "__rpow__", "remainder": "__rmod__", "floor_divide": "__rfloordiv__",
    "equal": "__eq__", "not_equal": "__ne__", "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__",
    "greater_equal": "__le__",
}  # fmt: skip
"""Operators of a variable on the right of a NumPy scalar or array, by ufunc."""


class Arithmetic(Operand):
    """Python's operators for variables, also with a NumPy scalar on the left."""

    __slots__ = ()

    __add__ = __radd__ = add
    __sub__, __rsub__ = subtract, subtract_from
    __mul__ = __rmul__ = multiply
    __truediv__, __rtruediv__ = divide, divide_into
    __floordiv__, __rfloordiv__ = _with_number("//", "elementwise_floordiv"), _from_number("//", "elementwise_floordiv")
    __mod__, __rmod__ = _with_number("%", "elementwise_mod"), _from_number("%", "elementwise_mod")
    __pow__, __rpow__ = to_power, _from_number("**", "elementwise_pow")
    __eq__ = equal  # type: ignore[assignment]  # that of object answers with a bool
    __ne__ = _compare("!=", "not_equal")  # type: ignore[assignment]
    __lt__, __le__ = less_than, _compare("<=", "less_equal")
    __gt__, __ge__ = _compare(">", "greater_than"), _compare(">=", "greater_equal")
    __and__, __or__ = _combine("&", "logical_and"), _combine("|", "logical_or")
    __xor__ = _combine("^", "logical_xor")
    __hash__ = object.__hash__
    astype = astype

    def __neg__(self: V) -> V:
        return _affine(self, -1.0, 0.0)

    def __invert__(self: V) -> V:
        return _append(self, "logical_not", {"X": self}, {})

    def __array_ufunc__(self, ufunc: Any, how: str, *operands: Any, **options: Any) -> Any:
        """Do what NumPy's scalars ask for on the left of an operator; nothing else is computed by NumPy."""
        method = _BY_UFUNC.get(ufunc.__name__)
        if how == "__call__" and method is not None and not options and operands[1] is self:
            return getattr(self, method)(operands[0])
        raise WrongTypeError(
            f"np.{ufunc.__name__} computes arrays, and a program knows its values only when it runs",
            details=[str(self)],
            hint=f"Append an operator, such as layers.{ufunc.__name__} if there is one, or fetch the variable first.",
        )  # fmt: skip
