"""Memory for what the caller gets: fresh, or that of an earlier result of which nobody holds anything any more."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

_KEPT = 2
"""In a loop that assigns its results anew, those of the run before live until the next ones are there."""


class Reused:
    """A block of memory to hand out views of, made anew as long as somebody holds a view of the earlier ones.

    Memory that comes from the system is cleared page by page when it is first touched, which for long arrays takes as
    long as the work. Whether an array or a view of it is still held anywhere is what CPython counts references for:
    views, of views too, hold the array that owns the memory. Other interpreters, and builds of CPython without its
    global lock, get fresh memory each time.

    Parameters
    ----------
    size : int
        Elements of a block.
    dtype : dtype
    """

    __slots__ = ("_blocks", "dtype", "size")

    def __init__(self, size: int, dtype: Any) -> None:
        self.size, self.dtype = size, dtype
        self._blocks: deque[np.ndarray[Any, Any]] = deque()

    def take(self) -> np.ndarray[Any, Any]:
        """A vector that nobody else holds; it is taken as long as it, or a view of it, is held."""
        if _ALONE is None:
            return np.empty(self.size, self.dtype)
        for _ in range(len(self._blocks)):
            try:
                block = self._blocks.popleft()  # which no two threads do to one block
            except IndexError:
                break
            is_free = sys.getrefcount(block) == _ALONE
            self._blocks.append(block)
            if is_free:
                return block
        block = np.empty(self.size, self.dtype)
        self._blocks.append(block)
        if len(self._blocks) > _KEPT:
            self._blocks.popleft()
        return block


def _references_when_alone() -> int | None:
    """What is counted for an array that only `Reused.take` has in hand; None if counts say nothing."""
    if not hasattr(sys, "getrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    blocks = deque([np.empty(0)])
    block = blocks.popleft()
    return sys.getrefcount(block)


_ALONE = _references_when_alone()


def views(vector: np.ndarray[Any, Any], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    """The parts of `vector` that have these shapes, one behind the other."""
    found: list[np.ndarray[Any, Any]] = []
    start = 0
    for shape, group in groupby(shapes):
        count = len(list(group))
        end = start + count * prod(shape)
        rows = vector[start:end].reshape(count, *(shape or (1,)))
        found.extend(rows if shape else [row.reshape(()) for row in rows])
        start = end
    return found
