"""Labels for the operators of a part of a program; names of variables do not change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from minigraph.errors import ProgramError, caller_site


class _NameScope:
    """A node of the tree of scopes; the second scope of a name under one parent is called ``name_1``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count: dict[str, int] = {}

    def child(self, prefix: str) -> _NameScope:
        number = self.count.get(prefix, 0)
        self.count[prefix] = number + 1
        return _NameScope(f"{self.path}{prefix}{f'_{number}' if number else ''}/")


_ROOT = _NameScope("/")
_SCOPE: ContextVar[_NameScope] = ContextVar("name_scope", default=_ROOT)


def current_name_scope() -> str:
    """Path of the innermost `name_scope`, such as ``/encoder/attention/``."""
    return _SCOPE.get().path


@contextmanager
def name_scope(prefix: str) -> Iterator[None]:
    """Label the operators made inside; names of variables do not change."""
    if not prefix or not isinstance(prefix, str):
        raise ProgramError(f"name_scope needs a name, got {prefix!r}", site=caller_site())
    token = _SCOPE.set(_SCOPE.get().child(prefix))
    try:
        yield
    finally:
        _SCOPE.reset(token)
