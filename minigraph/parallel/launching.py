"""Start the ranks of a script, and say which one failed and why."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from minigraph.errors import MissingExtraError, MissingFileError
from minigraph.parallel.machine import SHARED
from minigraph.parallel.notes import doing, exchanges, process_of
from minigraph.parallel.rank import FOLDER, GOES_ON, TIMEOUT


def launch(
    script: str, arguments: Sequence[str], ranks: int, timeout: float, threads: int | None = None,
    is_module: bool = False,
) -> int:  # fmt: skip
    """Run a script on `ranks` processes; return the exit status, 0 if every rank has ended well.

    `threads` is the number of BLAS threads of each rank; by default the ranks share the cores. With `is_module` the
    script is named as a module, as in ``python -m``.

    Raises
    ------
    MissingFileError
        If there is no such script.
    MissingExtraError
        If there is no MPI.
    """
    if not is_module and not Path(script).is_file():
        raise MissingFileError(f"there is no file {script}")
    command = [_find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "minigraph.parallel.rank"]
    command += [*["-m"] * is_module, script, *arguments]
    # A rank that is being ended may still write to it.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _signals_as_errors():
        process = subprocess.Popen(
            command,
            env=_environment(ranks, folder, timeout, threads),
            encoding="utf-8",
            errors="backslashreplace",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with ThreadPoolExecutor(2) as readers, _Watch(Path(folder), ranks) as watch:
            try:
                streams = (process.stdout, sys.stdout), (process.stderr, sys.stderr)
                shown = [readers.submit(_show, *each) for each in streams]
                # A rank that writes waits forever once nobody reads its output.
                for each in wait(shown, return_when=FIRST_EXCEPTION).done:
                    each.result()
                died = [each.result() for each in shown]
            except BaseException:  # such as Ctrl-C; the readers end when no rank is left
                _end(process, [doing(Path(folder), rank) for rank in range(ranks)])
                raise
        # A rank that calls os._exit(0) ends the others, and MPICH takes that for a good end.
        is_good = process.wait() == 0 and all((Path(folder) / f"rank-{rank}.end").exists() for rank in range(ranks))
        if not is_good:
            print(_story(Path(folder), ranks, watch.first_to_end(), died[0] or died[1]), file=sys.stderr)
    return int(not is_good)


@contextmanager
def _signals_as_errors() -> Iterator[None]:
    """Let signals that end this process raise `SystemExit`, so that it ends the ranks before."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    names = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if is_main and hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in names}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[str], notes: Sequence[str]) -> None:
    """End the launched process and all its ranks, even if they ignore SIGTERM.

    `notes` are those of the ranks.
    """
    process.terminate()
    try:
        process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
    for rank in map(process_of, notes):
        with suppress(OSError):  # it has ended
            if rank is not None:
                os.kill(rank, signal.SIGKILL)


class _Watch:
    """Note which ranks end first, where the system says so (Linux): MPICH ends the others, and may name one of them."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder, self._ranks = folder, ranks
        self._ended: list[int] = []
        """Ranks that have ended, in order."""
        self._by_themselves: set[int] = set()
        """Those of them that nobody has ended, as far as the system says how they ended."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Watch:
        if hasattr(os, "pidfd_open"):
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def first_to_end(self) -> list[int]:
        """The ranks of which one has ended before the end of its script, and so ended the others.

        It is one that nobody has ended, if that is known, and the one with the fewest exchanges: the others wait in the
        one that it has not begun. The order alone is not enough, because MPICH may end others while the system ends
        this one. Another rank may not have begun that exchange either when it is ended, or this one waited for it.
        Which rank it was cannot be told then, and all with the fewest exchanges are given, and the first to end.
        """
        early = [rank for rank in self._ended if not (self._folder / f"rank-{rank}.end").exists()]
        early = [rank for rank in early if rank in self._by_themselves] or early
        begun = {rank: exchanges(doing(self._folder, rank)) for rank in early}
        return [rank for rank in early if rank == early[0] or begun[rank] == min(begun.values())]

    def _watch(self) -> None:
        import select

        watched, missing = dict[int, tuple[int, int]](), set(range(self._ranks))
        # Linux keeps what is ready in a queue: epoll gives ranks that end between two looks in the order of their ends.
        with select.epoll() as queue:
            is_over = False
            while not is_over:
                is_over = self._is_over.is_set()  # and then look once more
                for rank in sorted(missing):
                    process = process_of(doing(self._folder, rank))
                    file = _open_process(process)
                    if process is not None and file is not None:
                        watched[file] = rank, process
                        queue.register(file, select.EPOLLIN)
                        missing.remove(rank)
                for file, _ in queue.poll(0 if is_over else _LOOK):
                    rank, process = watched.pop(file)
                    self._ended.append(rank)
                    if _has_ended_itself(process):
                        self._by_themselves.add(rank)
                    queue.unregister(file)
                    os.close(file)
        for file in watched:
            os.close(file)


