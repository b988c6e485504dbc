"""Norms of order 2 and clipping by them, on several cores.

Squares are computed and added in float64, in several sums at once, as exactly as in `minigraph.kernels.sums`. If
squares of float64 may overflow or underflow, `minigraph.kernels.norm` computes the norm. As by the shared kernels, a
gradient below the threshold is returned unchanged, and another one is multiplied with the rounded factor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.clip import clipped_by, factor_for, scale_all_down
from minigraph.kernels.clip_to_keep import ClipToKeep
from minigraph.kernels.jit import offers
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import UnsupportedError, address_of
from minigraph.kernels.jit.offers import numba_name, offer, vectors
from minigraph.kernels.jit.products import square
from minigraph.kernels.jit.recorders import native, native_loop
from minigraph.kernels.jit.recording import STATUS, Recording, Symbol
from minigraph.kernels.jit.threads import least_of, pieces, run_together, shares
from minigraph.kernels.norm import SHORT, norm, short_joined, sums_of_powers
from minigraph.kernels.registry import specialize
from minigraph.kernels.sums import add_exactly

_LOOPS, _STREAMS = Loops("norms"), Loops("streams")
_FEW = 8
"""Maximum arrays that are not joined, but take a call each."""
_WORTH_A_THREAD = 16_384
"""Minimum elements of an array, on average, for which threads are used."""
_PAST_CACHES = 2**24
"""Minimum bytes of results that are written past the caches."""


def _loops_for(types: Sequence[Any]) -> _Norm | None:
    """Loops for arrays of these types; None if there are none or the arrays are too small."""
    return _loops_of({each.dtype for each in types}, sum(prod(each.shape) for each in types))


def _loops_of(dtypes: set[Any], size: int) -> _Norm | None:
    kind = numba_name(dtypes.pop()) if len(dtypes) == 1 else None
    return None if kind is None or size < offers.LEAST else _Norm(kind, size)


def parts_of_squares() -> Callable[[Any], Sequence[float]]:
    """A loop that gives two numbers whose sum is that of the squares of a vector of float32."""
    return _LOOPS.compiled("parts_of_squares", "UniTuple(float64, 2)(float32[::1])")


class _Norm:
    """Norms and products of arrays of one type, with `size` elements in all."""

    def __init__(self, kind: str, size: int) -> None:
        self._kind, self._size, self._is_wide = kind, size, kind == "float64"
        self._parts = _LOOPS.compiled("parts_of_squares", f"UniTuple(float64, 2)({kind}[::1])")

    def _shares(self, xs: Sequence[Any], arrays: int = 1) -> list[list[tuple[int, int, int]]]:
        """Parts for the threads of a loop over as many arrays like each of `xs`.

        None if there is only one thread, or if the arrays are short on average: between two calls a thread needs the
        interpreter's lock, and threads with short calls would wait for each other.
        """
        least = least_of(arrays * np.dtype(self._kind).itemsize)
        is_worth_it = self._size >= _WORTH_A_THREAD * len(xs) and len(pieces(self._size, least)) > 1
        found = shares([x.size for x in xs], least) if is_worth_it else []
        return found if len(found) > 1 else []

    def sum_of_squares(self, xs: Sequence[Any]) -> float:
        flat = vectors(*(xs if len(xs) <= _FEW else short_joined(xs)))
        parts = self._shares(flat)
        if not parts:
            return add_exactly([number for x in flat for number in self._parts(x)])
        found: list[float] = []

        def add(part: Sequence[tuple[int, int, int]]) -> None:
            found.extend([number for i, start, end in part for number in self._parts(flat[i][start:end])])

        run_together([partial(add, part) for part in parts])
        return add_exactly(found)  # exact, so the order in which threads end does not matter

    def norm(self, xs: Sequence[Any]) -> tuple[Any, Any]:
        """The joint norm as two factors; see `minigraph.kernels.norm.norm`."""
        total = self.sum_of_squares(xs)
        if self._is_wide and not 1e-280 < total < 1e300:
            return norm(np, xs)
        return 1.0, total**0.5

    def sums(self, x: Any) -> tuple[float, float, float]:
        """The row of an array for `minigraph.kernels.norm.norm_of_sums`."""
        total, rest = self._parts(*vectors(x))
        if self._is_wide and not 1e-280 < total < 1e300:
            return sums_of_powers(np, x, 2)
        return 1.0, total, rest

    def multiply(self, xs: Sequence[Any], number: Any, outs: Sequence[Any], times: Any = np.multiply) -> list[Any]:
        """Every array times a number of its type; ``times(x, number, out)`` multiplies vectors."""
        parts = self._shares(xs, 2)
        if not parts and times is np.multiply:
            return [np.multiply(x, number, out=out) for x, out in zip(xs, outs, strict=True)]
        results = [np.empty(x.shape, x.dtype) if out is None else out for x, out in zip(xs, outs, strict=True)]
        sources, targets = vectors(*xs), vectors(*results)

        def scale(part: Sequence[tuple[int, int, int]]) -> None:
            for i, start, end in part:
                times(sources[i][start:end], number, targets[i][start:end])

        # NumPy's products release the interpreter's lock like compiled loops.
        run_together([partial(scale, part) for part in parts or [[(i, 0, x.size) for i, x in enumerate(xs)]]])
        return results

    def writer(self) -> Callable[..., Any]:
        """A function for `multiply` that suits results which are not read soon."""
        if self._size * np.dtype(self._kind).itemsize < _PAST_CACHES:
            return np.multiply
        return _STREAMS.compiled("write_products", f"void({self._kind}[::1], {self._kind}, {self._kind}[::1])")


@offer("clip_factor")
def clip_factor(xp, xs, clip_norm, *, p):
    loops = _loops_for(xs) if p == 2 else None
    if loops is None:
        return None

    def factor(xs, clip_norm, out=None):
        return factor_for(np, clip_norm, *loops.norm(xs), out)

    return factor


@offer("part_norms")
def part_norms(xp, x, *, blocks, p):
    # By the size of a block, which does not depend on the number of ranks: nor do its bits.
    found = [_loops_of({each.dtype}, prod(each.shape) // blocks) for each in x]
    if p != 2 or not any(found):
        return None
    by_numpy = partial(sums_of_powers, np, p=2)
    functions = [by_numpy if loops is None else loops.sums for loops in found]

    def sums(x):
        of_parts = [list(map(sum, each.reshape(blocks, -1))) for sum, each in zip(functions, x, strict=True)]
        return np.array(of_parts).swapaxes(0, 1)

    return sums


_SQUARES = """

