"""Convert values of attributes to the types that operators keep, and number the types as fluid does."""

from __future__ import annotations

import ctypes
import enum
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from minigraph.types import DTypeNumber, as_dtype

BlockIndex: TypeAlias = int
"""The type of an attribute that holds the index of a block; a Block may be given for it."""


def _to_int(value: Any) -> int:
    number = value if type(value) is int else int(value)
    if isinstance(value, bool) or number != value or not -(1 << 63) <= number < 1 << 63:
        raise ValueError(value)
    return number


def _to_float(value: Any) -> float:
    """Round to float32, as an op desc does. Text is refused, though `float` would read it."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    rounded = ctypes.c_float(value).value
    return rounded if rounded == rounded else math.nan


def _to_double(value: Any) -> float:
    """Convert to float64, every NaN to the same object, which containers find equal to itself."""
    return math.nan if math.isnan(value) else float(value)


def _to_bool(value: Any) -> bool:
    if value not in (True, False):
        raise ValueError(value)
    return bool(value)


def _to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def convert_all(values: Any) -> tuple[Any, ...]:
        if isinstance(values, str):
            raise TypeError(values)
        return tuple([convert(v) for v in values])

    return convert_all


def _to_block_index(value: Any) -> int:
    """Take the index of a block."""
    return _to_int(getattr(value, "idx", value))


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "BlockIndex": _to_block_index,
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "str": _to_str,
    "list[int]": _list_of(_to_int),
    "list[float]": _list_of(_to_float),
    "list[np.float64]": _list_of(_to_double),  # the one kind of attribute that is not rounded to float32
    "list[bool]": _list_of(_to_bool),
    "list[str]": _list_of(_to_str),
}
"""Annotation of an attribute in a definition -> converter."""

DTYPE_ATTRS = frozenset({"dtype", "in_dtype", "out_dtype"})
"""Integer attributes that number an element type; they print its name."""


def converter_of(name: str, annotation: str) -> Callable[[Any], Any]:
    """Return the converter of the attribute `name` with this annotation."""
    return _to_dtype_number if annotation == "int" and name in DTYPE_ATTRS else CONVERTERS[annotation]


def _to_dtype_number(value: Any) -> int:
    if type(value) is DTypeNumber:
        return value
    return DTypeNumber.of(as_dtype(value) if isinstance(value, str | type | np.dtype) else _to_int(value))


class AttrType(enum.IntEnum):
    """The types of operators' attributes in fluid's descriptions."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOLEAN = 6
    BOOLEANS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12

    # Fluid's names in ``core.AttrType``.
    BOOL = 6
    BOOLS = 7


_TYPES: dict[str, AttrType] = {
    "int": AttrType.INT, "float": AttrType.FLOAT, "bool": AttrType.BOOLEAN, "str": AttrType.STRING,
    "list[int]": AttrType.INTS, "list[float]": AttrType.FLOATS, "list[np.float64]": AttrType.FLOAT64S,
    "list[bool]": AttrType.BOOLEANS, "list[str]": AttrType.STRINGS, "BlockIndex": AttrType.BLOCK,
}  # fmt: skip
_LONG_ATTRS = {
    ("arg_max", "axis"), ("arg_min", "axis"), ("assign_value", "int64_values"),
    ("average_accumulates", "max_average_window"), ("average_accumulates", "min_average_window"),
    ("fill_constant", "shape"), ("gaussian_random", "shape"), ("lookup_table", "padding_idx"),
    ("lookup_table_grad", "padding_idx"), ("lookup_table_v2", "padding_idx"), ("lookup_table_v2_grad", "padding_idx"),
    ("randint", "shape"), ("uniform_random", "shape"),
}  # fmt: skip
"""Integer attributes that Paddle declares with 64 bits."""


def attr_type(op_type: str, name: str, declared: str, value: Any) -> AttrType:
    """The declared type, or 64 bits if a number needs them; Paddle then refuses the operator."""
    found = _TYPES[declared]
    if found not in (AttrType.INT, AttrType.INTS):
        return found
    numbers = [value] if found is AttrType.INT else value
    bits = max(((number if number >= 0 else ~number).bit_length() for number in numbers), default=0)
    if (op_type, name) in _LONG_ATTRS or bits > 31:
        return AttrType.LONG if found is AttrType.INT else AttrType.LONGS
    return found


def attr_type_of(value: Any) -> AttrType:
    """The type of an attribute that no definition declares, from its value; a list has elements."""
    if isinstance(value, list | tuple):
        first = attr_type_of(value[0]) if value else AttrType.STRING
        return {AttrType.INT: AttrType.INTS, AttrType.FLOAT: AttrType.FLOATS, AttrType.STRING: AttrType.STRINGS}[first]
    return _TYPES[type(value).__name__]
