"""Tables of calls of C functions on arrays, which one function walks through; see `minigraph.kernels.jit.loops.table`.

A table holds the addresses of its temporaries. Each walk looks up the addresses of arrays from outside, because arrays
move and die between runs. It first checks the type, dtype, size and order of each array, and makes no call if one is
not as expected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.jit.functions import LOOPS, address_of
from minigraph.kernels.jit.loops.layout import HEAD, WORDS_OF_ARRAY, WORDS_OF_CALL, WORDS_OF_MOVE
from minigraph.kernels.jit.recording import STATUS, NativeCall
from minigraph.support.alignment import ALIGNMENT, aligned, room_for

_WORD = 8
"""Bytes of a word."""

_STATUS_AT = 4
"""Position of the status among the words of a table."""

_BY_ROWS, _BY_COLUMNS, _ALIGNED, _WRITABLE = 0x1, 0x2, 0x100, 0x400
"""Flags of arrays, as NumPy's header ``ndarraytypes.h`` has them."""


class Memory(NamedTuple):
    """Place of an operand in memory."""

    kind: str
    """'array' from outside, 'temporary' or 'constant'."""
    at: int
    """Number of the array, offset among the temporaries in bytes, or address."""
    offset: int = 0
    """Bytes from there."""

    def moved(self, offset: int) -> Memory:
        return self._replace(offset=self.offset + offset)

    def may_overlap(self, other: Memory) -> bool:
        """Whether both are parts of one array, temporary or constant."""
        return self[:2] == other[:2]


class CallTable:
    """List of calls, appended one by one; `finish` returns the function that makes them."""

    def __init__(self) -> None:
        self._arrays: list[tuple[np.dtype, int, int]] = []
        """Dtype, number of elements and flags of each."""
        self._written: set[int] = set()
        self._constants: list[np.ndarray] = []
        self._calls: list[int] = []
        """Words of the calls, in which positions in the data stand for addresses."""
        self._data: list[int] = []
        """Words that hold operands, sizes and strides."""
        self._known: dict[tuple[int, ...], int] = {}
        """Positions in the data of words that calls share."""
        self._moves: list[tuple[int, int, int]] = []
        """Position in the data, number of an array, and offset there, for each operand in an array."""
        self._temporaries: list[tuple[int, int]] = []
        """Position in the data and offset among the temporaries, for each operand in one."""
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        """Offsets of released temporaries, by size."""
        self.size = 0
        """Bytes of the temporaries."""

    def array(self, shape: Sequence[int], dtype: np.dtype, is_transposed: bool = False) -> Memory:
        """Add an array that each walk is given; with `is_transposed`, it lies in memory column by column."""
        self._arrays.append((dtype, prod(shape), _ALIGNED | (_BY_COLUMNS if is_transposed else _BY_ROWS)))
        return Memory("array", len(self._arrays) - 1)

    def temporary(self, size: int) -> Memory:
        """Reserve `size` bytes until `release`."""
        size = room_for(size)
        if self._free[size]:
            return Memory("temporary", self._free[size].pop())
        self.size += size
        return Memory("temporary", self.size - size)

    def release(self, memory: Memory, size: int) -> None:
        self._free[room_for(size)].append(memory.at)

    def constant(self, values: np.ndarray) -> Memory:
        """Add memory that holds `values` and must not be written to."""
        self._constants.append(values)
        return Memory("constant", values.__array_interface__["data"][0])

    def note_written(self, memory: Memory) -> None:
        """Require that an array may be written to."""
        if memory.kind == "array":
            self._written.add(memory.at)

    def add(self, call: NativeCall, operands: Sequence[tuple[Memory, int]]) -> None:
        """Append a call whose operands lie at these offsets in these memories."""
        first = len(self._data)
        for position, (memory, further) in enumerate(operands, first):
            at, offset = 0, memory.offset + further
            if memory.kind == "array":
                self._moves.append((position, memory.at, offset))
            elif memory.kind == "temporary":
                self._temporaries.append((position, memory.at + offset))
            else:
                at = memory.at + offset
            self._data.append(at)
        places = (first, self._shared(call.sizes), self._shared(call.strides))
        self._calls += [call.function, *places, call.own, call.times, len(operands)]

    def copy(self, source: Memory, target: Memory, size: int) -> None:
        """Append a copy of `size` bytes."""
        self.add(NativeCall(address_of("copy"), 0, (), (size,), ()), [(source, 0), (target, 0)])

    def _shared(self, words: tuple[int, ...]) -> int:
        """Return the position of sizes or strides in the data; calls with the same ones share it."""
        found = self._known.get(words)
        if found is None:
            found = self._known[words] = len(self._data)
            self._data += words
        return found

    def finish(self) -> Callable[[tuple[Any, ...]], int]:
        """Return the function of a tuple of the arrays, which returns 0 when it has made all calls."""
        return _Walks(self)


