"""Where persistable variables live between runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError, caller_site
from minigraph.place import CPUPlace, Place


class LoDTensor:
    """A handle on an array: reads and writes go through to where it lives.

    The name is fluid's; sequences of different lengths are out of scope, so `lod` is always empty.
    """

    def __init__(self, holder: ScopeVariable) -> None:
        self._holder = holder

    def set(self, array: Any, place: Place | None = None) -> None:
        """Replace the value by a copy of `array`, kept on `place` (default: where the value is now)."""
        target = place or self._holder.place
        # A fresh array of our own: updates are made in place and must not reach the caller's.
        self._holder.value = target.xp.array(array)
        self._holder.place = target

    def shape(self) -> list[int]:
        return list(self._value().shape)

    def lod(self) -> list[Any]:
        return []

    def recursive_sequence_lengths(self) -> list[Any]:
        return []

    def _value(self) -> Any:
        if self._holder.value is None:
            raise ProgramError(
                f"{self._holder.name} holds no value yet", site=caller_site(), hint="Run the startup program."
            )
        return self._holder.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        # Always a copy: the live array changes with the next run.
        return np.array(self._holder.place.to_host(self._value()), dtype=dtype)

    def __repr__(self) -> str:
        return f"LoDTensor({np.asarray(self)!r})"


class ScopeVariable:
    """A named slot of a scope; `value` is None until something is stored."""

    __slots__ = ("name", "place", "value")

    def __init__(self, name: str, value: Any = None, place: Place | None = None) -> None:
        self.name = name
        self.value = value
        self.place: Place = place or CPUPlace()

    def get_tensor(self) -> LoDTensor:
        return LoDTensor(self)


class Scope:
    """Names to values; a name not found here is looked up in the parent.

    Examples
    --------
    >>> scope = Scope()
    >>> scope.var("w").get_tensor().set(np.ones(2), CPUPlace())
    >>> np.array(scope.find_var("w").get_tensor())
    array([1., 1.])
    """

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent = parent
        self._variables: dict[str, ScopeVariable] = {}
        self._kids: list[Scope] = []

    def var(self, name: str) -> ScopeVariable:
        """The variable with this name, found here or in a parent, else made here."""
        return self.find_var(name) or self._variables.setdefault(name, ScopeVariable(name))

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable with this name here or in a parent, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._variables.get(name)
            if found is not None:
                return found
            scope = scope._parent
        return None

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


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Make `scope` the global one inside."""
    if not isinstance(scope, Scope):
        raise WrongTypeError(f"scope_guard needs a Scope, got {type(scope).__name__}", site=caller_site())
    token = _CURRENT.set(scope)
    try:
        yield
    finally:
        _CURRENT.reset(token)
