"""One group of elementwise operators for many variables, on lists of arrays or on long vectors.

If the arrays of a list are neighbours in memory, an executor passes one vector instead. NumPy then computes the vector
in pieces that fit in the cache. Every element is computed as by the operators of one variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.fused import PIECE, RESULTS, ArrayType, as_calls, fused_elementwise
from minigraph.kernels.registry import kernel
from minigraph.kernels.update_kernels import buffers_for
from minigraph.support.fused_calls import FusedCall, last_uses, parse_calls


@kernel("merged_elementwise", joins="all")
def merged_elementwise(xp, x0, x1, x2, x3, x4, x5, x6, x7, shared, *, steps, replaced, out=None):
    lists = [x for x in (x0, x1, x2, x3, x4, x5, x6, x7) if x]
    found: tuple[list[Any], ...] = tuple([] for _ in range(RESULTS))
    for own, outs in variables(lists, out, len(replaced)):
        made = of_one(xp, [*own, *(shared or ())], tuple(steps), tuple(replaced), outs)
        for result, y in zip(found, made, strict=False):
            result.append(y)
    return found


def variables(lists: Sequence[Sequence[Any]], out: Any, count: int) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the arrays of each variable, and the buffers for its `count` results, or None in place of a buffer."""
    targets = buffers_for(out, RESULTS if isinstance(out, tuple) else 1)
    targets = (*targets, *[None] * count)[:count]
    for number, own in enumerate(zip(*lists, strict=True)):
        yield list(own), [each[number] if each else None for each in targets]


def of_one(xp, xs, steps, replaced, outs) -> Sequence[Any]:
    """Results for one variable, or for several that lie in one vector.

    `xs` are the arrays of the variable, and the arrays that all variables read.
    """
    is_in_place = all([out is xs[i] for out, i in zip(outs, replaced, strict=True)])
    if xp is not np or not is_in_place:
        made = fused_elementwise(xp, xs, steps=steps)[: len(replaced)]
        return [deliver(xp, y, out) for y, out in zip(made, outs, strict=True)]
    size = outs[0].size
    if size <= PIECE or not all([x.flags.c_contiguous for x in xs]):
        _in_place(steps, replaced, tuple([ArrayType(x.shape, x.dtype) for x in xs]))(xs)
        return outs
    vectors = [x.reshape(-1) for x in xs]
    for start in range(0, size, PIECE):
        parts = [x[start : start + PIECE] if x.size > 1 else x for x in vectors]
        _in_place(steps, replaced, tuple([ArrayType(x.shape, x.dtype) for x in parts]))(parts)
    return outs


@lru_cache(maxsize=256)
def _in_place(steps: tuple[str, ...], replaced: tuple[int, ...], types: tuple[ArrayType, ...]) -> Callable[..., None]:
    """A function that writes the results over the operands of these numbers."""
    late = written_late(parse_calls(steps), replaced)
    at_once = [None if f"y{i}" in late else at for i, at in enumerate(replaced)]
    run = as_calls(steps, {f"x{i}": each for i, each in enumerate(types)}, [f"y{i}" for i in range(len(replaced))])
    none = (None,) * (RESULTS - len(replaced))

    def write(xs):
        made = run(xs, out=(*[None if at is None else xs[at] for at in at_once], *none))
        for y, at, is_written in zip(made, replaced, at_once, strict=False):
            if is_written is None:
                np.copyto(xs[at], y)

    return write


def written_late(calls: Sequence[FusedCall], replaced: Sequence[int]) -> set[str]:
    """The results that may be written only at the end: a later call reads the operand that they are written over."""
    made = {name: number for number, call in enumerate(calls) for name in call.writes}
    last = last_uses(calls)
    return {f"y{i}" for i, at in enumerate(replaced) if last.get(f"x{at}", -1) > made[f"y{i}"]}
