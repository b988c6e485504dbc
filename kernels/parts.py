"""Parts of arrays that ranks divide among themselves, by the current communicator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minigraph.kernels.clip import clipped_by, factor_for
from minigraph.kernels.norm import norm_of_sums, sums_of_powers
from minigraph.kernels.registry import kernel
from minigraph.kernels.sparse_gradients import with_values
from minigraph.kernels.sparse_rows import SparseRows, merged, values_of
from minigraph.kernels.sums import sum_of_squares
from minigraph.support.communicator import Call, check_size, current
from minigraph.support.parts import Division, columns


@kernel("c_part")
def c_part(xp, x, *, nranks, blocks, by_rows, out=None):
    check_size(nranks)
    return Division(nranks, blocks, by_rows).part(xp, x, current().rank, out)


@kernel("c_part", rows=True)
def part_of_rows(xp, x, *, nranks, blocks, by_rows):
    check_size(nranks)
    height, *_ = Division(nranks, blocks, by_rows).shape_of(x.shape)
    first = current().rank * height
    mine = (x.rows >= first) & (x.rows < first + height)
    return SparseRows(x.rows[mine] - first, x.value[mine], height, x.is_merged)


@kernel("c_reduce_parts")
def c_reduce_parts(xp, x, *, nranks, blocks, op_input_names, out=None):
    check_size(nranks)
    division = Division(nranks, blocks)
    lengths = [division.shape_of(each.shape)[0] for each in x]
    parts = out or list(columns(xp.empty(sum(lengths), x[0].dtype), lengths))
    current().on(xp).reduce_parts([each.reshape(-1) for each in x], parts, _call("c_reduce_parts", op_input_names, x))
    return parts


@kernel("c_gather_parts")
def c_gather_parts(xp, x, whole, *, nranks, op_input_names, out=None):
    check_size(nranks)
    results = out or [xp.empty_like(like) for like in whole]
    call = _call("c_gather_parts", op_input_names, x)
    current().on(xp).gather_parts([each.reshape(-1) for each in x], [each.reshape(-1) for each in results], call)
    return results


def _call(type: str, names: Sequence[str], arrays: Sequence[Any]) -> Call:
    return Call(type, f"{names[0]} and {len(arrays) - 1} more", 0, str(arrays[0].dtype), ())


@kernel("part_norms")
def part_norms(xp, x, *, blocks, p):
    return _sums_of(xp, [each.reshape(blocks, -1) for each in x], p)


@kernel("part_norms", rows=True)
def part_norms_of_rows(xp, x, *, blocks, p):
    return _sums_of(xp, [_blocks(xp, each, blocks) for each in x], p)


def _blocks(xp, x: Any, blocks: int) -> Sequence[Any]:
    """The values of a part, block by block."""
    if not isinstance(x, SparseRows):
        return x.reshape(blocks, -1)
    x = merged(xp, x)
    bounds = xp.searchsorted(x.rows, xp.arange(blocks + 1) * (x.height // blocks)).tolist()
    return [x.value[start:end] for start, end in pairwise(bounds)]


def _sums_of(xp, parts: Sequence[Sequence[Any]], p: float) -> Any:
    """Arguments of `norm_of_sums` for each block of each part, along the last dimension."""
    sums = [[sums_of_powers(xp, block, p) for block in blocks] for blocks in parts]
    if xp is np:
        return np.array(sums).swapaxes(0, 1)
    numbers = [[xp.stack([xp.asarray(number, xp.float64) for number in each]) for each in blocks] for blocks in sums]
    return xp.stack([xp.stack(blocks) for blocks in numbers], 1)


_REDUCED = {
    "sum": lambda xp, x: xp.sum(x, dtype=xp.float64),
    "max": lambda xp, x: xp.amax(x) if x.size else -np.inf,
    "min": lambda xp, x: xp.amin(x) if x.size else np.inf,
    "squares": sum_of_squares,
    "sizes": lambda xp, x: xp.sum(xp.absolute(x), dtype=xp.float64),
}
"""Reductions of one block, which may be empty."""


@kernel("part_reduction")
def part_reduction(xp, x, *, reduction, size, nranks, blocks, by_rows):
    check_size(nranks)
    length = len(x) // blocks
    first = current().rank * len(x)
    reduce = _REDUCED[reduction]
    # A block ends early, or is empty, where the array has ended: what follows is padding.
    numbers = [reduce(xp, x[at : min(at + length, max(at, size - first))]) for at in range(0, len(x), length or 1)]
    return xp.stack([xp.asarray(each, xp.float64).reshape(()) for each in numbers or [reduce(xp, x)] * blocks])


@kernel("clip_parts", view="x")
def clip_parts(xp, x, norms, clip_norm, *, columns, max_norm, p, strict, out=None):
    threshold = xp.asarray([max_norm], xp.float64) if clip_norm is None else clip_norm
    return clipped_by(xp, x, threshold, *_norm_of(xp, norms, columns, p), strict, out)


def _norm_of(xp, norms, columns, p) -> tuple[Any, Any]:
    """The joint norm of whole arrays as two factors."""
    return norm_of_sums(xp, norms[:, columns].reshape(-1, 3), p)


@kernel("clip_parts_factor")
def clip_parts_factor(xp, norms, clip_norm, *, columns, p, out=None):
    return factor_for(xp, clip_norm, *_norm_of(xp, norms, columns, p), out)


@kernel("clip_parts", view="x", rows=True)
def clip_parts_of_rows(xp, x, norms, clip_norm, *, columns, max_norm, p, strict):
    x = [merged(xp, each) if isinstance(each, SparseRows) else each for each in x]
    clipped, total = clip_parts(
        xp, values_of(xp, x), norms, clip_norm, columns=columns, max_norm=max_norm, p=p, strict=strict
    )
    return with_values(x, clipped), total
