"""Check what users give to the methods of a `minigraph.ir.Block`: slots, flags, shapes, initializers."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from minigraph.errors import OpError, ProgramError, WrongTypeError, suggest
from minigraph.ir.variable import Variable, name_of
from minigraph.opdef import Slot
from minigraph.types import TensorType, as_dtype, dense_type

Names: TypeAlias = "Variable | str | Sequence[Variable | str]"


def bind_slots(
    op_type: str, slots: Mapping[str, Slot], required: Sequence[str], given: Mapping[str, Names], what: str
) -> dict[str, tuple[str, ...]]:
    """Names by slot in the definition's order, checked; slots left out or empty are not in the result."""
    for name in given:
        if name not in slots:
            raise OpError(
                f"{op_type}: unknown {what} slot {name!r}",
                hint=suggest(name, slots) or f"It has {', '.join(slots) or 'none'}.",
            )
    bound = {}
    # In the order of the definition, so that equal operators have equal texts.
    for name in given if len(given) < 2 else slots:
        value = given.get(name)
        names = (value.name,) if isinstance(value, Variable) else _names(value)
        if len(names) > 1 and not slots[name].duplicable:
            raise OpError(f"{op_type}: {what} {name} takes one variable, got {len(names)}: {', '.join(names)}")
        if names:
            bound[name] = names
    for name in required:
        if name not in bound:
            raise OpError(f"{op_type}: {what} {name} is missing", hint=f"Give {what}s={{'{name}': ...}}.")
    return bound


_SEVERAL = (list, tuple)


def each_of(given: Any) -> Any:
    """Wrap a single argument; return several as they are."""
    return given if isinstance(given, _SEVERAL) else (given,)


def _names(given: Names | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, _SEVERAL):
        return tuple(map(name_of, given))
    return (name_of(given),)


def check_flags(name: str, *flags: Any) -> None:
    """Raise unless the flags of a variable are booleans."""
    for flag in flags:
        if not isinstance(flag, int | np.bool_):
            raise WrongTypeError(
                f"{name}: persistable, stop_gradient, is_data and need_check_feed must be bools, got {flag!r:.80}",
                hint="Give True or False.",
            )


def require_initializer(given: Any) -> None:
    """Raise unless `given` is an initializer."""
    if not callable(given):
        raise WrongTypeError(
            f"an initializer must be callable, got {given!r:.80}",
            hint="Give one such as fluid.initializer.Constant(0.0).",
        )  # fmt: skip


def as_dims(shape: Sequence[int | None]) -> tuple[int, ...]:
    """Dimensions as ints, -1 for None."""
    try:
        return tuple([-1 if dim is None else dim if type(dim) is int and dim < _MOST else _dim(dim) for dim in shape])
    except TypeError as error:
        if isinstance(error, WrongTypeError):
            raise
        raise WrongTypeError(
            f"a shape must be a list of ints, got {shape!r:.80}", hint="Write [n] for one dimension."
        ) from None


_MOST = 1 << 63
"""Above the largest dimension, which is held in 64 bits."""


def _dim(given: Any) -> int:
    try:
        dim = operator.index(given)
        if isinstance(given, bool) or abs(dim) >= _MOST:
            raise ValueError
    except (TypeError, ValueError):
        raise WrongTypeError(
            f"a dimension must be an int of 64 bits, got {given!r:.80}",
            hint="Give whole numbers as int, such as n // 2 or int(n); None stands for an unknown size.",
        ) from None  # fmt: skip
    return dim


def declared_type(name: str, shape: Sequence[int | None] | None, dtype: Any) -> TensorType | None:
    """The type that a variable is declared with; None if neither a shape nor a dtype is given."""
    if shape is None:
        return None if dtype is None else TensorType(as_dtype(dtype), ())
    dims = as_dims(shape)
    if min(dims, default=0) < -1:
        raise ProgramError(f"{name}: a dimension must be at least 0, or -1 for unknown, got {list(shape)}")
    return dense_type(as_dtype("float32" if dtype is None else dtype), dims)


def check_lod_level(name: str, lod_level: int) -> int:
    """Return the number of levels of sequences; raise unless it is a whole number from 0."""
    if not isinstance(lod_level, int) or lod_level < 0:
        raise ProgramError(
            f"{name}: lod_level must be a whole number from 0, got {lod_level!r:.80}",
            hint="0 is a tensor without sequences, 1 one of sequences of rows.",
        )
    return lod_level
