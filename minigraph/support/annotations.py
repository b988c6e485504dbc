"""Compare arguments with the annotations of their parameters."""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minigraph.support.signatures import signature_of

_EXAMPLES = {
    "an int": "10", "a float": "0.1", "a bool": "True", "a sequence of int": "[2, 3]",
    "an int or a sequence of int": "3",
    "a Variable": "fluid.data('x', [None, 3]), or to_tensor([1.0]) in the imperative mode",
}  # fmt: skip
"""Example values of arguments without a default, by the annotation in words."""


def misfits(function: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Name the arguments whose types do not fit a function's annotations.

    Examples
    --------
    >>> def fc(size: int, act: str | None) -> None: ...
    >>> misfits(fc, {"size": "a", "act": None})
    ["size must be an int, got 'a'"]
    """
    parameters = signature_of(function).parameters
    each = [
        (name, item)
        for name, value in given.items()
        for item in (value if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL else [value])
    ]
    return [
        f"{name} must be {_in_words(hint)}, got {shown(value)}"
        for name, value in each
        if not fits(value, hint := _annotation(function, name))
    ]


@functools.lru_cache(maxsize=1024)
def advice(function: Callable[..., Any], name: str) -> str:
    """Say what to give an argument, by its annotation and default; empty where these say nothing.

    Examples
    --------
    >>> def fc(size: int, act: str | None, rate: float = 0.5) -> None: ...
    >>> advice(fc, "size"), advice(fc, "rate")
    ('Give size an int, such as size=10.', 'Give rate a float, such as rate=0.5.')
    """
    hint, default = _annotation(function, name), signature_of(function).parameters[name].default
    kinds = (hint, *(typing.get_args(hint) if isinstance(hint, types.UnionType) else ()))
    example = next(filter(None, (_EXAMPLES.get(_in_words(each)) for each in kinds)), "")
    if hint is not bool and default not in (None, inspect.Parameter.empty):
        example = f"{default!r}"
    if hint is Any and not example:
        return ""
    kind = "" if hint is Any else f" {_in_words(hint)}"
    return f"Give {name}{kind}" + (f"{',' if kind else ''} such as {name}={example}." if example else ".")


def shown(value: Any) -> str:
    """A value as text, cut where that is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits an annotation, as far as a check can tell without using up the value.

    Integers of NumPy are ints and any real number is a float; a boolean is neither.
    """
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if isinstance(hint, types.UnionType) or origin is typing.Union:
        return any(fits(value, each) for each in within)
    if hint is None or hint is type(None):
        return value is None
    if origin is typing.Literal:
        return value in within
    if hint is int:
        return not isinstance(value, bool) and _is_integer(value)
    if hint is float:
        is_number = isinstance(value, numbers.Real) or (isinstance(value, np.ndarray) and value.shape == ())
        return is_number and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1))
    if origin in (list, tuple, Sequence, Iterable):
        return _fits_series(value, origin, within)
    kind = origin if isinstance(origin, type) else hint
    return isinstance(value, kind) if isinstance(kind, type) else True


def _fits_series(value: Any, origin: Any, within: Sequence[Any]) -> bool:
    """`fits` for a list, tuple or iterable whose elements have the types `within`."""
    if isinstance(value, str | bytes | Mapping) or _is_variable(value) or not isinstance(value, Iterable):
        return False
    if not isinstance(value, list | tuple):
        return True  # an iterator can be read once only, and so is not looked into
    if origin is tuple and within[-1] is not ...:
        return len(value) == len(within) and all(map(fits, value, within))
    return all(fits(each, within[0]) for each in value)


def _is_variable(value: Any) -> bool:
    """Whether a value is a variable of a program, which lies above this module; its subscripts can be iterated over."""
    return hasattr(type(value), "stop_gradient")


def _is_integer(value: Any) -> bool:
    """Whether a value can stand for an int; arrays, variables and the type int itself have ``__index__`` too."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


@functools.lru_cache(maxsize=4096)
def _annotation(function: Callable[..., Any], name: str) -> Any:
    """The annotation of a parameter; Any where it says nothing that can be asked here."""
    written = getattr(function, "__annotations__", {}).get(name, Any)
    try:
        return eval(written, inspect.unwrap(function).__globals__) if isinstance(written, str) else written
    except NameError:  # imported for type checkers only
        return Any


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or else the annotation itself."""
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if is_union else (hint,)


def _in_words(hint: Any) -> str:
    """An annotation in words, such as ``an int or None``."""
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if len(kinds := _kinds(hint)) > 1:
        return " or ".join(map(_in_words, kinds))
    if hint is None or hint is type(None):
        return "None"
    if origin is typing.Literal:
        return " or ".join(map(repr, within))
    if origin in (Callable, type):
        return "a function" if origin is Callable else "a class"
    if origin is not None:
        members = [kind for each in within if each is not ... for kind in _kinds(each)]
        elements = [_in_words(each).removeprefix("a ").removeprefix("an ") for each in members]
        return f"{_in_words(origin)} of {' and '.join(elements)}"
    name = getattr(hint, "__name__", str(hint))
    name = "Tensor" if name == "Eager" else name
    name = name.lower() if name in ("Sequence", "Mapping", "Iterable") else name
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"
