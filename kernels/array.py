"""Arrays of tensors: lists, with None at indices that were never written. Writing copies the list."""

from __future__ import annotations

import numpy as np

from minigraph.errors import OpError
from minigraph.kernels.reduce import sum
from minigraph.kernels.registry import kernel
from minigraph.kernels.tensor import fill_zeros_like


@kernel("empty_array")
def empty_array(xp):
    return []


@kernel("write_to_array")
def write_to_array(xp, x, i, array, *, add):
    at = _index(i)
    longer = [*(array or ()), *[None] * (at + 1 - len(array or ()))]
    if add and longer[at] is not None:
        longer[at] = sum(xp, [longer[at], x])
    else:
        longer[at] = x.copy()  # the list may outlive the memory of x, which a plan reuses
    return longer


@kernel("read_from_array")
def read_from_array(xp, array, i, like, *, wanted):
    at = _index(i)
    found = array[at] if array is not None and at < len(array) else None
    if found is None:
        if not wanted[0]:
            return None, array
        if like is None:
            written = [n for n, element in enumerate(array or ()) if element is not None]
            raise OpError(
                f"nothing was written to the array at {at}", details=[f"written are {written or 'no elements'}"],
                hint="Write to an index before it is read.",
            )  # fmt: skip
        return fill_zeros_like(xp, like), array
    return found.copy(), [*array[:at], None, *array[at + 1 :]]


@kernel("lod_array_length")
def lod_array_length(xp, array):
    return xp.array([len(array)], np.int64)


@kernel("tensor_array_to_tensor")
def tensor_array_to_tensor(xp, array, *, axis, use_stack):
    elements = _all(array)
    join = xp.stack if use_stack else xp.concatenate
    at = axis % (elements[0].ndim + use_stack)
    lengths = [each.shape[at] if at < each.ndim else 1 for each in elements]
    return join(elements, axis), xp.array(lengths, np.int32)


@kernel("tensor_array_to_tensor_grad")
def tensor_array_to_tensor_grad(xp, array, d_out, *, axis, use_stack):
    elements = _all(array)
    if use_stack:
        return [xp.take(d_out, n, axis) for n in range(len(elements))]
    ends = np.cumsum([each.shape[axis] for each in elements])[:-1]
    return [part.copy() for part in xp.split(d_out, [int(end) for end in ends], axis)]


def _all(array):
    missing = [n for n, element in enumerate(array) if element is None]
    if missing or not array:
        raise OpError(f"nothing was written to the array at {missing}" if missing else "the array has no element")
    return array


def _index(i) -> int:
    at = int(i.item())
    if at < 0:
        raise OpError(f"an index of an array must be at least 0, got {at}")
    return at
