"""Ctrl-C while the command ``minigraph`` is imported ends the process as the signal does, without a traceback.

A program that imports minigraph keeps Python's own handler.
"""

from __future__ import annotations

import os.path
import signal
import sys
import threading
from itertools import pairwise
from typing import Any


def is_the_command() -> bool:
    if sys.argv[:1] == ["-m"]:  # which it is only until the module has been found
        return ("-m", "minigraph") in pairwise(sys.orig_argv)
    return os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0] == "minigraph"


def _replace_handler(old: Any, new: Any) -> None:
    is_main_thread = threading.current_thread() is threading.main_thread()
    if is_main_thread and signal.getsignal(signal.SIGINT) is old:  # what others have set stays
        signal.signal(signal.SIGINT, new)


def raise_again() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt`, now that there is someone to catch it."""
    _replace_handler(signal.SIG_DFL, signal.default_int_handler)


if is_the_command():
    _replace_handler(signal.default_int_handler, signal.SIG_DFL)
