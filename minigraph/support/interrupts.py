"""Make signals wait during changes that must be complete.

Python calls the handler of a signal between any two instructions of the main thread. An exception of the handler, such
as the KeyboardInterrupt of Ctrl-C, ends whatever was running. Between `hold` and `release`, signals that have a handler
in Python are only noted; `release` then calls their handlers. The time between is short: a run computes first, and then
changes the scope. If a run changes little, it keeps copies for an undo instead: copying some kilobytes takes less time
than the system calls of `hold` and `release`.

Only the main thread handles signals. In other threads, and within another `hold`, `hold` does nothing. Exceptions that
``PyThreadState_SetAsyncExc`` sets do not wait. A handler in C that comes before one in Python for the same signal, as
by ``faulthandler.register`` with ``chain=True``, is lost, as it is by ``signal.signal``.
"""

from __future__ import annotations

import os
import sys
import threading

# The functions of the module `signal` convert to enumerations, which takes ten times longer.
from _signal import getsignal, raise_signal, valid_signals  # type: ignore[import-not-found]
from _signal import signal as set_handler
from itertools import compress
from types import FrameType
from typing import Any, TypeAlias

_NUMBERS = sorted(map(int, valid_signals()))

_waiting: list[int] | None = None
"""Signals that have arrived since `hold`, in order; None when nothing is held."""

_handlers: dict[int, Any] = {}
"""Handlers that `_note` replaces, by the number of the signal."""

_main_thread = threading.main_thread().ident


def _in_forked_process() -> None:
    """Reset in a forked process: another thread may have forked while the main thread held signals."""
    global _waiting, _main_thread
    _waiting, _main_thread = None, threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_process)


def is_held() -> bool:
    """Whether signals wait now."""
    return _waiting is not None


def hold() -> None:
    """Make signals wait until `release`, which the outermost caller of `hold` must call."""
    global _waiting
    if _waiting is not None or threading.get_ident() != _main_thread:
        return
    try:
        _waiting = []
        for number in compress(_NUMBERS, map(getsignal, _NUMBERS)):  # only signals with a handler
            handler = getsignal(number)
            if callable(handler) and handler is not _note:
                _handlers[number] = handler
                set_handler(number, _note)
    except BaseException:
        release()
        raise


def release() -> None:
    """Let signals through again, and call the handlers of signals that have waited."""
    global _waiting
    if _waiting is None or threading.get_ident() != _main_thread:
        return
    arrived, _waiting = _waiting, None
    try:
        for number, handler in tuple(_handlers.items()):
            if getsignal(number) is _note:
                set_handler(number, handler)
    finally:
        if arrived:
            _call_handlers(arrived, sys._getframe(1))


Saved: TypeAlias = "list[tuple[Any, Any]]"
"""Arrays that are overwritten, each with a copy of its old contents."""


def put_back(saved: Saved) -> None:
    """Restore overwritten arrays."""
    for array, copy in saved:
        array[...] = copy


class deferred:
    """Inside, signals wait.

    Examples
    --------
    >>> import signal
    >>> try:
    ...     with deferred():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("done")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    done
    interrupted
    """

    def __enter__(self) -> None:
        self._was_held = is_held()
        hold()

    def __exit__(self, *exception: object) -> None:
        if not self._was_held:
            release()


def _note(number: int, frame: FrameType | None) -> None:
    """Note a signal in place of its handler."""
    if _waiting is not None:
        _waiting.append(number)
        return
    # Nothing is held: an interrupt ended `release` before it restored this handler.
    set_handler(number, _handlers[number])
    _handlers[number](number, frame)


def _call_handlers(numbers: list[int], frame: FrameType) -> None:
    """Call the handlers of some signals, each even if that of an earlier one raises."""
    first, *others = numbers
    try:
        handler = getsignal(first)
        if callable(handler):
            handler(first, frame)
        else:
            raise_signal(first)  # an earlier handler has replaced this one by a default action
    finally:
        if others:
            _call_handlers(others, frame)


def is_interrupt(error: BaseException) -> bool:
    """Whether `error` is not caused by the code that it ended: it is an exit, or was raised by a signal's handler.

    A handler is recognized by its arguments, one of which is the interrupted frame.
    """
    if not isinstance(error, Exception):
        return True
    frame, traceback = None, error.__traceback__
    while traceback is not None:
        arguments = [*traceback.tb_frame.f_locals.values()]
        arguments += [each for values in arguments if type(values) is tuple for each in values]
        if frame is not None and any(each is frame for each in arguments):
            return True
        frame, traceback = traceback.tb_frame, traceback.tb_next
    return False
