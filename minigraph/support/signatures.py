"""Names of parameters, read from a function's code: `inspect.signature` takes ten times as long, at each import."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def parameter_names(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the parameters that may be given by position, and of those given by keyword only.

    A ``__signature__`` or ``__wrapped__`` says it of a function made of another one.
    """
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__signature__") or hasattr(function, "__wrapped__"):
        parameters = inspect.signature(function).parameters.values()
        keywords = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY), keywords
    count, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[:count], code.co_varnames[count:total]