def squares_{kind}(operands, sizes, strides, own):
    total, rest = parts_of_squares(array_at(load(operands), load(sizes), np.{kind}(0)))
    store_as(load(operands + 8), total)
    store_as(load(operands + 8) + 8, rest)

"""

_TEXT = """
def total_of_squares(operands, sizes, strides, own):
    store_as(load(operands + 8), added_exactly(array_at(load(operands), load(sizes), np.float64(0))))


def total_within_bounds(operands, sizes, strides, status):
    total_of_squares(operands, sizes, strides, status)
    if not 1e-280 < load_as(load(operands + 8), np.float64(0)) < 1e300:
        store(status, 1)
"""

_IN_TABLES = Loops(
    "norms", "layout", "table", text="".join([*(_SQUARES.format(kind=kind) for kind in ("float32", "float64")), _TEXT])
)


@cache
def _power() -> int | None:
    """Address of C's ``pow``, by which Python takes roots."""
    try:
        return ctypes.cast(ctypes.CDLL(None).pow, ctypes.c_void_p).value
    except (AttributeError, OSError, TypeError):  # no such library, as on Windows
        return None


def _record_norm(recording: Recording, xs: Sequence[Symbol]) -> Symbol:
    """Record the joint norm of arrays that are together less than a thread's share, by the loops."""
    dtype, size = xs[0].dtype, sum(x.size for x in xs)
    if numba_name(dtype) is None or any(x.dtype != dtype for x in xs) or size >= 2 * least_of(dtype.itemsize):
        raise UnsupportedError("another norm")
    vectors = _joined(recording, xs)
    parts, total = recording.new((len(vectors), 2), np.float64), recording.new((1,), np.float64)
    for i, x in enumerate(vectors):
        if not x.value.layout.flags.c_contiguous:
            raise UnsupportedError("another order")
        recording.emit(_IN_TABLES.address(f"squares_{dtype.name}"), [x, parts[i]], [x.size], [])
    adds, status = ("total_within_bounds", STATUS) if dtype == np.float64 else ("total_of_squares", 0)
    recording.emit(_IN_TABLES.address(adds), [parts, total], [2 * len(vectors)], [], status)
    return _root(recording, total)


def _joined(recording: Recording, xs: Sequence[Symbol]) -> Sequence[Symbol]:
    """The vectors whose squares `_Norm.sum_of_squares` adds."""
    if len(xs) <= _FEW:
        return xs
    found: list[Symbol] = []
    for is_short, group in groupby(xs, key=lambda x: x.size <= SHORT):
        run = list(group)
        found.extend([_in_a_row(recording, run)] if is_short and len(run) > 1 else run)
    return found


def _in_a_row(recording: Recording, xs: Sequence[Symbol]) -> Symbol:
    vector, start = recording.new((sum(x.size for x in xs),), xs[0].dtype), 0
    for x in xs:
        recording.copy(x, vector[start : start + x.size])
        start += x.size
    return vector


