"""Decorators that layers of users take over from fluid's."""

from collections.abc import Callable
from typing import Any

__all__ = ["autodoc", "templatedoc"]


def templatedoc(op_type: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that leaves a layer as it is; fluid's fills comments of operators into its docstring."""
    return lambda function: function


def autodoc(comment: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds `comment` to the docstring of a layer."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__doc__ = f"{function.__doc__ or ''}{comment}"
        return function

    return decorate
