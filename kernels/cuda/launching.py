"""Compiling kernels and launching them, and tables of arrays for kernels that work on many at once.

Sources are compiled by CuPy when they are first needed. Products and sums are not contracted (``--fmad=false``), so
that a number goes through the roundings of the shared kernels.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

BLOCK = 256
"""Threads of a block."""

PIECE = 4096
"""Elements of an array that a block works on at a time."""

MOST_BLOCKS = 2048
"""Maximum blocks of a launch, whose sums one block can add up. Each takes several pieces where there are more."""

OPTIONS = ("--std=c++17", "--fmad=false")

_KEPT_TABLES = 512
"""Maximum tables that stay on devices."""


@cache
def source(name: str) -> str:
    """The text of one of the files beside this one, after the code that all share."""
    return shared_source() + _text_of(name)


@cache
def shared_source() -> str:
    """The beginning of all sources."""
    numbers = f"#define BLOCK {BLOCK}\n#define PIECE {PIECE}LL\n"
    return numbers + _text_of("common")


def _text_of(name: str) -> str:
    from importlib.resources import files  # takes as long to import as all of this folder

    return files("minigraph.kernels.cuda").joinpath(f"{name}.cu").read_text(encoding="utf-8")


class Launcher:
    """The kernels of one source on the current device, each a function of a number of blocks and arguments."""

    def __init__(self, xp, text: str) -> None:
        self._module = xp.RawModule(code=text, options=OPTIONS)
        self._functions: dict[str, Any] = {}

    def __call__(self, name: str, blocks: int, *args: Any) -> None:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._module.get_function(name)
        function((blocks,), (BLOCK,), args)


@lru_cache(maxsize=512)
def _launcher(xp, device: int, text: str) -> Launcher:
    return Launcher(xp, text)


def launcher(xp, text: str) -> Launcher:
    return _launcher(xp, xp.cuda.runtime.getDevice(), text)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers on the device, the first of each the number of pieces before it."""

    array: Any
    rows: int
    pieces: int
    host: Any
    """The pinned memory that it came from, which must last until it was copied."""

    @property
    def blocks(self) -> int:
        return min(self.pieces, MOST_BLOCKS)


_tables: OrderedDict[Any, Table] = OrderedDict()
_lock = threading.Lock()
_capturing = threading.local()


class Capturing:
    """Resources of a graph that is being recorded. Tables are made at once, outside of the recording.

    Parameters
    ----------
    stream
        One that is not recorded.
    launched_on : int
        Address of the stream that will launch the graph.

    Attributes
    ----------
    kept : list
        Tables and other memory that a launch of the graph uses.
    """

    def __init__(self, stream, launched_on: int = 0) -> None:
        self.stream = stream
        self.launched_on = launched_on
        self.kept: list[Any] = []
        self._handle: Any = None
        self._lent = ExitStack()

    def handle(self, lend: Callable[[], AbstractContextManager[Any]]) -> Any:
        """The library handle of this recording, borrowed from when it is first needed until the recording ends."""
        if self._handle is None:
            self._handle = self._lent.enter_context(lend())
        return self._handle

    def __enter__(self) -> Capturing:
        _capturing.current = self
        return self

    def __exit__(self, *error: object) -> None:
        _capturing.current = None
        self._lent.close()


def recording() -> Capturing | None:
    """The recording of a graph that this thread is making, if any."""
    return getattr(_capturing, "current", None)


def lasting(xp) -> Any:
    """A context in which arrays get memory of their own.

    The memory of other arrays of a recording goes back to its pool, and then to others: whatever is written to it by
    kernels that are recorded is written there again in each launch.
    """
    return xp.cuda.using_allocator(None)


def is_recording() -> bool:
    """Whether a graph is recorded, so that nothing can wait for a value; who records has checked what is fed."""
    return recording() is not None


def table_of(xp, rows: Sequence[tuple[int, ...]]) -> Table:
    """The table with these rows, each beginning with a number of elements, before which the pieces are put.

    It is copied to the device once: in the steady state arrays are where they were in the run before.
    """
    capturing = recording()
    if capturing is not None:
        with lasting(xp):
            table = _new_table(xp, rows, capturing.stream)
        capturing.stream.synchronize()
        capturing.kept.append(table)
        return table
    stream = xp.cuda.get_current_stream()
    key = xp.cuda.runtime.getDevice(), stream.ptr, *rows  # another stream would have to wait for the copy
    with _lock:
        found = _tables.get(key)
        if found is not None:
            _tables.move_to_end(key)
            return found
        table = _tables[key] = _new_table(xp, rows, stream)
        if len(_tables) > _KEPT_TABLES:
            # Its copy ended long ago, unless the device lags that far behind.
            stream.synchronize()
            _tables.popitem(last=False)
        return table


def _new_table(xp, rows: Sequence[tuple[int, ...]], stream) -> Table:
    pieces = [-(-row[0] // PIECE) for row in rows]
    before = np.cumsum([0, *pieces])
    values = np.array([[first, *row] for first, row in zip(before[:-1], rows, strict=True)], np.int64).reshape(-1)
    host = pinned(xp, values)
    array = xp.empty(values.shape, np.int64)
    array.set(host, stream=stream)
    return Table(array, len(rows), int(before[-1]), host)


def counter(xp) -> Any:
    """A number on the device that is 0, and that the next launch of the current stream leaves at 0."""
    if is_recording():
        return xp.zeros(1, np.uint32)  # set to 0 in each launch of the graph
    return _counter(xp, xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr)


@lru_cache(maxsize=64)
def _counter(xp, device: int, stream: int) -> Any:
    return xp.zeros(1, np.uint32)


def pinned(xp, array) -> Any:
    """A copy of a NumPy array in memory from which the device copies without the processor waiting."""
    memory = xp.cuda.alloc_pinned_memory(max(array.nbytes, 1))
    copy = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    copy[...] = array
    return copy


def contiguous(xp, x) -> Any:
    return x if x.flags.c_contiguous else xp.ascontiguousarray(x)
