"""Labels for the operators of a part of a program; names of variables do not change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from minigraph import unique_name
from minigraph.errors import ProgramError
from minigraph.support.context import holding
from minigraph.support.public import public

_PATH: ContextVar[str] = ContextVar("name_scope", default="/")


def current_name_scope() -> str:
    """Path of the innermost `name_scope`, such as ``/encoder/attention/``."""
    return _PATH.get()


@public
@contextmanager
def name_scope(prefix: Any = None) -> Iterator[None]:
    """Label the operators made inside; a label used again under the same parent gets a number, ``prefix_1``.

    Like the names of variables, labels are counted afresh inside a `minigraph.unique_name.guard`.

    Raises
    ------
    ProgramError
        If `prefix` is not a name.
    """
    if not prefix or not isinstance(prefix, str):
        raise ProgramError(f"name_scope needs a name, got {prefix!r}")
    with plain_scope(unique_name.current().scope_label(current_name_scope(), prefix)):
        yield


def plain_scope(label: str) -> AbstractContextManager[None]:
    """`name_scope` without numbers."""
    return holding(_PATH, f"{current_name_scope()}{label}/")
