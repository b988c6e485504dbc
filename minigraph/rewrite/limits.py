"""A bound on the work of a pass, which may not end."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event, Lock, Thread, get_ident
from time import monotonic, sleep
from typing import Any, TypeVar

from minigraph.support.undo import JOURNAL, Journal

T = TypeVar("T")

EDITS = 10_000
EDITS_PER_OP = 200
"""Maximum changes that a pass makes, of a program without operators and for each operator; more means that it does not
end."""

_PATIENCE = 6
"""Maximum time that passes, in units of the time that a pass may work: it may wait, and other programs may run."""

_AGAIN = 0.05
"""Seconds until the exception is raised again: one that arrives in a finalizer is lost."""

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Endless(BaseException):
    """A pass is still at work; no `Exception`, which a pass might catch."""


class _Edits(Journal):
    """A journal of few changes."""

    def __init__(self, most: int) -> None:
        self._most = most

    def append(self, entry: Any) -> None:
        super().append(entry)
        if len(self) > self._most:
            raise Endless(f"it has changed the program {self._most:,} times")


def _work_of(thread: int) -> Callable[[], float]:
    """Return a function that gives the processor time of a thread since now; the time of day where there is no such."""
    clock: Callable[[], float] = monotonic
    with suppress(AttributeError, OSError):  # Windows has neither
        clock = partial(time.clock_gettime, time.pthread_getcpuclockid(thread))
    start = clock()
    return lambda: clock() - start


def bounded(act: Callable[[], T], seconds: float, edits: int) -> T:
    """Return what `act` returns.

    Raises
    ------
    Endless
        From `act`, when its seconds of work or its changes of programs exceed the limit.
    """
    thread, turn, is_over, is_late = ctypes.c_ulong(get_ident()), Lock(), Event(), Event()

    worked, begin = _work_of(get_ident()), monotonic()

    def interrupt() -> None:
        pause = seconds
        while not is_over.wait(pause):
            rest = min(seconds - worked(), _PATIENCE * seconds - (monotonic() - begin))
            if rest > 0 and not is_late.is_set():
                pause = max(rest, _AGAIN)
                continue
            with turn:
                if not is_over.is_set():
                    is_late.set()
                    _raise_in(thread, ctypes.py_object(Endless))
            pause = _AGAIN

    def stop() -> None:
        with turn:
            is_over.set()
        if is_late.is_set():
            # One may be on its way. To take it back would leave CPython looking for it: let it come here.
            with suppress(Endless):
                _raise_in(thread, ctypes.py_object(Endless))
                sleep(_AGAIN)

    before = JOURNAL.get()
    try:
        try:
            JOURNAL.set(_Edits(edits))
            Thread(target=interrupt, daemon=True).start()
            return act()
        finally:
            stop()
    except Endless as error:
        stop()  # it may have arrived in the call above
        said = error.args[0] if error.args else f"it has run for {seconds:g} s"
        raise Endless(said).with_traceback(error.__traceback__) from None
    finally:
        JOURNAL.set(before)
