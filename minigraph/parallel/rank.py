"""``python -m minigraph.parallel.rank SCRIPT``, or ``-m MODULE``: run a script as one of the ranks of `launch`."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from minigraph.parallel.machine import machine
from minigraph.parallel.mpi import MpiRank
from minigraph.support.communicator import communicate_by

FOLDER = "MINIGRAPH_LAUNCH_FOLDER"
"""Environment variable with the folder in which ranks leave notes for the launcher."""
TIMEOUT = "MINIGRAPH_LAUNCH_TIMEOUT"
"""Environment variable with the seconds that a rank waits for others."""


_FORWARDING = 0.2
"""Seconds that MPI has to forward what a rank has written before it fails, which may else be lost."""


_PIECE = 1000
"""Maximum characters that are written at once: MPI may cut what a pipe does not take as a whole (4,096 bytes)."""
GOES_ON = "\x1e\x1f"
"""End of a line that is a part of a longer one, for the launcher, which joins the parts."""


class _Prefixed:
    """A stream that begins each line with the number of the rank."""

    def __init__(self, stream: Any, rank: int) -> None:
        self._stream, self._prefix = stream, f"[{rank}] "
        self._begun: list[str] = []
        """Text since the last end of a line."""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            has_lines = "\n" in text
            self._begun.append(text)
            if has_lines:
                *lines, rest = "".join(self._begun).split("\n")
                self._begun = [rest]
                for piece in self._pieces(lines):  # a call for each, so that lines of ranks do not mix
                    self._stream.write(piece)
                    self._stream.flush()
        return len(text)

    def _pieces(self, lines: Iterable[str]) -> Iterator[str]:
        """Whole lines together as long as they are short, and parts of long ones."""
        short = ""
        for line in lines:
            *parts, rest = [line[at : at + _PIECE] for at in range(0, len(line) or 1, _PIECE)]
            rest = f"{self._prefix}{rest}\n"
            if short and (parts or len(short) + len(rest) > _PIECE):
                yield short
                short = ""
            yield from (f"{self._prefix}{part}{GOES_ON}\n" for part in parts)
            short += rest
        if short:
            yield short

    def flush(self) -> None:
        self._stream.flush()

    def end(self) -> None:
        """Write a last line that has no end."""
        if any(self._begun):
            self.write("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main(arguments: list[str]) -> None:
    """Run the script and tell the launcher how it ended."""
    folder = Path(os.environ[FOLDER])
    communicator = MpiRank(float(os.environ[TIMEOUT]), folder)
    rank = communicator.rank
    _set_environment(rank, communicator.size, communicator.rank_on_machine)
    communicate_by(communicator)
    if rank != 0:
        _close_input()
    streams = [_Prefixed(sys.stdout, rank), _Prefixed(sys.stderr, rank)]
    sys.stdout, sys.stderr = streams
    machines = communicator.compare(machine())
    if rank == 0 and len(set(machines)) > 1:
        shown = [f"  rank {number}: {each}" for number, each in enumerate(machines)]
        print("ranks are not alike, so that results of exact programs may differ:", *shown, sep="\n", file=sys.stderr)
    is_module = arguments[0] == "-m"
    sys.argv = arguments[is_module:]
    sys.path.insert(0, os.getcwd() if is_module else str(Path(sys.argv[0]).resolve().parent))
    try:
        _run(sys.argv[0], is_module)
        communicator.end()
        (folder / f"rank-{rank}.end").touch()
    except BaseException as error:
        # The launcher shows it, without the lines of this file and of runpy.
        text = "".join(traceback.format_exception(error.with_traceback(_of_script(error))))
        # The launcher reads it as soon as any rank ends, maybe another one: it never finds a part.
        partial = folder / f"rank-{rank}.partial"
        try:
            partial.write_text(f"{time.time_ns()}\n{text}", encoding="utf-8", errors="backslashreplace")
            partial.replace(folder / f"rank-{rank}.error")
        except OSError:  # such as a full disk
            sys.stderr.write(text)
        for stream in streams:
            stream.end()
        time.sleep(_FORWARDING)
        communicator.abort()
    for stream in streams:
        stream.end()


def _close_input() -> None:
    """Let this rank read an empty standard input: MPICH gives the others than rank 0 one that never ends."""
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)


def _run(script: str, is_module: bool) -> None:
    """Run the script; `sys.exit()` without an error is an end like any other."""
    try:
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (0, None):
            raise


def _of_script(error: BaseException) -> types.TracebackType | None:
    """The part of an error's traceback that begins in the script, if any does."""
    found = error.__traceback__
    while found is not None and (
        found.tb_frame.f_code.co_filename == __file__ or "runpy" in found.tb_frame.f_code.co_filename
    ):
        found = found.tb_next
    # A script that is no Python, and a module that is missing, have no part of their own.
    return found if found is not None or isinstance(error, SyntaxError | ImportError) else error.__traceback__


def _set_environment(rank: int, size: int, gpu: int) -> None:
    """Set what fluid's launcher sets; the addresses only name the ranks."""
    os.environ.setdefault("FLAGS_selected_gpus", str(gpu))
    endpoints = [f"127.0.0.1:{6170 + number}" for number in range(size)]
    os.environ |= {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(size),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
