"""The ordered operators of a block: a doubly linked list that can also be indexed.

Inserting and removing at a known operator is O(1). Indexing builds a list once and keeps it until the next change, and
so does asking for the operators of a type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload


class Node:
    """A link of an `OpList`."""

    __slots__ = ("_block", "_next", "_prev")

    _block: Any
    """The block that it is in; None once it is removed."""
    _next: Any
    _prev: Any

    @property
    def type(self) -> str:
        raise NotImplementedError


N = TypeVar("N", bound=Node)


class OpList(Sequence[N]):
    """Operators linked through their fields ``_prev`` and ``_next``."""

    __slots__ = ("_array", "_by_type", "_head", "_length", "_tail")

    def __init__(self) -> None:
        self._head: N | None = None
        self._tail: N | None = None
        self._length = 0
        self._array: list[N] | None = None
        self._by_type: dict[str, list[N]] | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[N]:
        """Iterate in order; operators may be removed and inserted meanwhile, and later insertions are visited, too."""
        op = self._head
        while op is not None:
            yield op
            op = op._next
            # An operator that was removed still points to the one that was next, and so leads back to the list.
            while op is not None and op._block is None:
                op = op._next

    def __reversed__(self) -> Iterator[N]:
        op = self._tail
        while op is not None:
            yield op
            op = op._prev
            while op is not None and op._block is None:
                op = op._prev

    @overload
    def __getitem__(self, index: int) -> N: ...
    @overload
    def __getitem__(self, index: slice) -> list[N]: ...
    def __getitem__(self, index: int | slice) -> N | list[N]:
        if self._array is None:
            self._array = list(self)
        return self._array[index]

    @property
    def by_type(self) -> Mapping[str, Sequence[N]]:
        """The operators of each type that there is, in order, as they stand now.

        What looks for operators of a few types finds them here without a walk through all.
        """
        if self._by_type is None:
            found: dict[str, list[N]] = {}
            op = self._head
            while op is not None:
                found.setdefault(op.type, []).append(op)
                op = op._next
            self._by_type = found
        return self._by_type

    def of_type(self, type: str) -> Sequence[N]:
        """The operators of a type, in order, as they stand now."""
        return self.by_type.get(type, ())

    def __repr__(self) -> str:
        return f"<{self._length} operators>"

    def insert_before(self, anchor: N | None, op: N) -> None:
        """Link `op` in before `anchor`, at the end when that is None."""
        before = self._tail if anchor is None else anchor._prev
        op._prev, op._next = before, anchor
        if before is None:
            self._head = op
        else:
            before._next = op
        if anchor is None:
            self._tail = op
        else:
            anchor._prev = op
        self._length += 1
        self._by_type = None
        if self._array is not None:
            # Appending keeps the index; anything else outdates it.
            if anchor is None:
                self._array.append(op)
            else:
                self._array = None

    def extend(self, ops: Iterable[N]) -> None:
        """Link `ops`, which are in no list, in at the end."""
        before = self._tail
        for op in ops:
            op._prev = before
            if before is None:
                self._head = op
            else:
                before._next = op
            before = op
            self._length += 1
        self._tail = before
        self._array = self._by_type = None

    def unlink(self, op: N) -> None:
        """Take `op` out; it keeps its links, by which an iteration that stands at it goes on."""
        if op._prev is None:
            self._head = op._next
        else:
            op._prev._next = op._next
        if op._next is None:
            self._tail = op._prev
        else:
            op._next._prev = op._prev
        self._length -= 1
        self._array = self._by_type = None

    @property
    def first(self) -> N | None:
        return self._head

    @property
    def last(self) -> N | None:
        return self._tail
