"""Methods of variables that are functions of a layer above: ``x.mean()`` is `minigraph.mean` of `x`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from minigraph.support.public import public

F = TypeVar("F", bound=Callable[..., Any])


class Methods:
    """The functions decorated with `method` or `method_of_entries`, for variables to inherit."""

    __slots__ = ()


def method(function: F, name: str = "") -> F:
    """`function`, which is a method of variables, too, by its own name or another: they are its first argument."""
    setattr(Methods, name or function.__name__, function)
    return function


def method_of_entries(function: F) -> F:
    """`function` of a variable and a list; as a method it also takes the entries of the list one by one."""

    @wraps(function)
    def taking_entries(x: Any, *entries: Any, **options: Any) -> Any:
        is_list = not entries or isinstance(entries[0], list | tuple | Methods)
        return function(x, *entries, **options) if is_list else function(x, list(entries), **options)

    method(public(taking_entries))
    return function
