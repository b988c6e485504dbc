"""One group of elementwise operators for many variables, on lists of arrays or on long vectors.

If the arrays of a list are neighbours in memory, an executor passes one vector instead. NumPy then computes the vector
in pieces that fit in the cache. Every element is computed as by the operators of one variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.fused import PIECE, RESULTS, ArrayType, as_calls, fused_elementwise
from minigraph.kernels.registry import kernel
from minigraph.kernels.update_kernels import agree, apart
from minigraph.support.fused_calls import FusedCall, last_uses, parse_calls

NUMBERS = 4
"""Lists of numbers, one for each variable, after the lists of variables."""


@kernel("merged_elementwise", joins="all")
def merged_elementwise(
    xp, x0, x1, x2, x3, x4, x5, x6, x7, n0, n1, n2, n3, shared, *, steps, replaced, sizes, out=None
):  # fmt: skip
    own, numbers = given((x0, x1, x2, x3, x4, x5, x6, x7)), given((n0, n1, n2, n3))
    if xp is np and numbers and len(own[0]) < len(sizes) and own[0][0].size <= PIECE:
        # One call for all elements takes less time than one for each variable.
        numbers = [[np.repeat(x, sizes)] for (x,) in numbers]
        sizes = [own[0][0].size]
    made = [
        of_one(xp, [*arrays, *ones, *(shared or ())], tuple(steps), tuple(replaced), outs)
        for arrays, ones, outs in variables(xp, own, numbers, sizes, out, len(replaced))
    ]
    return (*map(list, zip(*made, strict=True)), *[[]] * (RESULTS - len(replaced)))


def given(lists: Sequence[Any]) -> list[Any]:
    """The lists that are not left out."""
    return [x for x in lists if x]


def variables(
    xp: Any, own: Sequence[Any], numbers: Sequence[Any], sizes: Sequence[int], out: Any, count: int
) -> list[tuple[Sequence[Any], Sequence[Any], Sequence[Any]]]:
    """List the arrays of each variable, its numbers, and the buffers for its `count` results, or None for a buffer.

    A vector of several variables, which `sizes` tells apart, is one variable if their numbers agree.
    """
    targets = ((out,) if isinstance(out, list) else out or ())[:count]
    targets = [*targets, *[None] * (count - len(targets))]
    if numbers and len(own[0]) < len(sizes):
        if xp is np and agree([x for (x,) in numbers]):
            numbers = [[x.reshape(-1)[:1]] for (x,) in numbers]
        else:
            parts = {id(x[0]): apart(x, sizes) for x in own}  # a buffer that is an operand stays one
            own, targets = ([x and (parts.get(id(x[0])) or apart(x, sizes)) for x in lists] for lists in (own, targets))
            numbers = [apart(x, [1] * len(sizes)) for x in numbers]
    if len(own[0]) == 1:
        return [([x for (x,) in own], [x for (x,) in numbers], [x and x[0] for x in targets])]
    return [
        ([x[i] for x in own], [x[i] for x in numbers], [x[i] if x else None for x in targets])
        for i in range(len(own[0]))
    ]


def of_one(xp, xs, steps, replaced, outs) -> Sequence[Any]:
    """Results for one variable, or for several that lie in one vector.

    `xs` are the arrays of the variable, which have one shape, and single elements, the numbers and what is shared.
    """
    if xp is not np or any([out is not xs[i] for out, i in zip(outs, replaced, strict=True)]):
        made = fused_elementwise(xp, xs, steps=steps)[: len(replaced)]
        return [deliver(xp, y, out) for y, out in zip(made, outs, strict=True)]
    size = outs[0].size
    if size <= PIECE or not all([x.flags.c_contiguous for x in xs]):
        _write_over(xs, steps, replaced)
        return outs
    vectors = [x.reshape(-1) for x in xs]
    for start in range(0, size, PIECE):
        _write_over([x[start : start + PIECE] if x.size > 1 else x for x in vectors], steps, replaced)
    return outs


_WRITERS: dict[tuple[Any, ...], Callable[..., Any]] = {}
"""Functions that write over their operands, by steps, operands that are replaced, and type of a variable."""

_MOST_WRITERS = 256


def _write_over(xs: Sequence[Any], steps: tuple[str, ...], replaced: tuple[int, ...]) -> None:
    """Write the results over the operands of these numbers."""
    first = xs[0]
    key = steps, replaced, first.shape, first.dtype.char
    write = _WRITERS.get(key)
    if write is None:
        if len(_WRITERS) >= _MOST_WRITERS:
            _WRITERS.clear()
        write = _WRITERS[key] = _writer(steps, replaced, [ArrayType(x.shape, x.dtype) for x in xs])
    write(xs)


def _writer(steps: tuple[str, ...], replaced: tuple[int, ...], types: Sequence[ArrayType]) -> Callable[..., Any]:
    late = written_late(parse_calls(steps), replaced)
    run = as_calls(steps, {f"x{i}": each for i, each in enumerate(types)}, [f"y{i}" for i in range(len(replaced))])
    at_once = [None if f"y{i}" in late else at for i, at in enumerate(replaced)]
    at_once += [None] * (RESULTS - len(replaced))
    at_end = [(i, at) for i, at in enumerate(replaced) if f"y{i}" in late]

    def write(xs):
        made = run(xs, out=[None if at is None else xs[at] for at in at_once])
        for i, at in at_end:
            np.copyto(xs[at], made[i])

    return write


def written_late(calls: Sequence[FusedCall], replaced: Sequence[int]) -> set[str]:
    """The results that may be written only at the end: a later call reads the operand that they are written over."""
    made = {name: number for number, call in enumerate(calls) for name in call.writes}
    last = last_uses(calls)
    return {f"y{i}" for i, at in enumerate(replaced) if last.get(f"x{at}", -1) > made[f"y{i}"]}
