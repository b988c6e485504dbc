"""A progress bar, on standard error or in a notebook, for runs that take long."""

from __future__ import annotations

import math
import sys
import time
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

PATIENCE: Final = 2.0
"""Seconds after which a run counts as long."""

REDRAWN_AFTER: Final = 0.1
"""Minimum seconds between two pictures of a bar in a notebook."""


class _Bar(Protocol):
    def draw(self, done: int, total: int | None) -> None:
        """Show how many batches of how many are done."""

    def remove(self) -> None: ...


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Count batches; show a bar once the run takes long, and remove it at the end.

    Parameters
    ----------
    total : int, optional
        How many batches there will be, where that is known.
    shown : bool, optional
        True: from the first batch on. False: never. Default: after `PATIENCE` seconds, in a terminal or a notebook.
    """

    def __init__(self, total: int | None, shown: bool | None = None) -> None:
        self._total = total
        self._done = 0
        self._bar: _Bar | None = None
        is_watched = sys.stderr.isatty() or _display() is not None
        patience = PATIENCE if shown is None and is_watched else 0.0 if shown else math.inf
        self._due = time.monotonic() + patience

    def expect(self, total: int) -> None:
        """Set the total number of batches."""
        self._total = total

    def advance(self) -> None:
        """Count one batch."""
        self._done += 1
        if self._bar is None and time.monotonic() >= self._due:
            display = _display()
            self._bar = _TerminalBar() if display is None else _NotebookBar(display)
        if self._bar is not None:
            self._bar.draw(self._done, self._total)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.remove()


class _TerminalBar:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True, force_jupyter=False), transient=True)
        self._progress.start()
        self._task = self._progress.add_task("batches")

    def draw(self, done: int, total: int | None) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def remove(self) -> None:
        self._progress.stop()


class _NotebookBar:
    """The element that HTML has for it: rich needs ipywidgets, which few notebooks have."""

    def __init__(self, display: Any) -> None:
        self._handle = display({"text/plain": ""}, raw=True, display_id=True)
        self._due = 0.0

    def draw(self, done: int, total: int | None) -> None:
        if time.monotonic() < self._due and done != total:
            return  # each picture is a message to the browser
        self._due = time.monotonic() + REDRAWN_AFTER
        extent = "" if total is None else f' value="{done}" max="{total}"'
        said = f"{done:,} batches" if total is None else f"{done:,} of {total:,} batches"
        self._show(f'<progress{extent} aria-label="Progress"></progress> {said}', said)

    def remove(self) -> None:
        self._show("", "")

    def _show(self, html: str, text: str) -> None:
        self._handle.update({"text/html": html, "text/plain": text}, raw=True)


def _display() -> Any:
    """The function that shows a value in the notebook; None outside of one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.modules["IPython"].display.display if hasattr(shell, "kernel") else None
