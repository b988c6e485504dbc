"""Writing results into the buffers that a plan hands to a kernel."""

from __future__ import annotations

from typing import Any


def unshared(xp, buffer, *inputs) -> Any:
    """`buffer` if writing to it changes none of `inputs`, else None.

    A kernel asks before it writes one result while it still needs `inputs` for another.
    """
    if buffer is None or any(xp.may_share_memory(buffer, x) for x in inputs):
        return None
    return buffer


def deliver(xp, result, buffer) -> Any:
    """`result` in `buffer`, converted to its dtype and shape; `result` itself if there is none or it is in there."""
    if buffer is None or result is buffer:
        return result
    xp.copyto(buffer, result.reshape(buffer.shape), casting="same_kind")
    return buffer


def shaped(buffer, shape) -> Any:
    """`buffer` seen in `shape`, if there is one."""
    return None if buffer is None else buffer.reshape(shape)
