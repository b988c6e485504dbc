"""Registry of how operators are recorded as calls of C functions; see `minigraph.kernels.jit.recording`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit.draws import Draws
from minigraph.kernels.jit.functions import IS_KNOWN, UnsupportedError
from minigraph.kernels.jit.recording import Recording, Symbol
from minigraph.kernels.registry import KERNEL, LOOP, Kernel

MOST_ELEMENTS = 4096
"""Maximum elements of an array that gets calls of single functions: beyond, one compiled loop for all is quicker."""

MOST_VIEWED = 16_384
"""Maximum elements of a result that is a view: where the plan reads it after a table, the table copies it."""

Offer = Callable[..., Any]

_OFFERS: dict[str, Offer] = {}
_OF_LOOPS: dict[str, Offer] = {}
_MOST_COLUMNS: dict[str, int] = {}
_REPLACES_LOOPS: dict[str, Callable[[Mapping[str, Any]], bool]] = {}


def native(
    *types: str, most_columns: int | None = None, replaces_loops: bool | Callable[[Mapping[str, Any]], bool] = True
) -> Callable[[Offer], Offer]:
    """Register how operators are recorded: ``f(recording, *inputs, **attrs)`` returns the symbols of the results.

    It raises `UnsupportedError` for what it cannot, such as a first input with more than `most_columns`. Small arrays
    then take the shared kernel and no compiled loop, unless the recording does not replace loops, which may depend on
    the attributes.
    """

    def decorate(function: Offer) -> Offer:
        _OFFERS.update(dict.fromkeys(types, function))
        says = replaces_loops if callable(replaces_loops) else lambda attrs: replaces_loops
        _REPLACES_LOOPS.update(dict.fromkeys(types, says))
        if most_columns is not None:
            _MOST_COLUMNS.update(dict.fromkeys(types, most_columns))
        return function

    return decorate


def native_loop(*types: str) -> Callable[[Offer], Offer]:
    """Register how operators are recorded that call a compiled loop, like `native`.

    A result that is an input was computed in place.
    """

    def decorate(function: Offer) -> Offer:
        _OF_LOOPS.update(dict.fromkeys(types, function))
        return function

    return decorate


def is_small(type: str, shapes: Sequence[Sequence[int]], attrs: Mapping[str, Any]) -> bool:
    """Whether an operator on arrays of these shapes is recorded, if it can be, and not given a loop of its own."""
    if not IS_KNOWN or type not in _OFFERS or not _REPLACES_LOOPS[type](attrs):
        return False
    if any([prod(shape) > MOST_ELEMENTS for shape in shapes]):
        return False
    return type not in _MOST_COLUMNS or shapes[0][-1] <= _MOST_COLUMNS[type]


def offer_for(type: str, kind: str = KERNEL) -> Offer:
    """Entry of the registry for an operator.

    Raises
    ------
    UnsupportedError
        If nothing is.
    """
    found = (_OFFERS if kind == KERNEL else _OF_LOOPS if kind == LOOP else {}).get(type)
    if found is None:
        raise UnsupportedError(type)
    return found


def record(
    type: str, kind: str, kernel: Kernel | None, inputs: Sequence[Any], attrs: dict[str, Any]
) -> tuple[Recording, list[Any]] | None:
    """The recording for an operator on arrays of these types, and the symbols of its results; None if there is none.

    An input has ``shape``, ``dtype`` and ``is_transposed``, or is None or a list of such. Where the registry has no
    entry that supports them, `kernel` runs on symbols; None if it must not.
    """
    ways = [partial(_as_registered, type, kind)]
    if kind == KERNEL and kernel is not None:
        ways.append(partial(_by_running, kernel))
    for way in ways:
        recording = Recording()
        try:
            given = [_symbols(recording, each) for each in inputs]
            recording.inputs = len(recording.memories)
            found = way(recording, *given, **attrs)
            results = list(found) if isinstance(found, tuple) else [found]
            return recording, [
                [recording.in_order(x) for x in each] if isinstance(each, list) else recording.in_order(each)
                for each in results
            ]
        except UnsupportedError:
            pass
    return None


def _symbols(recording: Recording, entry: Any) -> Any:
    if entry is None or not hasattr(entry, "dtype"):
        return None if entry is None else [_symbols(recording, each) for each in entry]
    return recording.of(*entry)


def _as_registered(type: str, kind: str, recording: Recording, *inputs: Any, **attrs: Any) -> Any:
    return offer_for(type, kind)(recording, *inputs, **attrs)


def _by_running(kernel: Kernel, recording: Recording, *inputs: Any, **attrs: Any) -> Any:
    """Record the calls of NumPy that the kernel makes for arrays: all, or it is not supported."""
    given = [x for entry in inputs for x in (entry if isinstance(entry, list) else [entry]) if x is not None]
    if kernel.for_rows or not kernel.function.__module__.startswith("minigraph.kernels."):
        raise UnsupportedError("a kernel that may do something else the next time")
    if any(x.is_transposed for x in given):
        raise UnsupportedError("another order")
    if kernel.takes_rng:  # what a seed determines is drawn now, and is the same in every run
        attrs = {**attrs, "rng": Draws(recording)}
    try:
        found = kernel.function(np, *inputs, **attrs)
    except Exception as error:  # a symbol can do little of what an array can, and a kernel may fail in any way
        raise UnsupportedError(f"{type(error).__name__}: {error}") from error
    results = [_result(recording, each) for each in (found if isinstance(found, tuple) else (found,))]
    views = [x for x in _flat(results) if x is not None and recording.place_of(x)[0] < recording.inputs]
    if any(not 0 < x.size <= MOST_VIEWED for x in views):
        raise UnsupportedError("a view of nothing, or of much")
    return tuple(results)


def _result(recording: Recording, found: Any) -> Any:
    """A result as a symbol; besides, there are arrays that no input has to do with."""
    if isinstance(found, list):
        return [_result(recording, each) for each in found]
    if isinstance(found, np.ndarray) and not found.size:
        return recording.new(found.shape, found.dtype)  # its shape is what a gradient needs
    if isinstance(found, np.ndarray) and found.dtype != np.object_:
        return recording.copied(recording.constant(found, found.dtype))
    if found is None or isinstance(found, Symbol):
        return found
    raise UnsupportedError("a result that no call computes")


def _flat(results: Sequence[Any]) -> list[Any]:
    return [x for each in results for x in (each if isinstance(each, list) else [each])]
