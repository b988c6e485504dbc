"""Record what a kernel computes as calls of C functions: NumPy's own inner loops, BLAS, and a few of minigraph's.

A kernel runs once, on symbols in place of arrays. The recording has one call for each function of NumPy that the kernel
used, so it computes the same bits; `minigraph.kernels.jit.call_table` makes the calls without Python between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.clip import LEAST_FACTOR
from minigraph.kernels.jit.functions import UnsupportedError, address_of, inner_loop, is_convertible
from minigraph.kernels.jit.layouts import address_in_memory, adds_a_row, nested_loops
from minigraph.kernels.tracing import Traced

STATUS = -1
"""Placeholder, as a call's own word, for the address of the table's status."""

_MOST_CALLS = 64
"""Maximum calls of one inner loop for one array; each call goes through two of the array's dimensions."""

_FLOATS = ("float32", "float64")

_REDUCED = (np.add, np.multiply, np.maximum, np.minimum)
"""Functions whose reductions are recorded."""

_MOST_REDUCED = 8192
"""Maximum elements of what is reduced: NumPy's buffer, which it fills once."""

_MOST_KEPT = 16_384
"""Maximum elements of an array that is kept to be copied in every run: a larger one is made as quickly anew."""

_WORDS = (1, 2, 4, 8)
"""Bytes of an element that can be copied as a whole number."""


