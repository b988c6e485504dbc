"""Convert attributes to the values that operators keep."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, TypeAlias

BlockIndex: TypeAlias = int
"""The type of an attribute that holds the index of a block; a Block may be given for it."""


def _to_int(value: Any) -> int:
    number = value if type(value) is int else int(value)
    if isinstance(value, bool) or number != value or not -(1 << 63) <= number < 1 << 63:
        raise ValueError(value)
    return number


def _to_float(value: Any) -> float:
    """Round to float32, as an op desc does. Text is refused, though `float` would read it."""
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