def _open_process(process: int | None) -> int | None:
    """A file by which to wait for a process; None if it is not there, or on another machine."""
    try:
        return None if process is None else os.pidfd_open(process)
    except OSError:
        return None


def _has_ended_itself(process: int) -> bool:
    """Whether a process that has ended is known to have done so without a signal by which MPI ends ranks."""
    try:
        *_, status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").split()
    except (OSError, ValueError):  # what has started it knows already, and so the system has forgotten it
        return False
    return int(status) & 0x7F not in (signal.SIGTERM, signal.SIGKILL)


_LOOK = 0.05
"""Seconds between looks for new ranks, and for the end of all."""

_SECONDS_TO_END = 3.0
"""Maximum seconds that MPI has to end the ranks."""

_THREADS = ("OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

_BANNER = re.compile(r"={10,}|=   |YOUR APPLICATION TERM|This typically refers|Please see the FAQ|Abort\(\d+\) on node")
"""Beginnings of lines in which MPICH says that a rank has ended."""


def _show(lines: Any, stream: Any) -> int | None:
    """Write what the ranks write; return the process that MPICH says has died."""
    died, parts = None, defaultdict[str, list[str]](list)
    for line in lines:
        found = re.match(r"=   PID (\d+) RUNNING", line)
        died = int(found[1]) if found else died
        prefix, _, text = line.partition("] ")
        if line.endswith(f"{GOES_ON}\n"):
            parts[prefix].append(text.removesuffix(f"{GOES_ON}\n"))
        elif not _BANNER.match(line):
            _write(stream, f"{prefix}] {''.join(parts.pop(prefix))}{text}" if prefix in parts else line)
    for prefix, begun in parts.items():  # of ranks that have died
        _write(stream, f"{prefix}] {''.join(begun)}\n")
    return died


def _write(stream: Any, line: str) -> None:
    """Write a line, with question marks for what the stream cannot show; None is a stream that was closed before."""
    if stream is None:
        return
    try:
        stream.write(line)
    except UnicodeEncodeError:
        stream.write(line.encode(stream.encoding, "replace").decode(stream.encoding))
    stream.flush()


def _find_mpiexec() -> str:
    """The program that starts ranks: the one that is installed beside Python, or else the system's."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        raise MissingExtraError(
            "several ranks need mpi4py and an MPI library", hint="Install them: pip install 'minigraph[mpi]'."
        )
    return found


def _environment(ranks: int, folder: str, timeout: float, threads: int | None) -> dict[str, str]:
    """The environment of the ranks."""
    share = str(max(1, (os.cpu_count() or 1) // ranks))
    chosen = {
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI counts cores as places
        **os.environ,
        FOLDER: folder,
        TIMEOUT: str(timeout),
    }
    if threads is not None:
        chosen |= dict.fromkeys(_THREADS, str(threads))
    elif not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys():
        chosen |= {**dict.fromkeys(_THREADS, share), SHARED: "1"}
    # The ranks import the package that the launcher is part of, installed or not.
    root = str(Path(__file__).resolve().parents[2])
    chosen["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return chosen


def _story(folder: Path, ranks: int, first: Sequence[int], died: int | None) -> str:
    """Text that says what went wrong first, and where every rank was.

    One of the ranks `first` has ended the others, if that is known; MPI says that the process `died` has died.
    """
    failed = sorted((_error(file), rank) for rank in range(ranks) if (file := folder / f"rank-{rank}.error").exists())
    notes = [doing(folder, rank) for rank in range(ranks)]
    if failed:
        (_, text), rank = failed[0]
        lines = [f"rank {rank} failed first:", text.rstrip()]
        if "relative import with no known parent package" in text:
            lines.append("Start a module of a package as python -m does: minigraph launch -n N -m PACKAGE.MODULE.")
    else:
        dead = first or [rank for rank, text in enumerate(notes) if text.startswith(f"process {died},")]
        who = " or ".join(f"rank {rank}" for rank in dead) or "a rank"
        lines = [f"{who} ended before its script did, without an error: by a signal, os._exit or for lack of memory"]
    return "\n".join(
        [*lines, "The ranks were last at:", *(f"  rank {rank}: {text}" for rank, text in enumerate(notes))]
    )


def _error(file: Path) -> tuple[int, str]:
    """Time of a rank's failure, and its traceback."""
    when, _, text = file.read_text(encoding="utf-8").partition("\n")
    return int(when), text
