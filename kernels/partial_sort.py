"""The order in which the C++ standard library's ``partial_sort`` leaves equal elements.

Fluid takes the largest elements of a row with that function, as GNU's library has it: the first k elements become a
heap with the smallest on top, each later element that is larger replaces the top, and the heap is sorted at the end.
Where all elements differ this is any sort. Of equal elements it is neither the first nor the last that comes first, and
recorded results hold indices.

References
----------
R. W. Floyd, Algorithm 245: Treesort, Communications of the ACM 7, 1964.
"""

from __future__ import annotations

from collections.abc import Sequence

Entry = tuple[float, int]
"""A value and where it stood."""


def largest(values: Sequence[float], k: int) -> list[int]:
    """Indices of the `k` largest of `values`, in descending order of the values; none of them is NaN.

    Examples
    --------
    >>> largest([2.0, 2.0, 1.0, 1.0], 3), largest([1.0, 1.0, 2.0, 2.0], 2)
    ([0, 1, 2], [3, 2])
    """
    heap: list[Entry] = [(value, place) for place, value in enumerate(values[:k])]
    for start in range((k - 2) // 2, -1, -1):
        _sift(heap, start, k, heap[start])
    for place in range(k, len(values)):
        if values[place] > heap[0][0]:
            _sift(heap, 0, k, (values[place], place))
    for last in range(k - 1, 0, -1):
        moved, heap[last] = heap[last], heap[0]
        _sift(heap, 0, last, moved)
    return [place for _, place in heap]


def _sift(heap: list[Entry], hole: int, size: int, entry: Entry) -> None:
    """Put `entry` into the heap of the first `size` elements, whose element at `hole` is free.

    The hole goes down to a leaf along the smaller children, and `entry` up from there.
    """
    top, child = hole, hole
    while child < (size - 1) // 2:
        child = 2 * (child + 1)
        if heap[child][0] > heap[child - 1][0]:
            child -= 1
        heap[hole] = heap[child]
        hole = child
    if size % 2 == 0 and child == (size - 2) // 2:
        child = 2 * child + 1
        heap[hole] = heap[child]
        hole = child
    while hole > top and heap[(hole - 1) // 2][0] > entry[0]:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = entry
