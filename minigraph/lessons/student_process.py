"""The process that runs a student's file, as the grader sees it: requests, replies, limits."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from minigraph.errors import LessonError, Site

MEGABYTES = 2048
"""Maximum memory of the student's process."""

SECONDS = 30.0
"""Maximum time of all calls of the student's code together."""

LONGEST_CALL = 6.0
"""Maximum seconds of one call, less than `check` waits: the message of this process has the student's line."""

LONGEST_START = 60.0
"""Maximum seconds for the process to import minigraph."""

LONGEST_REPLY = 16 << 20
"""Maximum characters of one reply."""

MOST_COPIED = 16 << 20
"""Maximum bytes of the files beside the student's that are copied."""

MOST_PRINTED = 2000
"""Maximum characters that are shown of what the student's code prints."""


class StudentProcess(AbstractContextManager["StudentProcess"]):
    """A process that runs `minigraph.lessons.answer` on a student's file.

    Raises
    ------
    LessonError
        From `start` and `call`: what the student's code raised, or which limit it exceeded.
    """

    def __init__(self, path: str, seconds: float = SECONDS, megabytes: int = MEGABYTES) -> None:
        self.path = os.path.abspath(path)
        self.is_memory_limited = False
        self._limit = self._left = seconds
        self._allowed = 0.0
        """Maximum seconds of the call that runs."""
        self._over: LessonError | None = None
        """The error by which the process has ended; later calls get it at once."""
        self._folder = tempfile.TemporaryDirectory(prefix="minigraph-lesson-")
        self._printed = Path(self._folder.name, "printed.txt")
        working, temporary = Path(self._folder.name, "files"), Path(self._folder.name, "temporary")
        copy_files(Path(self.path).parent, working)
        temporary.mkdir()
        self._replies: Queue[str] = Queue()
        # Compiled loops are kept in a folder of the user's, and compiling takes longer than a lesson's programs.
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "minigraph.lessons.answer", self.path, str(megabytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                cwd=working,
                env=environment() | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)) | {"MINIGRAPH_JIT": "off"},
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        Thread(target=self._read, daemon=True).start()

    def start(self) -> None:
        """Run the file, whose time counts from when the process has imported minigraph."""
        with suppress(Empty):
            if not self._replies.get(timeout=LONGEST_START):
                raise self._ended()
        self.is_memory_limited = self._request({}, self._left)

    def call(self, what: str, **arguments: Any) -> Any:
        """Call a method of `minigraph.lessons.answer.Answer` in the process."""
        return self._request({"what": what, **arguments}, min(self._left, LONGEST_CALL))

    def printed(self) -> str:
        """Return the beginning of what the student's code has printed."""
        with self._printed.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MOST_PRINTED + 1)
        return text if len(text) <= MOST_PRINTED else f"{text[:MOST_PRINTED]}\n..."

    def __exit__(self, *_: object) -> None:
        self._kill()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()
        with suppress(OSError):
            self._folder.cleanup()

    def _request(self, content: dict[str, Any], seconds: float) -> Any:
        if self._over is not None:
            raise self._over
        started, self._allowed = time.monotonic(), max(seconds, 0.1)
        line = json.dumps({**content, "seconds": self._allowed})
        assert self._process.stdin is not None
        with suppress(OSError):  # the process has ended, which the reply tells
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        try:
            reply = self._replies.get(timeout=self._allowed + 2)
        except Empty:  # not even the process's own timer could end it
            self._kill()
            self._over = self._timeout()
            raise self._over from None
        self._left -= time.monotonic() - started
        return self._read_reply(reply)

    def _read_reply(self, reply: str) -> Any:
        try:
            content = json.loads(reply)
            if "error" in content:
                # The process has another folder, from which the name of the file is longer.
                shown = min(os.path.relpath(self.path), self.path, key=len)
                raise LessonError(str(content["error"]).replace(self.path, shown))
            return content["value"]
        except (ValueError, TypeError, KeyError):
            pass
        self._kill()
        said = f"the process of the file gave no proper reply: {reply!r:.80}"
        self._over = LessonError(said, hint="Write to no file descriptors.") if reply else self._ended()
        raise self._over

    def _ended(self) -> LessonError:
        self._kill()
        if "Timeout (" in self._stack():
            return self._timeout()
        status = self._process.returncode
        if status < 0:
            return LessonError(
                f"the process of the file was ended by signal {-status}", hint="It may need less memory."
            )
        return LessonError(f"the file ended its process, with status {status}", hint="Do not call os._exit.")

    def _timeout(self) -> LessonError:
        limit = self._limit if self._allowed < LONGEST_CALL else self._allowed
        lines = re.findall(rf'File "{re.escape(self.path)}", line (\d+)', self._stack())
        return LessonError(
            f"the file needs more than {limit:g} s", site=Site(self.path, int(lines[0])) if lines else None,
            hint="Look for a loop that does not end, or work that is repeated for each operator.",
        )  # fmt: skip

    def _stack(self) -> str:
        """Return the end of what the process has written to stderr: its stack, if its timer ended it."""
        with self._printed.open("rb") as file:
            file.seek(max(0, self._printed.stat().st_size - 20_000))
            return file.read().decode("utf-8", "replace")

    def _kill(self) -> None:
        """End the process and its children, once: later its number may be another's."""
        if self._process.returncode is None:
            with suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, 9)
                self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        """Queue the replies; an empty one at the end."""
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            while reply := self._process.stdout.readline(LONGEST_REPLY):
                self._replies.put(reply)
        self._replies.put("")


def copy_files(source: Path, target: Path) -> None:
    """Copy the files of a folder to a new one, in which a student's code may read, write and delete.

    Links, files in folders and what is large are left out, and so is Python code, which is imported from its own place.
    """
    target.mkdir()
    left = MOST_COPIED
    for path in sorted(source.iterdir()):
        with suppress(OSError):
            if path.suffix != ".py" and path.is_file() and not path.is_symlink() and path.stat().st_size <= left:
                left -= path.stat().st_size
                shutil.copyfile(path, target / path.name)


def environment() -> dict[str, str]:
    """Return an environment in which the same file gives the same results, with this copy of minigraph."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8",
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
