"""``paddle.compat``: text, bytes and numbers as in both Pythons that fluid 1.x ran on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["floor_division", "get_exception_message", "long_type", "round", "to_bytes", "to_text"]

long_type = int


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """`obj` with bytes decoded, also in a list, a set or a dict; `inplace` changes that container.

    Examples
    --------
    >>> to_text([b"paddle", "fluid", None])
    ['paddle', 'fluid', None]
    """
    return _converted(obj, lambda each: each.decode(encoding) if isinstance(each, bytes) else each, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """`obj` with text encoded, also in a list or a set; `inplace` changes that container.

    Examples
    --------
    >>> to_bytes({"paddle"})
    {b'paddle'}
    """
    return _converted(obj, lambda each: each.encode(encoding) if isinstance(each, str) else each, inplace)


def _converted(obj: Any, convert: Callable[[Any], Any], inplace: bool) -> Any:
    if not isinstance(obj, list | set | dict):
        return convert(obj)
    items = {convert(k): convert(v) for k, v in obj.items()} if isinstance(obj, dict) else map(convert, obj)
    found = type(obj)(items)
    if not inplace:
        return found
    obj.clear()
    obj.extend(found) if isinstance(obj, list) else obj.update(found)
    return obj


def round(x: float, d: int = 0) -> float:
    """`x` with `d` decimals, halves away from zero.

    Examples
    --------
    >>> round(2.5), round(-0.25, 1)
    (3.0, -0.3)
    """
    scale = 10**d
    return math.copysign(math.floor(abs(x) * scale + 0.5) / scale, x)


def floor_division(x: float, y: float) -> float:
    """``x // y``."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """The message of an error."""
    return str(exc)
