"""What is fed to a GPU, sent from pinned memory on a stream of its own while the run before may still compute."""

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
"""So many names, shapes and dtypes have room kept for them."""

_AHEAD = 2
"""One feed may be sent while another is still read."""


@dataclass(eq=False)
class _Room:
    """Memory for one array that is fed.

    Attributes
    ----------
    host, array
        The pinned memory, and the memory of the device.
    sent, read
        Events: when it has been sent, and when the device has read it for the last time.
    """

    host: Any
    array: Any
    sent: Any
    read: Any


class Staging:
    """Sends arrays to a place and keeps the memory for the next ones."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._cuda = place.xp.cuda
        self._stream = self._cuda.Stream(non_blocking=True)
        self._free: OrderedDict[Any, deque[_Room]] = OrderedDict()
        self._lock = threading.Lock()

    def send(self, feeds: Mapping[str, np.ndarray[Any, Any]]) -> tuple[dict[str, Any], list[tuple[Any, _Room]]]:
        """The arrays on the device, and what to hand to `done` when all that reads them was asked for."""
        current = self._cuda.get_current_stream()
        sent, used = {}, []
        for name, array in feeds.items():
            key = name, array.shape, array.dtype
            room = self._room(key, array)
            room.sent.synchronize()  # what was in the pinned memory has left it, as a rule long ago
            room.host[...] = array
            self._stream.wait_event(room.read)
            room.array.set(room.host, stream=self._stream)
            room.sent.record(self._stream)
            current.wait_event(room.sent)
            sent[name] = room.array
            used.append((key, room))
        return sent, used

    def done(self, used: list[tuple[Any, _Room]]) -> None:
        """The memory may be used again when the work asked for so far is finished."""
        current = self._cuda.get_current_stream()
        with self._lock:
            for key, room in used:
                room.read.record(current)
                self._free.setdefault(key, deque()).append(room)
                self._free.move_to_end(key)
            while len(self._free) > _MOST_KINDS:
                _, rooms = self._free.popitem(last=False)
                for room in rooms:
                    room.read.synchronize()

    def _room(self, key: Any, array: np.ndarray[Any, Any]) -> _Room:
        with self._lock:
            rooms = self._free.get(key)
            if rooms and len(rooms) >= _AHEAD:
                return rooms.popleft()
        current = self._cuda.get_current_stream()
        room = _Room(
            pinned(self._place.xp, array), self._place.xp.empty(array.shape, array.dtype),
            self._cuda.Event(), self._cuda.Event(),
        )  # fmt: skip
        room.sent.record(current)
        room.read.record(current)  # who had the memory before may still be at work
        return room
