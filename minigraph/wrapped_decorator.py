"""Decorators that keep the signature of what they decorate, under fluid's names."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]


def wrap_decorator(decorator_func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decorator that does what `decorator_func` does, anew at each call, and keeps name and signature."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            return decorator_func(func)(*args, **kwargs)

        return decorated

    return decorate


signature_safe_contextmanager = wrap_decorator(contextlib.contextmanager)
