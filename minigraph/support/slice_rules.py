"""Elements that a slice takes, for inference, kernels and subscripts alike."""

from __future__ import annotations

from minigraph.types import require

TO_THE_END = 10_000_000
"""Fluid's number for the end of a slice that has none."""


def span(length: int, start: int, end: int) -> slice:
    """The elements from `start` up to but not including `end`, both counted from the back where they are negative.

    What lies outside of the dimension is left out.

    Raises
    ------
    OpError
        If nothing is left, as in fluid.

    Examples
    --------
    >>> span(5, -3, 10), span(5, -9, -4)
    (slice(2, 5, None), slice(0, 1, None))
    """
    first = max(_from_the_front(start, length), 0)
    last = min(_from_the_front(end, length), length)
    require(first < last, f"there is nothing between {start} and {end} in a dimension of {length} elements")
    return slice(first, last)


def strided_span(length: int, start: int, end: int, stride: int) -> slice:
    """The elements that ``strided_slice`` takes from `start` towards `end`.

    With a negative `stride` its opposite takes the same elements, beginning right after `end`, in reverse order. This
    is fluid's rule; Python's agrees only for a `stride` of -1 and for some distances. An `end` of -1 then is the
    place before the first element.

    Raises
    ------
    OpError
        If `stride` is 0 or there are no such elements, as in fluid.

    Examples
    --------
    >>> list(range(6))[strided_span(6, 1, 10, 2)], list(range(6))[strided_span(6, 4, 0, -2)]
    ([1, 3, 5], [3, 1])
    >>> list(range(6))[strided_span(6, 5, -1, -1)]
    [5, 4, 3, 2, 1, 0]
    """
    require(stride != 0, "a stride must not be 0")
    first = _from_the_front(start, length)
    last = -1 if stride < 0 and end == -1 else _from_the_front(end, length)
    low, high = (first, last) if stride > 0 else (last + 1, first + 1)
    low, high = max(low, 0), min(high, length)
    require(
        low < high, f"there is nothing from {start} to {end} by {stride} in a dimension of {length} elements",
        hint="" if end >= 0 or stride > 0 else "-1 is the place before the first element, others count from the back.",
    )  # fmt: skip
    if stride > 0:
        return slice(low, high, stride)
    top = low + (high - low - 1) // -stride * -stride
    return slice(top, low - 1 if low else None, stride)


def _from_the_front(index: int, length: int) -> int:
    return index + length if index < 0 else index


def count(part: slice, length: int) -> int:
    """Number of elements that `part` takes of `length`."""
    return len(range(*part.indices(length)))
