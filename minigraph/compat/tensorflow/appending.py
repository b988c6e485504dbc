"""Appending operators for TensorFlow's functions: block, names, roles, and checks of the arguments.

An operator that changes a gradient has the role of clipping and names the gradient's parameter, as in `minigraph.clip`,
so that a clone for testing leaves it out. `note_gradients` records which variables are gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from minigraph.errors import ClipError, ProgramError, WrongTypeError
from minigraph.ir import Block, Program, Role, Variable
from minigraph.ir.variable_operators import is_eager
from minigraph.layer_helper import check_floating
from minigraph.opdef import GRAD_SUFFIX
from minigraph.types import DType, product
from minigraph.unique_name import generate

Number = float | Variable

_SERVED: WeakKeyDictionary[Program, dict[str, tuple[str, ...]]] = WeakKeyDictionary()
"""Names of parameter and gradient, by program and by the name of a gradient or of a variable computed from it."""


def note_gradients(pairs: Iterable[tuple[Any, Variable | None]]) -> None:
    """Remember which parameter each gradient belongs to."""
    for param, grad in pairs:
        if grad is not None and not is_eager(grad):
            _SERVED.setdefault(grad.block.program, {})[grad.name] = (param.name, grad.name)


def _served_by(var: Variable) -> tuple[str, ...] | None:
    """The names of parameter and gradient of `var`; empty for the gradient of no parameter, None for no gradient."""
    if is_eager(var):
        return None  # operators of the imperative mode have no role
    found = _SERVED.get(var.block.program, {}).get(var.name)
    return () if found is None and var.name.endswith(GRAD_SUFFIX) else found


def role_for(*tensors: Variable) -> AbstractContextManager[None]:
    """Give the operators made inside the role of clipping, if one of `tensors` is a gradient."""
    program = tensors[0].block.program
    pairs = [pair for pair in map(_served_by, tensors) if pair is not None]
    if not pairs:
        return program.role_guard(program.current_role)
    return program.role_guard(Role.OPTIMIZE | Role.CLIP, pairs[0] if len(tensors) == 1 else ())


def pass_on(source: Variable, result: Variable) -> Variable:
    """`result`, recorded as a gradient if `source` is one."""
    pair = _served_by(source)
    if pair is not None:
        _SERVED.setdefault(result.block.program, {})[result.name] = pair
    return result


def new_result(block: Block, op_type: str, name: str | None = None) -> Variable:
    """A variable called `name`, with a number if that is taken; by default called after the operator."""
    if not name:
        return block.create_var(name=generate(f"{generate(op_type)}.tmp"))
    return block.create_var(name=generate(name) if block.has_var(name) else name)


def append(op_type: str, inputs: dict[str, Any], like: Variable, name: str | None = None, **attrs: Any) -> Variable:
    """Append an operator that computes its output from `like`; return the output."""
    block = like.block.program.current_block()
    result = new_result(block, op_type, name)
    with role_for(like):
        block.append_op(op_type, inputs, {"Out": result}, attrs)
    return pass_on(like, result)


def cast(x: Variable, dtype: DType) -> Variable:
    """`x` in this element type."""
    if x.dtype is dtype:
        return x
    return append("cast", {"X": x}, x, in_dtype=int(x.dtype), out_dtype=int(dtype))


def constant(block: Block, value: float, dtype: DType) -> Variable:
    """A tensor of shape [1]."""
    return block.emit(
        "fill_constant", stop_gradient=True, shape=[1], dtype=int(dtype), value=value,
        str_value=str(value) if math.isfinite(value) else "",
    )  # fmt: skip


# Arguments


def check_tensor(t: Any, what: str) -> Variable:
    """`t`, if it is a floating-point variable or tensor."""
    if isinstance(t, np.ndarray | list | tuple | int | float):
        raise WrongTypeError(
            f"{what} must be a Variable or a Tensor, got {type(t).__name__}: {t!r:.60}",
            hint="Make one with minigraph.dygraph.to_variable, or feed it to a minigraph.data.",
        )
    return check_floating(t, what)


def check_tensors(given: Any, what: str) -> tuple[list[Variable | None], list[Variable]]:
    """The list, and its items that are not None, all of one program."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise WrongTypeError(
            f"{what} must be a sequence of Variables or Tensors, got {type(given).__name__}: {given!r:.60}"
        )
    listed = [t if t is None else check_tensor(t, f"an item of {what}") for t in given]
    found = [t for t in listed if t is not None]
    for t in found:
        if t.block.program is not found[0].block.program and not is_eager(t):
            raise ProgramError(
                f"{what} holds variables of two programs, {found[0]} and {t}",
                hint="Take all of them from one program.",
            )
    return listed, found


def as_number(value: Any, what: str) -> Number:
    """A Python number that is not NaN, or a floating-point variable of one element."""
    if isinstance(value, Variable):
        check_floating(value, what)
        if value.shape is not None and product(value.shape) not in (1, -1):
            raise WrongTypeError(f"{what} must hold one number, got {value}")
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise WrongTypeError(f"{what} must be a number or a Variable, got {value!r:.60}") from None
    if math.isnan(number):
        raise ClipError(f"{what} must not be NaN")
    return number


def as_threshold(value: Any, what: str) -> Number:
    """`as_number` above 0; infinity never clips. The value of a variable is checked when the program runs."""
    number = as_number(value, what)
    if not isinstance(number, Variable) and not number > 0:
        raise ClipError(
            f"{what} must be positive, got {number}",
            hint="Give a number above 0: TensorFlow gives zeros for 0, and zeros or unclipped tensors below it.",
        )
    return number


def fits_attribute(number: Number, dtype: DType) -> bool:
    """Whether `number` can be an attribute, which is a float32, without changing a result of this element type."""
    if isinstance(number, Variable):
        return False
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(number))
    return rounded == number or (dtype is not DType.FP64 and 0 < abs(rounded) < math.inf)


def as_variable(number: Number, block: Block, dtype: DType) -> Variable:
    """A number as a constant of `block`; a variable in this element type."""
    return cast(number, dtype) if isinstance(number, Variable) else constant(block, number, dtype)
