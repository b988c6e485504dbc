"""Commands of a Hadoop installation on files of HDFS, which both of fluid's clients run."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, TypeVar

from minigraph.errors import ExecutionError, FileAccessError, MissingFileError, warn
from minigraph.support.public import public

__all__: list[str] = []

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Listed(NamedTuple):
    """A line of the list that hadoop prints of a folder."""

    path: str
    is_folder: bool
    written: str
    """Day and time, which sort as text."""


@public
class HadoopFiles:
    """Files of HDFS, reached by running ``hadoop_home/bin/hadoop fs`` with the settings `configs`.

    As in fluid, methods that change something return whether they did; what hadoop said is in a warning then. Where a
    result could not be told from that of a success, such as an empty list, a failure is an error.

    Parameters
    ----------
    hadoop_home : str
        The folder that holds ``bin/hadoop``.
    configs : mapping
        Settings such as ``fs.default.name`` and ``hadoop.job.ugi``.

    Raises
    ------
    MissingFileError
        By the first command, if there is no such hadoop.
    ExecutionError
        If hadoop fails, as often as it is tried, and the result would not tell.
    """

    _PAUSE: ClassVar[float] = 0.0
    """Seconds before a failed command is tried again."""

    def __init__(self, hadoop_home: str, configs: Mapping[str, Any]) -> None:
        settings = [f"-D{name}={value}" for name, value in configs.items()]
        self.pre_commands = [f"{hadoop_home}/bin/hadoop", "fs", *settings]

    def is_exist(self, hdfs_path: str | None = None) -> bool:
        """Whether HDFS has the path."""
        return self._test("-e", hdfs_path)

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Whether the path is a folder of HDFS."""
        return self.is_exist(hdfs_path) and self._test("-d", hdfs_path)

    def delete(self, hdfs_path: str) -> bool:
        """Remove a file or folder; True also if there is none."""
        if not self.is_exist(hdfs_path):
            return True
        command = "-rmr" if self.is_dir(hdfs_path) else "-rm"
        return self._does(0, command, hdfs_path)

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Move a file or folder of HDFS; hadoop refuses one that is there already, whatever `overwrite` is."""
        return self._does(1, "-mv", hdfs_src_path, hdfs_dst_path)

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Make a folder on this machine, and those above it, unless it is there."""
        os.makedirs(local_path, exist_ok=True)

    def makedirs(self, hdfs_path: str) -> bool | None:
        """Make a folder on HDFS; None if it is there already."""
        return None if self.is_exist(hdfs_path) else self._does(1, "-mkdir", hdfs_path)

    def _listed(self, command: str, hdfs_path: str, retry_times: int) -> list[Listed]:
        """The list that hadoop prints of a folder; empty if there is none."""
        if not self.is_exist(hdfs_path):
            return []
        rows = [line.split() for line in self._run(retry_times, command, hdfs_path).splitlines()]
        return [Listed(row[7], row[0].startswith("d"), f"{row[5]} {row[6]}") for row in rows if len(row) == 8]

    def _test(self, what: str, hdfs_path: str | None) -> bool:
        return self._tried(1, "-test", what, hdfs_path).returncode == 0

    def _does(self, retry_times: int, *command: str | None) -> bool:
        return succeeds(lambda: self._run(retry_times, *command))

    def _run(self, retry_times: int, *command: str | None) -> str:
        """Run a command of hadoop, again if it fails, and return what it prints."""
        return self._tried(retry_times, *command).stdout.strip()

    def _tried(self, retry_times: int, *command: str | None) -> subprocess.CompletedProcess[str]:
        whole: list[Any] = [*self.pre_commands, *command]
        for attempt in range(retry_times + 1):
            if attempt:
                time.sleep(self._PAUSE)
            ended = _started(whole)
            _log.info("%s: status %d, %s", " ".join(whole), ended.returncode, ended.stderr.strip())
            if ended.returncode == 0 or (command[0] == "-test" and _is_no(ended)):
                return ended
        raise ExecutionError(
            f"hadoop fs {' '.join(map(str, command))} failed with status {ended.returncode}, {retry_times + 1} times",
            details=[f"command = {' '.join(whole)}", *ended.stderr.strip().splitlines()[-5:]],
            hint="Run this command in a shell, and mend what it says: the address, the user's rights, the path.",
        )


def _started(command: list[Any]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(
            f"there is no command {command[0]}", hint="Give HDFSClient as hadoop_home the folder that holds bin/hadoop."
        ) from None
    except OSError as error:
        raise FileAccessError(
            f"{command[0]} cannot be run: {error.strerror}", error.errno, hint="Make it a program that you may run."
        ) from None


def _is_no(ended: subprocess.CompletedProcess[str]) -> bool:
    """Whether a test has found no such path; hadoop says by the same status, with a message, that a test failed."""
    failed = re.search(r"^test: (?!.*(?:does not exist|No such file))", ended.stderr, re.MULTILINE)
    return ended.returncode == 1 and not failed


def succeeds(action: Callable[[], object]) -> bool:
    """Whether an action of hadoop succeeds; if not, a warning with what hadoop said."""
    try:
        action()
    except ExecutionError as error:
        warn(str(error))
        return False
    return True


def for_all(what: str, action: Callable[[T], object], items: Iterable[T], workers: int) -> None:
    """Do the action for all items, some at a time.

    Raises
    ------
    ExecutionError
        After all have been tried, if one failed.
    """

    def tried(item: T) -> str:
        try:
            action(item)
        except ExecutionError as error:
            return f"{item}: {error.message}: {(error.details or ('',))[-1]}"
        return ""

    with ThreadPoolExecutor(max(1, workers)) as pool:
        results = list(pool.map(tried, items))
    if failed := [each for each in results if each]:
        raise ExecutionError(
            f"{what}: {len(failed)} of {len(results)} files failed", details=failed,
            hint="Mend what hadoop says, and call it again for these files.",
        )  # fmt: skip
