"""Default names of variables and layers: ``fc_0``, ``fc_1``, ..."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from minigraph.support.context import holding
from minigraph.support.undo import CURRENT, JOURNAL


class UniqueNameGenerator:
    """Counts how often each key was asked for; `prefix` goes in front of every name."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._next: defaultdict[str, int] = defaultdict(int)
        self._scopes: defaultdict[tuple[str, str], int] = defaultdict(int)

    def __call__(self, key: str) -> str:
        number = self._next[key]
        self._next[key] = number + 1
        if (journal := JOURNAL.get()) is not None:  # `note`, without a call for each name
            journal.append((self._next.__setitem__, (key, number)))
        return f"{self.prefix}{key}_{number}"

    def scope_label(self, parent: str, name: str) -> str:
        """`name`, numbered from its second use under `parent` on; see `minigraph.ir.name_scope`."""
        number = self._scopes[parent, name]
        self._scopes[parent, name] = number + 1
        return f"{name}_{number}" if number else name


_GENERATOR: ContextVar[UniqueNameGenerator | None] = ContextVar("unique_name", default=None)
_DEFAULT = UniqueNameGenerator()


def current() -> UniqueNameGenerator:
    """The generator in force: that of the innermost `guard`, else the process-wide one."""
    generator = _GENERATOR.get()
    return _DEFAULT if generator is None else generator


def generate(key: str) -> str:
    """``key_n``, n counting the calls with this key.

    Examples
    --------
    >>> with guard():
    ...     [generate("fc"), generate("fc"), generate("relu")]
    ['fc_0', 'fc_1', 'relu_0']
    """
    return (_GENERATOR.get() or _DEFAULT)(key)


def generate_with_ignorable_key(key: str) -> str:
    """`generate`; in the imperative mode the key is ``tmp``, as in fluid."""
    programs = CURRENT.get()
    return generate("tmp" if programs is not None and programs[0].computes_at_once else key)


def switch(
    new_generator: UniqueNameGenerator | None = None, new_para_name_checker: Any = None
) -> tuple[UniqueNameGenerator, Any]:
    """Put a generator (default: a fresh one) in force from now on; returns the one it replaces.

    Beside it stands what checks the names of parameters in fluid's imperative mode; here nothing does.
    """
    old = current()
    _GENERATOR.set(UniqueNameGenerator() if new_generator is None else new_generator)
    return old, new_para_name_checker


@contextmanager
def guard(new_generator: UniqueNameGenerator | str | None = None) -> Iterator[None]:
    """Count from zero inside; the old table comes back on exit. A string is put in front of every name."""
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    with holding(_GENERATOR, UniqueNameGenerator() if new_generator is None else new_generator):
        yield


def __getattr__(name: str) -> UniqueNameGenerator:
    if name == "generator":  # fluid's name of the one in force
        return current()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
