"""Scopes: persistable variables between runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from minigraph.errors import WrongTypeError, not_a_name
from minigraph.runtime.scope_variable import Changes, ScopeVariable
from minigraph.support.context import holding
from minigraph.support.public import public


class Scope:
    """Names to values; a name not found here is looked up in the parent.

    Examples
    --------
    >>> import numpy as np
    >>> scope = Scope()
    >>> scope.var("w").get_tensor().set(np.ones(2))
    >>> np.array(scope.find_var("w").get_tensor())
    array([1., 1.])
    """

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent = parent
        self.changes: Changes = parent.changes if parent is not None else Changes()
        self._variables: dict[str, ScopeVariable] = {}
        self._kids: list[Scope] = []

    def var(self, name: str) -> ScopeVariable:
        """The variable with this name, found here or in a parent, else made here."""
        if not isinstance(name, str):
            raise not_a_name(name)
        # `setdefault` is atomic: two threads that ask at the same time get one variable.
        return self.find_var(name) or self._variables.setdefault(name, ScopeVariable(name, changes=self.changes))

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable with this name here or in a parent, or None."""
        scope: Scope | None = self
        try:
            while scope is not None:
                found = scope._variables.get(name)
                if found is not None:
                    return found
                scope = scope._parent
        # Names are not checked on the way: most look-ups find something.
        except TypeError:
            raise not_a_name(name) from None
        return None

    def note_written(self, names: Sequence[str]) -> None:
        """Note that the arrays of these variables were written over."""
        self.changes.note(names)

    def local_var_names(self) -> list[str]:
        return list(self._variables)

    def new_scope(self) -> Scope:
        """A child scope."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Forget the child scopes."""
        self._kids.clear()


_GLOBAL = Scope()
_CURRENT: ContextVar[Scope] = ContextVar("scope", default=_GLOBAL)


def global_scope() -> Scope:
    """The scope that executors use by default: that of the innermost `scope_guard`, else the process-wide one."""
    return _CURRENT.get()


@public
@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Make `scope` the global one inside."""
    if not isinstance(scope, Scope):
        raise WrongTypeError(f"scope_guard needs a Scope, got {type(scope).__name__}")
    with holding(_CURRENT, scope):
        yield
