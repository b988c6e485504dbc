"""Wrap functions of NumPy for arrays without dimensions, for which it returns numbers instead of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def are_numbers(shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether there are arrays of these shapes and none has a dimension."""
    is_any = False
    for shape in shapes:
        if shape:
            return False
        is_any = True
    return is_any


def on_numbers(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel` for arguments and results without dimensions, which it sees as vectors of one element."""

    def call(xp: Any, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        if out is not None:
            keywords["out"] = _in_shape(xp, out, (1,))
        return _in_shape(xp, kernel(xp, *[_in_shape(xp, each, (1,)) for each in arguments], **keywords), ())

    return call


def _in_shape(xp: Any, value: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_in_shape(xp, each, shape) for each in value)
    return None if value is None else xp.asarray(value).reshape(shape)