def _root(recording: Recording, total: Symbol) -> Symbol:
    power, ratio = _power(), recording.new((1,), np.float64)
    if power is None:
        raise UnsupportedError("no root")
    recording.emit(address_of("root"), [total, ratio], [], [], power)
    return ratio


def _factor(recording: Recording, threshold: Symbol, ratio: Symbol) -> Symbol:
    """Record the three numbers of `minigraph.kernels.clip.factor_for`."""
    factor = recording.new((3,), np.float64)
    recording.emit(address_of(f"factor_{threshold.dtype.name}"), [threshold, ratio, factor], [], [])
    return factor


def record_short_norm(recording: Recording, xs: Sequence[Symbol]) -> Symbol:
    """Record the joint norm of short arrays, as the shared kernel computes it."""
    if not 0 < sum(x.size for x in xs) <= SHORT or any(x.dtype != np.float32 or x.is_transposed for x in xs):
        raise UnsupportedError("another norm")
    vector = xs[0].reshape(-1) if len(xs) == 1 else _in_a_row(recording, xs)
    return _root(recording, square(recording, recording.converted(vector, np.dtype(np.float64))))


def _record_clips(register: Callable[..., Any], norm: Callable[[Recording, Sequence[Symbol]], Symbol]) -> None:
    """Register clips that measure norms in this way."""

    @register("clip_factor")
    def clip_factor(recording, xs, clip_norm, *, p):
        if p != 2 or clip_norm.dtype != xs[0].dtype:
            raise UnsupportedError("another norm")
        ratio, total = norm(recording, xs), recording.new((1,), clip_norm.dtype)
        recording.emit(address_of(f"rounded_{clip_norm.dtype.name}"), [ratio, total], [], [])
        return _factor(recording, clip_norm, ratio), total

    @register("clip_by_global_norm")
    def clip_by_global_norm(recording, xs, clip_norm, *, p, strict):
        if strict:
            raise UnsupportedError("errors")
        factor, total = clip_factor(recording, xs, clip_norm, p=p)
        number = recording.shrink(factor, xs[0].dtype)
        return [np.multiply(x, number) for x in xs], total

    @register("clip_by_norm")
    def clip_by_norm(recording, x, *, max_norm):
        factor = _factor(recording, recording.constant([max_norm], np.float64), norm(recording, [x]))
        return np.multiply(x, recording.shrink(factor, x.dtype))


_record_clips(native_loop, _record_norm)
_record_clips(partial(native, replaces_loops=False), record_short_norm)


@offer("global_norm")
def global_norm(xp, xs, *, p):
    loops = _loops_for(xs) if p == 2 else None
    if loops is None:
        return None
    dtype = np.result_type(np.float32, *[x.dtype for x in xs])

    def measure(xs, out=None):
        scale, ratio = loops.norm(xs)
        return deliver(np, np.array([scale * ratio]).astype(dtype), out)

    return measure


@offer("clip_by_global_norm")
def clip_by_global_norm(xp, xs, clip_norm, *, p, strict):
    loops = _loops_for(xs) if p == 2 else None
    if loops is None:
        return None

    writer = loops.writer()

    def clip(xs, clip_norm, out=None):
        scale, ratio = loops.norm(xs)
        in_place = out is not None and out[0][0] is xs[0]
        scale_all = loops.multiply if in_place else partial(loops.multiply, times=writer)
        return clipped_by(np, xs, clip_norm, scale, ratio, strict, out, scale_all)

    return clip


@specialize("clip_by_global_norm", jit=True, own=True)
def clip_by_global_norm_to_keep(xp, xs, clip_norm, *, p, strict):
    loops = _loops_for(xs) if p == 2 else None
    if loops is None:
        return None
    writer = loops.writer()

    def norm_of(arrays, joined):
        try:
            return loops.norm(joined)
        except TypeError:  # see `or_kernel`
            return norm(np, arrays, p, joined)

    def scale_all(xs, number, outs):
        try:
            return loops.multiply(xs, number, outs, writer)
        except TypeError:
            return [np.multiply(x, number, out=out) for x, out in zip(xs, outs, strict=True)]

    return ClipToKeep(xs, norm_of, strict, scale_all)


@offer("clip_by_norm")
def clip_by_norm(xp, x, *, max_norm):
    loops = _loops_for([x])
    if loops is None:
        return None

    def clip(x, out=None):
        scale, ratio = loops.norm([x])
        return scale_all_down(np, [x], max_norm, scale, ratio, [out], loops.multiply)[0]

    return clip


@offer("squared_l2_norm")
def squared_l2_norm(xp, x):
    loops = _loops_for([x])
    if loops is None:
        return None

    def square(x, out=None):
        return deliver(np, np.array([loops.sum_of_squares([x])]).astype(x.dtype), out)

    return square
