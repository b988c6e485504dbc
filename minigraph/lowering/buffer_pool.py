"""Buffer pool: blocks of memory that the runs of an executor borrow, one at a time each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from minigraph.runtime.place import Place

if TYPE_CHECKING:
    from minigraph.lowering.memory_plan import Layout


class PoolBlock:
    """A block of memory, and the arrays of the layouts that it was used for."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self._arrays: WeakKeyDictionary[Layout, Sequence[Any]] = WeakKeyDictionary()

    def arrays(self, layout: Layout) -> Sequence[Any]:
        """The places of `layout` in this memory."""
        found = self._arrays.get(layout)
        if found is None:
            found = self._arrays[layout] = layout.arrays(self.memory)
        return found


class BufferPool:
    """The memory of an executor; runs in several threads get blocks of their own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._free: list[PoolBlock] = []

    def borrow(self, layout: Layout) -> PoolBlock:
        """A block large enough for `layout`; a free one that is too small is dropped."""
        try:  # no lock: `pop` and `append` of a list are atomic
            block = self._free.pop()
        except IndexError:
            return PoolBlock(self._place.bytes(layout.size))
        return block if block.memory.size >= layout.size else PoolBlock(self._place.bytes(layout.size))

    def give_back(self, block: PoolBlock) -> None:
        self._free.append(block)

    @contextmanager
    def lent(self, layout: Layout) -> Iterator[Sequence[Any]]:
        """Lend the arrays of `layout` in a block that no other run has."""
        if not layout.places:
            yield ()
            return
        block = self.borrow(layout)
        try:
            yield block.arrays(layout)
        finally:
            self.give_back(block)
