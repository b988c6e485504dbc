"""Feed staging: arrays go to a GPU from pinned memory, on a separate stream, while the previous run computes."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.kernels.cuda.launching import pinned
from minigraph.runtime.place import Place

_MOST_KINDS = 64
"""Maximum kinds of arrays (name, shape and dtype) whose memory is kept."""

_AHEAD = 2
"""Minimum free pieces of memory of a kind before one is reused: one feed may be sent while another is read."""


@dataclass(eq=False)
class _Staged:
    """Memory for one array that is fed.

    Attributes
    ----------
    host, array
        The pinned memory, and the memory of the device.
    sent, read
        Events: the array has been sent, and the device has read it for the last time.
    """

    host: Any
    array: Any
    sent: Any
    read: Any


class Staging:
    """Sends arrays to a place and keeps their memory for later arrays."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._cuda = place.xp.cuda
        self._stream = self._cuda.Stream(non_blocking=True)
        self._free: OrderedDict[Any, deque[_Staged]] = OrderedDict()
        self._lock = threading.Lock()

    def send(self, feeds: Mapping[str, np.ndarray[Any, Any]]) -> tuple[dict[str, Any], list[tuple[Any, _Staged]]]:
        """The arrays on the device, and what to hand to `done` when all that reads them was asked for."""
        current = self._cuda.get_current_stream()
        sent, used = {}, []
        for name, array in feeds.items():
            key = name, array.shape, array.dtype
            staged = self._take(key, array)
            staged.sent.synchronize()  # the previous contents have left the pinned memory, mostly long ago
            staged.host[...] = array
            self._stream.wait_event(staged.read)
            staged.array.set(staged.host, stream=self._stream)
            staged.sent.record(self._stream)
            current.wait_event(staged.sent)
            sent[name] = staged.array
            used.append((key, staged))
        return sent, used

    def done(self, used: list[tuple[Any, _Staged]]) -> None:
        """Free memory for reuse, as soon as the work queued so far has read it."""
        current = self._cuda.get_current_stream()
        with self._lock:
            for key, staged in used:
                staged.read.record(current)
                self._free.setdefault(key, deque()).append(staged)
                self._free.move_to_end(key)
            while len(self._free) > _MOST_KINDS:
                _, free = self._free.popitem(last=False)
                for staged in free:
                    staged.read.synchronize()

    def _take(self, key: Any, array: np.ndarray[Any, Any]) -> _Staged:
        with self._lock:
            free = self._free.get(key)
            if free and len(free) >= _AHEAD:
                return free.popleft()
        current = self._cuda.get_current_stream()
        staged = _Staged(
            pinned(self._place.xp, array), self._place.xp.empty(array.shape, array.dtype),
            self._cuda.Event(), self._cuda.Event(),
        )  # fmt: skip
        staged.sent.record(current)
        staged.read.record(current)  # an earlier user of this memory may still be at work
        return staged
