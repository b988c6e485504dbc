"""Call cache: the plans of an executor by the calls that they were made for.

A plan depends on the names, dtypes and shapes of all arrays that are fed. A training loop makes the same call again and
again, so a call is first compared with the latest one of its program and fetches. The comparison runs in functions
written in C, whatever the number of arrays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from minigraph.ir import Parameter, Variable
from minigraph.lowering.lengths import fed_levels
from minigraph.types import TensorType

if TYPE_CHECKING:
    from minigraph.executor.plan import Plan

_ARRAY = {np.ndarray}
_NAME = {str}
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
        # Mostly the same object: the comparison of parts would look at each shape.
        return self is other or (isinstance(other, Key) and self._hash == other._hash and self._parts == other._parts)


@dataclass(frozen=True, eq=False, slots=True)
class CachedCall:
    """A plan, and names and kinds of the arrays that it was made for."""

    plan: Plan
    subject: Hashable
    """Everything that a plan depends on but the feed: program, version, fetches, profiling."""
    key: Key
    names: Sequence[str]
    """Names of what is fed, in the order in which the plan takes it."""
    kinds: list[Any]
    """Dtype and shape of each."""
    pick: Callable[[Any], Sequence[Any]]
    """Function that takes the fed arrays in that order."""

    def feeds(self, feed: Any) -> dict[str, Any] | None:
        """The arrays by name; None unless `feed` has just the names, dtypes and shapes that were checked before."""
        if feed is None or type(feed) is not dict or len(feed) != len(self.names):
            return {} if feed is None and not self.names else None
        try:
            arrays = self.pick(feed)
        except KeyError:
            return None
        # No subclasses: a masked array has dtype and shape, too, but must be checked.
        are_plain = not arrays or set(map(type, arrays)) == _ARRAY
        if not are_plain or list(map(_kind, arrays)) != self.kinds:
            return None
        return dict(zip(self.names, arrays))  # noqa: B905 - `strict` takes 0.2 us, and there are as many arrays


class CallCache:
    """Plans by calls.

    Parameters
    ----------
    size : int
        Maximum number of plans; the most recently used ones are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: OrderedDict[Key, CachedCall] = OrderedDict()
        """The least recently used first."""
        self._latest: dict[Hashable, CachedCall] = {}
        """Latest call, by subject."""

    def find(self, subject: Hashable, feed: Any) -> tuple[Plan, dict[str, Any]] | None:
        """The plan for a feed, and the arrays in the plan's order; None for a feed that must be checked."""
        call = self._latest.get(subject)
        if call is None:
            return None
        feeds = call.feeds(feed)
        if feeds is not None:
            try:  # noqa: SIM105 - `suppress` takes 0.4 us, in each run
                self._calls.move_to_end(call.key)
            except KeyError:  # another thread's run may have made room
                pass
            return call.plan, feeds
        if type(feed) is not dict or set(map(type, feed)) != _NAME or set(map(type, feed.values())) != _ARRAY:
            return None
        feeds = dict(sorted(feed.items()))  # in the order of `prepare_feed`, which is part of the key
        plan = self.get(subject, feeds)
        return None if plan is None else (plan, feeds)

    def get(self, subject: Hashable, feeds: Mapping[str, Any]) -> Plan | None:
        """The plan for arrays that are checked."""
        call = self._calls.get(_key(subject, feeds))
        if call is None:
            return None
        with suppress(KeyError):
            self._calls.move_to_end(call.key)
        self._latest[subject] = call
        return call.plan

    def like(self, subject: Hashable, feed_types: Mapping[str, TensorType]) -> Plan | None:
        """A plan whose rewritten program is right for a feed of these types, too."""
        latest = {call.plan.source.rewritten: call.plan for call in [*self._calls.values()] if call.subject == subject}
        plans = (plan for each, plan in latest.items() if each is not None and each.is_right_for(feed_types))
        return next(plans, None)

    def add(self, subject: Hashable, feeds: Mapping[str, Any], plan: Plan) -> None:
        """Keep the plan that was made for arrays that are checked."""
        names, kinds = tuple(feeds), [_kind(array) for array in feeds.values()]
        call = CachedCall(plan, subject, _key(subject, feeds), names, kinds, _picker(names))
        self._calls[call.key] = self._latest[subject] = call
        if len(self._calls) > self._size:
            _, gone = self._calls.popitem(last=False)
            if self._latest.get(gone.subject) is gone:
                del self._latest[gone.subject]

    def plans(self) -> tuple[Plan, ...]:
        """The plans that are kept, the least recently used first."""
        return tuple(call.plan for call in self._calls.values())

    def clear(self) -> None:
        self._calls.clear()
        self._latest.clear()


def names_in(fetch_list: Any) -> tuple[str, ...] | None:
    """The names in a list of variables or of names; None if it is something else, which needs a closer look."""
    if fetch_list is None:
        return ()
    if type(fetch_list) is not list:
        return None
    kinds = set(map(type, fetch_list))
    if kinds <= _VARIABLES:
        return tuple(map(_name, fetch_list))
    return tuple(fetch_list) if kinds == _NAME else None


def _key(subject: Hashable, feeds: Mapping[str, Any]) -> Key:
    levels = fed_levels(feeds)
    if not levels:
        return Key((subject, *[(name, array.dtype, array.shape) for name, array in feeds.items()]))
    # A plan serves any number of rows and of sequences.
    ragged = {*levels, *[level for found in levels.values() for level in found]}
    kinds = [
        (name, array.dtype, array.shape[1:] if name in ragged else array.shape, name in ragged)
        for name, array in feeds.items()
    ]
    return Key((subject, *kinds))


def _picker(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    if not names:
        return lambda feed: ()
    pick = itemgetter(*names)
    return pick if len(names) > 1 else lambda feed: (pick(feed),)
