"""Turn operators that take rows of a value into slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minigraph.passes.rules import Match, Rules, attr, marked, op, rule, with_gradients


def _are_ones(steps: Sequence[int]) -> bool:
    return set(steps) <= {1}


def _is_one(shape: Sequence[int]) -> bool:
    return list(shape) == [1]


@rule
def _strided(x: Any) -> Any:
    spans = {"axes": attr(), "starts": attr(), "ends": attr(), "strides": attr(fits=_are_ones)}
    return op("strided_slice", Input=x, **spans, infer_flags=attr(), decrease_axis=attr())


@_strided.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    shape = m.x.shape or ()
    sizes = [shape[axis] if axis < len(shape) else -1 for axis in m.axes]
    # The size of the result is unknown then: what reads it, and never runs, would not fit the size that slice tells.
    is_inside = all(size < 0 or min(a, b) >= -size for size, a, b in zip(sizes, m.starts, m.ends, strict=False))
    yield is_inside, "starts and ends must not lie before the first row"
    spans = [size if size < 0 else len(range(size)[a:b]) for size, a, b in zip(sizes, m.starts, m.ends, strict=False)]
    yield all(spans), "there must be rows: slice refuses to take none"
    taken = dict(zip(m.axes, spans, strict=False))
    # A strided_slice that infers no sizes may declare so, and is an error when it runs.
    yield all(taken.get(axis, 1) in (-1, 1) for axis in m.decrease_axis), "a dimension that goes must have one row"


@_strided.to
def _(x: Any, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], decrease_axis: Sequence[int]) -> Any:
    return op("slice", Input=x, axes=axes, starts=starts, ends=ends, decrease_axis=decrease_axis)


@rule
def _gathered(x: Any, row: Any = attr("value")) -> Any:
    index = op("fill_constant", shape=attr(fits=_is_one), dtype=attr(), value=row, str_value=attr(), force_cpu=attr())
    return op("gather", X=x, Index=marked(index, shared=True), overwrite=attr())


@_gathered.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    shape = m.x.shape or (-1,)
    yield -1 not in shape and 0 <= m.row < shape[0], "x must have the row, and a known shape"
    yield m.str_value in ("", str(int(m.row))), "the number must be an integer"


@_gathered.to
def _(x: Any, row: float) -> Any:
    return op("slice", Input=x, axes=[0], starts=[int(row)], ends=[int(row) + 1])


@rule
def _reversed(x: Any) -> Any:
    whole = marked(op("reverse", X=x, axis=attr("axis")), shared=True)
    spans = {"axes": [0], "starts": attr(), "ends": attr()}
    return op("slice", Input=whole, **spans, infer_flags=attr(), decrease_axis=attr())


@_reversed.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    shape = m.x.shape or (-1,)
    yield -1 not in shape and [each % len(shape) for each in m.axis] == [0], "rows of known shape must be reversed"
    yield 0 <= m.starts[0] < shape[0] and m.ends[0] == m.starts[0] + 1, "one row must be taken"


@_reversed.to
def _(m: Match, x: Any, starts: Sequence[int], decrease_axis: Sequence[int]) -> Any:
    row = m.x.shape[0] - 1 - starts[0]
    return op("slice", Input=x, axes=[0], starts=[row], ends=[row + 1], decrease_axis=decrease_axis)


class SliceRows(Rules):
    """Turn a ``strided_slice`` without strides, and a ``gather`` of one row of constant number, into a ``slice``.

    Likewise for their gradients. A row of a ``reverse`` becomes that of what is reversed. `JoinSlices`, and passes that
    look for the parts of a value, know ``slice`` only.

    Law: every value keeps its bits.
    """

    needs = (frozenset({"gather"}), frozenset({"strided_slice"}), frozenset({"reverse", "slice"}))

    rules = (*with_gradients(_strided, "x"), *with_gradients(_gathered, "x"), _reversed)