class NativeCall(NamedTuple):
    """One call, repeated `times` times; the second half of the strides moves the operands between repetitions."""

    function: int
    own: int
    operands: tuple[tuple[int, int], ...]
    """Number of the memory of each, and offset there in bytes."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    times: int = 1

    def may_write_over(self, number: int) -> bool:
        """Whether an operand may lie where the result does, because each element is read before it is written."""
        count = len(self.operands)
        is_each = len(self.sizes) == 1 and len(self.strides) == 2 * count
        return is_each and self.strides[number::count] == self.strides[count - 1 :: count]


class SymbolMemory(NamedTuple):
    """Memory that a symbol stands for."""

    memory: int
    layout: np.ndarray
    """View of an array that stands for the memory, so that NumPy knows all about shapes and strides."""


class Recording:
    """Calls, and the memory that their operands lie in.

    Attributes
    ----------
    memories : list of ndarray
        Stand-ins; those of the inputs first.
    constants : dict
        By number of a memory the values that are there from the start.
    calls : list of NativeCall
        The last operand of each is what it writes to.
    work : int
        Elements that the calls go through, where products of two numbers count for less.
    distinct : list of (int, int)
        Numbers of memories that must not be the same: for a matrix and its transpose NumPy calls another function.
    inputs : int
        Number of memories that are inputs.
    viewed : set of int
        Numbers of memories that kernels have made views of.
    drawn_from : int or None
        Number of the memory that holds the address of the generator of the run.
    """

    def __init__(self) -> None:
        self.work = 0
        self.distinct: list[tuple[int, int]] = []
        self.viewed = set[int]()
        self.drawn_from: int | None = None
        self.inputs = 0
        self.memories: list[np.ndarray] = []
        self.constants: dict[int, np.ndarray] = {}
        self.calls: list[NativeCall] = []

    def new(self, shape: Sequence[int], dtype: Any) -> Symbol:
        """A symbol with memory of its own."""
        self.memories.append(np.empty(tuple(shape), dtype))
        return Symbol(self, SymbolMemory(len(self.memories) - 1, self.memories[-1]))

    def of(self, shape: Sequence[int], dtype: Any, is_transposed: bool) -> Symbol:
        """A symbol with memory of its own, in which a matrix may lie column by column."""
        return self.new(shape[::-1], dtype).T if is_transposed else self.new(shape, dtype)

    def generator(self) -> Symbol:
        """The one symbol for the address of the generator of the run."""
        if self.drawn_from is None:
            self.drawn_from = self.new((1,), np.int64).value.memory
        layout = self.memories[self.drawn_from]
        return Symbol(self, SymbolMemory(self.drawn_from, layout))

    def constant(self, value: Any, dtype: Any) -> Symbol:
        if np.size(value) > _MOST_KEPT:
            raise UnsupportedError("a large array to keep")
        found = self.new(np.shape(value), dtype)
        self.constants[found.value.memory] = np.array(value, dtype)
        return found

    def place_of(self, symbol: Symbol) -> tuple[int, int]:
        """Number of the memory of a symbol, and its offset there in bytes."""
        memory, layout = symbol.value
        return memory, address_in_memory(layout) - address_in_memory(self.memories[memory])

    def is_whole(self, symbol: Symbol) -> bool:
        """Whether a symbol is all of its memory."""
        return symbol.value.layout.nbytes == self.memories[symbol.value.memory].nbytes

    def emit(
        self,
        function: int,
        operands: Sequence[Symbol],
        sizes: Sequence[int],
        strides: Sequence[int],
        own: int = 0,
        times: int = 1,
    ) -> None:
        places = tuple(map(self.place_of, operands))
        self.calls.append(NativeCall(function, own, places, tuple(sizes), tuple(strides), times))

    def each(self, function: int, own: int, operands: Sequence[Symbol]) -> None:
        """Call an inner loop for all elements of operands of one shape."""
        arrays = [x.value.layout for x in operands]
        outer, nest = nested_loops(arrays)
        if not arrays[-1].size:
            raise UnsupportedError("no elements")
        if prod(arrays[0].shape[:outer]) > _MOST_CALLS:
            raise UnsupportedError("many loops")
        self.work += arrays[0].size
        places = list(map(self.place_of, operands))
        (size, inner), (times, steps) = nest
        for index in np.ndindex(*arrays[0].shape[:outer]):
            moved = [
                (memory, offset + sum(i * step for i, step in zip(index, x.strides, strict=False)))
                for (memory, offset), x in zip(places, arrays, strict=True)
            ]
            self.calls.append(NativeCall(function, own, tuple(moved), (size,), (*inner, *steps), times))

    def ufunc(self, ufunc: np.ufunc, operands: Sequence[Any]) -> Symbol:
        """The result of a function of NumPy on elements; the operands may be numbers."""
        given = [x.value.layout if isinstance(x, Symbol) else x for x in operands]
        common = np.result_type(*given)
        if ufunc is np.power and common.kind in "iu":
            raise UnsupportedError("a loop that may raise an error")
        symbols = [self._as(x, common) for x in operands]
        function, own, dtype = inner_loop(ufunc, common.char)
        layouts = np.broadcast_arrays(*[x.value.layout for x in symbols])
        result = self.new(layouts[0].shape, dtype)
        laid = [x.seen(layout) for x, layout in zip(symbols, layouts, strict=True)]
        if ufunc is np.add and common.name in _FLOATS and adds_a_row(layouts[0], layouts[1]):
            self.work += result.size
            sizes = (result.size // symbols[1].size, symbols[1].size)
            self.emit(address_of(f"add_row_{common.name}"), [*symbols, result], sizes, [])
        else:
            self.each(function, own, [*laid, result])
        return result

    def _as(self, x: Any, dtype: np.dtype) -> Symbol:
        if not isinstance(x, Symbol):
            return self.constant(x, dtype)
        return x if x.dtype == dtype else self.converted(x, dtype)

    def converted(self, x: Symbol, dtype: np.dtype) -> Symbol:
        """The numbers of `x` in another type."""
        if dtype == np.bool_:
            return self.ufunc(np.not_equal, [x, 0])
        if not is_convertible(x.dtype.name, dtype.name):
            raise UnsupportedError(f"{x.dtype} as {dtype}")
        result = self.new(x.shape, dtype)
        self.each(address_of(f"convert_{x.dtype.name}_{dtype.name}"), 0, [x, result])
        return result

    def in_order(self, x: Symbol | None) -> Symbol | None:
        """`x`, if its elements lie row by row, or column by column of a matrix."""
        if x is None or x.value.layout.flags.c_contiguous or (x.ndim == 2 and x.is_transposed):
            return x
        raise UnsupportedError("a result with gaps")

    def reduced(self, ufunc: np.ufunc, x: Symbol, axis: Any = 0, dtype: Any = None, keepdims: bool = False) -> Symbol:
        """``ufunc.reduce`` of sums, products and extremes, in the order in which NumPy goes through the elements."""
        x = x if dtype is None else x.astype(dtype, copy=False)
        if ufunc not in _REDUCED or x.dtype.name not in _FLOATS or not x.value.layout.flags.c_contiguous:
            raise UnsupportedError(f"{ufunc.__name__}.reduce")
        if not 0 < x.size <= _MOST_REDUCED or not x.ndim:
            raise UnsupportedError("nothing, or much")
        given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = [each % x.ndim for each in given]
        shape = [1 if i in axes else size for i, size in enumerate(x.shape)]
        first, rest = self._first_and_rest(ufunc, x, [i for i in axes if x.shape[i] > 1])
        result = self.new(shape, x.dtype)
        self.copy(first, result)
        if rest.size:
            function, own, _ = inner_loop(ufunc, x.dtype.char)
            # An inner loop with a step of 0 for the result adds up in place, from its first element on.
            whole = result.seen(np.broadcast_to(result.value.layout, rest.shape))
            self.each(function, own, [whole, rest, whole])
        return result if keepdims else result.reshape([size for i, size in enumerate(x.shape) if i not in axes])

    def _first_and_rest(self, ufunc: np.ufunc, x: Symbol, axes: Sequence[int]) -> tuple[Symbol, Symbol]:
        """First value of a reduction by NumPy and the operand that it then goes through: sums begin with 0."""
        if ufunc.identity is not None:
            return self.constant(ufunc.identity, x.dtype), x
        if len(axes) > 1:
            raise UnsupportedError("extremes along several dimensions")
        layout, before = x.value.layout, (slice(None),) * (axes[0] if axes else 0)
        rest = layout[(*before, slice(1, None))] if axes else layout[:0]
        return (x.seen(layout[(*before, slice(0, 1))]) if axes else x), x.seen(rest)

    def label_call(self, name: str, labels: Symbol, x: Symbol, y: Symbol, elements: Symbol) -> None:
        """Move elements between vectors and the places that labels pick among the columns of `elements`."""
        if labels.dtype.name not in ("int32", "int64") or x.dtype.name not in _FLOATS:
            raise UnsupportedError("other types")
        layout, sizes = elements.value.layout, (labels.size, elements.shape[0])
        function = address_of(f"{name}_{x.dtype.name}_{labels.dtype.name}")
        strides = [labels.dtype.itemsize, *layout.strides, x.dtype.itemsize]
        self.work += labels.size
        self.emit(function, [labels, x, y], sizes, strides, STATUS if name == "pick" else 0)

    def rows_call(self, name: str, numbers: Symbol, x: Symbol, y: Symbol, padding: int = -1) -> None:
        """Move rows between a table and rows that lie one after the other: from `x` to `y`.

        `name` is that of one of the functions ``take_rows``, ``put_rows`` and ``add_rows``.
        """
        table = x if name == "take_rows" else y
        if numbers.dtype.name not in ("int32", "int64") or x.dtype.name not in _FLOATS or x.dtype != y.dtype:
            raise UnsupportedError("other types")
        if not (x.value.layout.flags.c_contiguous and numbers.value.layout.flags.c_contiguous and x.size and y.size):
            raise UnsupportedError("another order, or no rows")
        width = prod(table.shape[1:])
        kind = f"{x.dtype.name}_{numbers.dtype.name}" if name == "add_rows" else numbers.dtype.name
        self.work += numbers.size * width
        sizes = (numbers.size, table.shape[0], width * x.dtype.itemsize, padding, width)
        self.emit(address_of(f"{name}_{kind}"), [numbers, x, y], sizes, [], STATUS)

    def check_same(self, numbers: Symbol) -> None:
        """Let the walk end early if the numbers of a vector are not the same."""
        self.emit(address_of(f"check_same_int{8 * numbers.dtype.itemsize}"), [numbers], [numbers.size], [], STATUS)

    def shrink(self, factor: Symbol, dtype: Any) -> Symbol:
        """Factor of the gradients, as `minigraph.kernels.clip.shrinker` gives it; without one the walk ends early."""
        if np.dtype(dtype).name not in _FLOATS or factor.dtype != np.float64 or factor.size != 3:
            raise UnsupportedError("halves, or a factor of another type")
        result = self.new((1,), dtype)
        least = self.constant([LEAST_FACTOR[np.dtype(dtype)]], np.float64)
        self.emit(address_of(f"shrink_{np.dtype(dtype).name}"), [factor, least, result], [], [], STATUS)
        return result

    def where(self, condition: Any, x: Any, y: Any) -> Symbol:
        """`x` where the condition holds, else `y`."""
        given = [each.value.layout if isinstance(each, Symbol) else each for each in (x, y)]
        dtype = np.result_type(*given)
        if isinstance(condition, np.ndarray):
            condition = self.constant(condition, condition.dtype)
        if not isinstance(condition, Symbol) or condition.dtype != np.bool_ or dtype.name not in _FLOATS:
            raise UnsupportedError("a condition")
        symbols = [condition, self._as(x, dtype), self._as(y, dtype)]
        layouts = np.broadcast_arrays(*[each.value.layout for each in symbols])
        result = self.new(layouts[0].shape, dtype)
        laid = [each.seen(layout) for each, layout in zip(symbols, layouts, strict=True)]
        self.each(address_of(f"choose_{dtype.name}"), 0, [*laid, result])
        return result

    def copy(self, x: Symbol, out: Symbol) -> None:
        """Copy all elements of `x`, which may be broadcast, to `out`, however both lie in memory."""
        source, target = x.value.layout, out.value.layout
        if x.dtype != out.dtype or x.dtype.itemsize not in _WORDS:
            raise UnsupportedError("another type")
        if source.size == target.size and source.flags.c_contiguous and target.flags.c_contiguous:
            self.emit(address_of("copy"), [x, out], [source.nbytes], [])
            return
        nest = nested_loops([np.broadcast_to(source, target.shape), target])
        if nest[0] == 0 and nest[1][0][1] == (x.dtype.itemsize,) * 2:
            (length, _), (rows, steps) = nest[1]
            self.work += source.size
            self.emit(address_of("copy_rows"), [x, out], [rows, length * x.dtype.itemsize], steps)
            return
        # As whole numbers of their size, elements of all types have the same calls, and every bit stays.
        words = np.dtype(f"u{x.dtype.itemsize}")
        function, own, _ = inner_loop(np.positive, words.char)
        source = np.broadcast_to(source, target.shape)
        self.each(function, own, [x.seen(source.view(words)), out.seen(target.view(words))])

    def write(self, value: Any, target: Symbol) -> None:
        """Write an array, which may be broadcast, or a number to memory that the kernel has made."""
        if target.value.memory < self.inputs or target.value.memory in self.constants:
            raise UnsupportedError("writes to an input, or to a constant")
        source = self._as(value, target.dtype)
        if source.value.memory == target.value.memory:
            if self.place_of(source) == self.place_of(target) and _lie_alike(source, target):
                return
            source = self.copied(source)  # they may overlap
        self.copy(source, target)

    def copied(self, x: Symbol) -> Symbol:
        """A copy row by row."""
        result = self.new(x.shape, x.dtype)
        self.copy(x, result)
        return result


FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Recordings of functions of NumPy that are no ufuncs of one result, or go through more than elements, by name."""


