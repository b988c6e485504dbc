"""Recognizing a call that was made before: the names, dtypes and shapes of a plan that exists, compared in bulk.

Checking and sorting what is fed, and finding the plan for it, takes a look at every array. A loop of training makes the
same call again and again; so what is fed is first compared with what the latest such call was given. All of it happens
inside functions written in C, however many arrays there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from minigraph.ir import Parameter, Variable

_ARRAY = {np.ndarray}
_VARIABLES = {Variable, Parameter}
_name = attrgetter("name")
_kind = attrgetter("dtype", "shape")


class Key:
    """A tuple that is hashed once."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Hashable, ...]) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self._hash == other._hash and self._parts == other._parts)


@dataclass(frozen=True, eq=False, slots=True)
class Familiar:
    """What the latest call with certain fetches was given, and the plan that was made for it."""

    plan: Any
    key: Key
    """By which the executor finds the plan."""
    names: Sequence[str]
    """Of what is fed, in the order in which the plan takes it."""
    kinds: list[Any]
    """Dtype and shape of each."""
    pick: Callable[[Any], Sequence[Any]]
    """The fed arrays in that order."""

    def feeds(self, feed: Any) -> dict[str, Any] | None:
        """The arrays by name, if `feed` holds what the plan takes and nothing else; no other checks are needed then."""
        if feed is None or type(feed) is not dict or len(feed) != len(self.names):
            return {} if feed is None and not self.names else None
        try:
            arrays = self.pick(feed)
        except KeyError:
            return None
        are_plain = not arrays or set(map(type, arrays)) == _ARRAY
        if not are_plain or list(map(_kind, arrays)) != self.kinds:
            return None
        return dict(zip(self.names, arrays, strict=True))


class Recall:
    """The latest calls of an executor, by program and fetches.

    Parameters
    ----------
    size : int
        How many are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: OrderedDict[Hashable, Familiar] = OrderedDict()

    def find(self, key: Hashable) -> Familiar | None:
        return self._calls.get(key)

    def note(self, key: Hashable, plan: Any, plan_key: Key, feeds: dict[str, Any]) -> None:
        """Remember the arrays, or their types, that a plan was found or made for."""
        names = tuple(feeds)
        kinds = [_kind(array) for array in feeds.values()]
        self._calls[key] = Familiar(plan, plan_key, names, kinds, _picker(names))
        if len(self._calls) > self._size:
            self._calls.popitem(last=False)

    def forget(self, plan: Any) -> None:
        """Let go of a plan that is no longer kept."""
        for key in [key for key, call in list(self._calls.items()) if call.plan is plan]:
            self._calls.pop(key, None)

    def clear(self) -> None:
        self._calls.clear()


def names_in(fetch_list: Any) -> tuple[str, ...] | None:
    """The names in a list of variables or of names; None if it is something else, which needs a closer look."""
    if fetch_list is None:
        return ()
    if type(fetch_list) is not list:
        return None
    kinds = set(map(type, fetch_list))
    if kinds <= _VARIABLES:
        return tuple(map(_name, fetch_list))
    return tuple(fetch_list) if kinds == {str} else None


def _picker(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    if not names:
        return lambda feed: ()
    pick = itemgetter(*names)
    return pick if len(names) > 1 else lambda feed: (pick(feed),)
