"""How arrays lie in memory, and the loops that go through their elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np


def address_in_memory(array: np.ndarray) -> int:
    """The address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def nested_loops(arrays: Sequence[np.ndarray]) -> tuple[int, list[tuple[int, tuple[int, ...]]]]:
    """Find two loops through as many of the last dimensions of arrays of one shape as two can go through.

    Returns the number of the other dimensions, and size and strides of each loop, the inner one first.
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    for axis in reversed(range(arrays[0].ndim)):
        size, strides = arrays[0].shape[axis], tuple(x.strides[axis] for x in arrays)
        if size == 1:
            continue
        if found and all(step == found[-1][0] * under for step, under in zip(strides, found[-1][1], strict=True)):
            found[-1] = found[-1][0] * size, found[-1][1]
        elif len(found) == 2:
            return axis + 1, found
        else:
            found.append((size, strides))
    still = (1, (0,) * len(arrays))
    return 0, [*found, *[still] * (2 - len(found))]


def adds_a_row(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the same vector is added to every row of a matrix, or of several."""
    used = [size for size, step in zip(y.shape, y.strides, strict=True) if step and size > 1]
    return (
        x.flags.c_contiguous
        and bool(used)
        and used == list(y.shape[-len(used) :])
        and prod(used) < x.size
        and _is_dense(y, used)
    )


def _is_dense(y: np.ndarray, used: Sequence[int]) -> bool:
    """Whether the elements of the last dimensions are neighbours in memory."""
    return all(y.strides[-1 - i] == prod(used[len(used) - i :]) * y.itemsize for i in range(len(used)))
