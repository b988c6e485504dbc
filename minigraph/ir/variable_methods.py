"""Methods of variables that are functions of a layer above: ``x.mean()`` is `minigraph.mean` of `x`.

`Methods` declares their names. The functions are registered where they are defined, as kernels are for operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any, TypeVar

from minigraph.support.public import public

F = TypeVar("F", bound=Callable[..., Any])

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions by the names of the methods."""


class Method:
    """A method that calls the function registered for its name."""

    __slots__ = ("name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, variable: Any, owner: type) -> Any:
        function = _FUNCTIONS[self.name]
        return function if variable is None else MethodType(function, variable)


class Methods:
    """The methods, for variables to inherit."""

    __slots__ = ()

    abs, exp, log, sign, sqrt, square, tanh = (Method() for _ in range(7))
    add, subtract, multiply, divide, maximum, minimum, pow, matmul = (Method() for _ in range(8))
    __matmul__ = Method()
    mean, sum, max, min, norm, clip, cast, clone, scale, topk = (Method() for _ in range(10))
    reshape, transpose, t, flatten, squeeze, unsqueeze, split, chunk = (Method() for _ in range(8))
    unstack, unbind, tile, expand, expand_as, flip, where, nonzero = (Method() for _ in range(8))
    gather, gather_nd, index_select, scatter, slice, strided_slice = (Method() for _ in range(6))


def register(function: F, name: str = "") -> F:
    """Register `function`, for a name that `Methods` declares; the variable is its first argument."""
    name = name or function.__name__
    assert name in vars(Methods), f"Methods does not declare {name}"
    _FUNCTIONS[name] = function
    return function


def method(function: F) -> F:
    """`function` as a `public` one that is registered as a method."""
    return register(public(function))


def method_of_entries(function: F) -> F:
    """`function` of a variable and a list as a `public` one; the method also takes the entries one by one."""
    guarded = public(function)

    @wraps(function)
    def taking_entries(x: Any, *entries: Any, **options: Any) -> Any:
        is_list = not entries or isinstance(entries[0], list | tuple | Methods)
        return guarded(x, *entries, **options) if is_list else guarded(x, list(entries), **options)

    method(taking_entries)
    return guarded
