"""Notes that ranks leave in a folder for the launcher and for each other: what each does, and where its script is."""

from __future__ import annotations

import faulthandler
import mmap
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

_LENGTH = 512
"""Bytes of a note."""
_ANSWER = 0.5
"""Maximum seconds that a process has to write where it is."""
_FRAMES = 3
"""Maximum number of calls of a script that are shown."""
_OUTERMOST = (" in _run_module_as_main\n", "  ...\n")
"""Ends of what a process writes, in pieces: the call that has started a rank, or a mark for what is left out."""
_NOTHING = "the start"
_PACKAGE = str(Path(__file__).resolve().parents[1])


class Note:
    """A file whose text outlives the process however it ends."""

    def __init__(self, folder: Path, rank: int) -> None:
        path = folder / f"rank-{rank}.doing"
        path.write_bytes(bytes(_LENGTH))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LENGTH)
        self.write(_NOTHING)

    def write(self, text: str) -> None:
        line = f"process {os.getpid()}, {text}"
        self._memory[:] = line.encode()[:_LENGTH].ljust(_LENGTH, b"\0")


def doing(folder: Path, rank: int) -> str:
    """The note of a rank: its process and its latest exchange."""
    file = folder / f"rank-{rank}.doing"
    return file.read_bytes().rstrip(b"\0").decode(errors="replace") if file.exists() else _NOTHING


def exchanges(note: str) -> int:
    """The number of exchanges that a rank has begun."""
    found = re.search(r"exchange (\d+):", note)
    return int(found[1]) if found else 0


def process_of(note: str) -> int | None:
    """The process of a rank; None if it has ended, or runs on another machine."""
    found = re.match(r"process (\d+),", note)
    try:
        is_rank = found and b"minigraph.parallel.rank" in Path(f"/proc/{found[1]}/cmdline").read_bytes()
    except OSError:
        return None
    return int(found[1]) if found and is_rank else None


def answer_where(folder: Path, rank: int) -> None:
    """Let this process write where its script is when another rank asks, whatever the script does then."""
    if hasattr(faulthandler, "register"):
        file = _stack(folder, rank).open("w", encoding="utf-8")
        faulthandler.register(signal.SIGUSR1, file, all_threads=False)


def where(folder: Path, rank: int) -> list[str]:
    """The latest calls of a rank's script, the innermost first; empty if the rank does not answer."""
    process, file = process_of(doing(folder, rank)), _stack(folder, rank)
    if process is None or not file.exists():
        return []
    before, end, text = file.stat().st_size, time.monotonic() + _ANSWER, ""
    with suppress(OSError):
        os.kill(process, signal.SIGUSR1)
    while not text.endswith(_OUTERMOST) and time.monotonic() < end:
        time.sleep(0.01)
        text = file.read_bytes()[before:].decode(errors="replace")
    calls = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', text, re.MULTILINE)
    own = [f"{path}:{line}, in {name}" for path, line, name in calls if not path.startswith((_PACKAGE, "<frozen"))]
    return own[:_FRAMES]


def _stack(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.stack"
