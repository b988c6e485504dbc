"""Shared parts of the offers of compiled loops: minimum sizes, numba's names of types, arrays as vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.registry import find_kernel, specialize

LEAST = 1024
"""Minimum elements for which a loop is compiled: for fewer, the time to compile is seldom won back."""

_ROWS = 64
"""Number of rows that is assumed where only a run knows it."""

_NUMBA_NAMES = {np.dtype(np.float32): "float32", np.dtype(np.float64): "float64"}


def is_worth_it(*types: Any) -> bool:
    """Whether an operator on arrays of these types is large enough."""
    return any(prod(each.shape) >= LEAST for each in types)


def is_wide(size: int) -> bool:
    """Whether rows of that many elements are long enough, whose number only a run knows."""
    return size * _ROWS >= LEAST


def numba_name(dtype: Any) -> str | None:
    """float32 or float64; None for other types, which are not compiled."""
    return _NUMBA_NAMES.get(dtype)


def elementwise_loop(
    loops: Loops, name: str, vectors: Sequence[Any], single: Sequence[Any] = (), numbers: int = 0
) -> Callable[..., Any] | None:
    """The loop `name` over arrays like `vectors`, arrays of one element, and numbers, all of one type.

    None if types do not fit, or if arrays are small and the loop is not compiled yet.
    """
    first, *others = vectors
    kind = numba_name(first.dtype)
    alike = all(each is not None and each.shape == first.shape and each.dtype == first.dtype for each in others)
    if kind is None or not alike or any(s is None or s.shape != (1,) or s.dtype != first.dtype for s in single):
        return None
    signature = f"void({', '.join([f'{kind}[::1]'] * (len(vectors) + len(single)) + [kind] * numbers)})"
    if not is_worth_it(first) and not loops.is_compiled(name, signature):
        return None
    return loops.compiled(name, signature)


def vectors(*arrays: Any) -> list[Any]:
    """The arrays as vectors, which share their memory.

    Raises
    ------
    TypeError
        If an array is not contiguous.
    """
    for x in arrays:
        if not x.flags.c_contiguous:
            raise TypeError("not contiguous")
    return [x if x.ndim == 1 else x.reshape(-1) for x in arrays]


def offer(type: str, rows: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function's offers for an operator, each wrapped in `or_kernel`; with `rows` for selected rows.

    `options` are those of `specialize`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def offered(xp: Any, *inputs: Any, **attrs: Any) -> Any:
            found = function(xp, *inputs, **attrs)
            return None if found is None else or_kernel(found, type, attrs, rows)

        specialize(type, jit=True, rows=rows, **options)(offered)
        return function

    return decorate


def offer_for_wide(type: str, kernel: Callable[..., Any]) -> None:
    """Offer another kernel for an operator whose first input has long rows."""

    @offer(type, any_size=True)
    def offered(xp: Any, x: Any, *others: Any, **attrs: Any) -> Any:
        return partial(kernel, xp, **attrs) if is_wide(x.shape[-1]) else None


def or_kernel(function: Callable[..., Any], type: str, attrs: dict[str, Any], rows: bool = False) -> Callable[..., Any]:
    """`function`, or the shared kernel if it raises TypeError: for arrays that it was not compiled for.

    Such arrays are not contiguous, or read-only.
    """
    kernel = find_kernel(type, "cpu", rows)
    assert kernel is not None
    shared = kernel.function

    def call(*arrays: Any, **out: Any) -> Any:
        try:
            return function(*arrays, **out)
        except TypeError:
            return shared(np, *arrays, **attrs, **out)

    return call