class _Walks:
    """Function that walks through a table.

    A walk writes operands to the table and runs without the interpreter's lock, so walks at the same time have a copy
    each.
    """

    def __init__(self, table: CallTable) -> None:
        self._constants = table._constants  # kept alive, because the words point to them
        self._size = table.size
        self._walk = LOOPS.compiled("walk", "int64(int64, int64)")
        self._free: list[tuple[int, Any]] = []
        arrays, moves, calls = table._arrays, table._moves, np.array(table._calls, np.int64).reshape(-1, WORDS_OF_CALL)
        head = [
            len(arrays), len(moves), len(calls), 0, 0, tuple.__basicsize__, object.__basicsize__, id(np.ndarray),
        ]  # fmt: skip
        first_move = HEAD + WORDS_OF_ARRAY * len(arrays)
        first_call = first_move + WORDS_OF_MOVE * len(moves)
        first_word = first_call + calls.size
        records = [
            [id(dtype), size, flags | (_WRITABLE if number in table._written else 0), 0]
            for number, (dtype, size, flags) in enumerate(arrays)
        ]
        moved = np.array(moves, np.int64).reshape(-1, WORDS_OF_MOVE)
        moved[:, 0] += first_word
        calls[:, 1:4] += first_word
        parts = [head, np.array(records, np.int64).reshape(-1), moved.reshape(-1), calls.reshape(-1), table._data]
        self._words = np.concatenate([np.asarray(part, np.int64) for part in parts])
        in_calls = (np.arange(first_call, first_word, WORDS_OF_CALL)[:, None] + [1, 2, 3]).reshape(-1)
        of_status = first_call + WORDS_OF_CALL * np.flatnonzero(calls[:, 4] == STATUS) + 4
        self._words[of_status] = _STATUS_AT
        in_moves = np.arange(first_move, first_call, WORDS_OF_MOVE)
        self._relative = np.concatenate([in_moves, in_calls, of_status])
        """Positions of words that are positions in the table until a copy has an address."""
        at = np.array(table._temporaries, np.int64).reshape(-1, 2)
        self._temporaries, self._offsets = at[:, 0] + first_word, at[:, 1]

    def __call__(self, arrays: tuple[Any, ...]) -> int:
        try:
            copy = self._free.pop()
        except IndexError:
            copy = self._copy()
        status: int = self._walk(copy[0], id(arrays))  # the caller holds the arrays meanwhile
        self._free.append(copy)
        return status

    def _copy(self) -> tuple[int, Any]:
        """Return the address of a copy, and the arrays that must live as long."""
        words, memory = self._words.copy(), np.empty(self._size + ALIGNMENT, np.uint8)
        address: int = words.__array_interface__["data"][0]
        words[self._relative] = words[self._relative] * _WORD + address
        words[self._temporaries] = aligned(memory.__array_interface__["data"][0]) + self._offsets
        return address, (words, memory)
