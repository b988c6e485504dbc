"""Parameters of functions. Names alone are read from the code: `inspect.signature` takes ten times as long."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


@functools.lru_cache(maxsize=1024)
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function, read once: each new executor asks for that of ``__init__``."""
    return inspect.signature(function)


def parameter_names(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the parameters that may be given by position, and of those given by keyword only.

    A ``__signature__`` says it of an object; of a function made of another one they are those of the other.
    """
    if hasattr(function, "__signature__"):
        parameters = inspect.signature(function).parameters.values()
        keywords = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY), keywords
    code = inspect.unwrap(function).__code__
    count, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[:count], code.co_varnames[count:total]
