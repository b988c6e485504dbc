"""A progress bar on standard error, for runs that take long."""

from __future__ import annotations

import math
import sys
import time
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, Final

PATIENCE: Final = 2.0
"""Seconds after which a run counts as long."""


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Count batches; show a bar once the run takes long, and remove it at the end.

    Parameters
    ----------
    total : int, optional
        How many batches there will be, where that is known.
    shown : bool, optional
        True: from the first batch on. False: never. Default: after `PATIENCE` seconds, if standard error is a terminal.
    """

    def __init__(self, total: int | None, shown: bool | None = None) -> None:
        self._total = total
        self._done = 0
        self._bar: Any = None
        self._task: Any = None
        patience = PATIENCE if shown is None and sys.stderr.isatty() else 0.0 if shown else math.inf
        self._due = time.monotonic() + patience

    def expect(self, total: int) -> None:
        """Set the total number of batches."""
        self._total = total

    def advance(self) -> None:
        """Count one batch."""
        self._done += 1
        if self._bar is None and time.monotonic() >= self._due:
            self._show()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, total=self._total)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        # In a notebook rich draws with ipywidgets, and warns where they are not installed.
        in_notebook = None if find_spec("ipywidgets") else False
        self._bar = Progress(console=Console(stderr=True, force_jupyter=in_notebook), transient=True)
        self._bar.start()
        self._task = self._bar.add_task("batches", total=self._total)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