class Symbol(Traced):
    """Array of a recording."""

    value: SymbolMemory

    def __init__(self, recording: Recording, value: SymbolMemory) -> None:
        self.recording, self.value = recording, value

    @property
    def dtype(self) -> Any:
        return self.value.layout.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.layout.shape

    @property
    def ndim(self) -> int:
        return self.value.layout.ndim

    @property
    def size(self) -> int:
        return self.value.layout.size

    @property
    def flags(self) -> Any:
        return self.value.layout.flags

    @property
    def is_transposed(self) -> bool:
        """Whether the elements lie column by column, and not row by row."""
        flags = self.value.layout.flags
        return flags.f_contiguous and not flags.c_contiguous

    @property
    def T(self) -> Symbol:
        return self._view(self.value.layout.T)

    def reshape(self, *shape: Any) -> Symbol:
        return self._view(self.value.layout.reshape(*shape))

    def transpose(self, *axes: Any) -> Symbol:
        return self._view(self.value.layout.transpose(*axes))

    def dot(self, other: Any) -> Symbol:
        return self.apply("dot", self, other)

    def max(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.recording.reduced(np.maximum, self, axis, keepdims=keepdims)

    def squeeze(self, axis: Any = None) -> Symbol:
        return self._view(self.value.layout.squeeze(axis))

    def __len__(self) -> int:
        return len(self.value.layout)

    def __getitem__(self, index: Any) -> Symbol:
        layout = self.value.layout
        found = layout[index]
        # An index for each dimension gives a number, which lies nowhere in the array.
        return self._view(found if isinstance(found, np.ndarray) else layout[(*np.index_exp[index], ...)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.recording.write(value, self[index])

    def _view(self, layout: np.ndarray) -> Symbol:
        # A recording has layouts only: a copy would be memory that no call fills.
        if layout.size and not np.may_share_memory(layout, self.value.layout):
            raise UnsupportedError("no view, but a copy")
        self.recording.viewed.add(self.value.memory)
        return self.seen(layout)

    def seen(self, layout: np.ndarray) -> Symbol:
        """The same memory in another layout."""
        return Symbol(self.recording, SymbolMemory(self.value.memory, layout))

    def __bool__(self) -> bool:
        raise UnsupportedError("a choice by what an array holds")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedError(name)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError("an array of a symbol")

    def apply(self, function: str, *operands: Any, **options: Any) -> Symbol:
        if function in FUNCTIONS:
            return FUNCTIONS[function](self.recording, *operands, **options)
        ufunc = getattr(np, function, None)
        if not isinstance(ufunc, np.ufunc) or options:
            raise UnsupportedError(function)
        return _called(self.recording, ufunc, *operands)

    def copy(self) -> Symbol:
        return self.recording.copied(self)

    def view(self, dtype: Any) -> Symbol:
        return self._view(self.value.layout.view(dtype))

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        if dtype == self.dtype:
            return self.copy() if copy else self
        return self.recording.converted(self, np.dtype(dtype))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (None,), where: Any = True,
        casting: str = "same_kind", **options: Any,
    ) -> Any:  # fmt: skip
        (target,) = out
        call, known = _METHODS.get(method, (None, ()))
        if call is None or options.keys() - known or casting not in ("same_kind", "unsafe"):
            raise UnsupportedError(f"{ufunc.__name__}.{method}")
        result = call(self.recording, ufunc, *inputs, **options)
        if where is not True:
            if method != "__call__" or target is None:
                raise UnsupportedError("elements that nothing is computed for")
            result = self.recording.where(where, result, target)
        if target is None:
            return result
        is_alike = (result.shape, result.dtype) == (target.shape, target.dtype)
        if is_alike and target.value.memory not in self.recording.viewed:
            target.value = result.value
        else:  # where views show the memory, the symbol must not come to stand for other memory
            self.recording.write(result, target)
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto and args[0].value.memory in self.recording.viewed:
            raise UnsupportedError("a choice between what is there and something else, in place")
        return super().__array_function__(function, types, args, kwargs)


def _called(recording: Recording, ufunc: np.ufunc, *operands: Any, dtype: Any = None) -> Symbol:
    """The function of elements, or of matrices."""
    if dtype is not None:
        operands = tuple([x.astype(dtype, copy=False) if isinstance(x, Symbol) else x for x in operands])
    if ufunc.signature is None and ufunc.nout == 1:
        result = recording.ufunc(ufunc, operands)
    elif ufunc.__name__ in FUNCTIONS:
        result = FUNCTIONS[ufunc.__name__](recording, *operands)
    else:
        raise UnsupportedError(ufunc.__name__)
    if dtype is not None and result.dtype != dtype:
        raise UnsupportedError("results of another type")
    return result


_METHODS: dict[str, tuple[Callable[..., Symbol], set[str]]] = {
    "__call__": (_called, {"dtype"}),
    "reduce": (Recording.reduced, {"axis", "dtype", "keepdims"}),
}
"""Methods of ufuncs, with the options that recordings know."""


def _lie_alike(x: Symbol, y: Symbol) -> bool:
    return (x.shape, x.value.layout.strides) == (y.shape, y.value.layout.strides)
