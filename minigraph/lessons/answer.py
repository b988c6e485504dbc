"""A student's file, called with data and answering with data, in a process of its own.

The grader never runs the student's code in its own process: it sends programs as text and reads programs as text, so
that nothing in the file can change how it is judged. ``python -m minigraph.lessons.answer FILE`` is that process.
"""

from __future__ import annotations

import errno
import faulthandler
import importlib
import json
import os
import random
import re
import sys
import tempfile
import tokenize
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from minigraph.errors import LessonError, MinigraphError, Site
from minigraph.ir import Program
from minigraph.ir.default_programs import program_guard
from minigraph.lessons.confinement import keep_inside
from minigraph.passes.base import Rewrite

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

WITHHELD = frozenset({"questions", "reference"})
"""Modules of the lessons that have their answers."""

OUT_OF_MEMORY = "the file needs more memory than allowed"

LARGEST_FILE = 64 << 20
"""Maximum bytes of a file that the student's code writes, what it prints included."""


class Answer:
    """Definitions of a student's file.

    Parameters
    ----------
    path : str
        The file; it is run as a module, once.

    Raises
    ------
    LessonError
        If the file cannot be run; here and later the message has the student's line.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._module = ModuleType("answer")
        self._module.__file__ = path
        self._passes: dict[str, Rewrite] = {}
        sys.modules["answer"] = self._module  # dataclasses look up the module of their class
        self._guarded(self._load)

    def _load(self) -> None:
        exec(compile(self._source(), self.path, "exec", dont_inherit=True), self._module.__dict__)

    def _source(self) -> str:
        try:
            with tokenize.open(self.path) as file:  # in the encoding that Python would find
                return file.read()
        except UnicodeDecodeError as error:
            hint = "Save it in UTF-8, or name its encoding in the first line, as in # coding: latin-1."
            raise LessonError(f"the file is not text in {error.encoding}: {error.reason}", hint=hint) from None

    def call(self, what: str, **arguments: Any) -> Any:
        """Answer a request of the grader: a method of this class by name, with plain data."""
        calls: dict[str, Callable[..., Any]] = {
            "value": self.value, "rewrite": self.rewrite, "build": self.build, "words": self.words,
        }  # fmt: skip
        return calls[what](**arguments)

    def words(self) -> list[str]:
        """Return the words of the file, among which are the operators that it is about."""
        return sorted(set(re.findall(r"\w+", self._source())))

    def value(self, name: str) -> Any:
        """Return a variable of the file as plain data."""
        return _plain(self._defined(name), name)

    def rewrite(self, name: str, program: str, roots: Sequence[str] | None) -> dict[str, Any]:
        """Apply the pass of this name to a program; return the program and what `apply` returned."""
        rewrite, parsed = self._pass(name), Program.parse(program)
        parsed.roots = None if roots is None else tuple(roots)
        changed = self._guarded(rewrite.apply, parsed)
        if not isinstance(changed, bool):
            raise LessonError(
                f"{name}.apply returned {changed!r:.60}",
                hint="Return True if the pass has changed the program, and False if not.",
            )
        return {"program": _text(parsed, name), "changed": changed}

    def build(self, name: str, program: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> dict[str, str]:
        """Call the function of this name on variables of a program; return the program with what it appended."""
        function, parsed = self._defined(name), Program.parse(program)
        block = parsed.global_block()
        if not callable(function):
            raise LessonError(f"{name} is {function!r:.60}", hint=f"Define a function: def {name}(...).")
        with program_guard(parsed, Program()):
            result = self._guarded(function, *[block.var(each) for each in inputs], **attrs)
        found = getattr(result, "name", None)
        if not isinstance(found, str) or block.find_var(found) is None:
            raise LessonError(f"{name} returned {result!r:.60}", hint="Return the variable with the result.")
        return {"program": _text(parsed, name), "result": found}

    def _defined(self, name: str) -> Any:
        found = getattr(self._module, name, None)
        if found is None:
            raise LessonError(f"the file defines no {name}", hint=f"Define {name}, as the lesson says.")
        return found

    def _pass(self, name: str) -> Rewrite:
        if name not in self._passes:
            found = self._defined(name)
            found = self._guarded(found) if isinstance(found, type) else found
            if not isinstance(found, Rewrite):
                raise LessonError(f"{name} is {found!r:.60}, which is no pass", hint="Make it a rule or a Pass.")
            self._passes[name] = found
        return self._passes[name]

    def _guarded(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Call the student's code; whatever it raises, even SystemExit, becomes a `LessonError` with its line."""
        try:
            return function(*args, **keywords)
        except BaseException as error:
            raise self._explained(error) from None

    def _explained(self, error: BaseException) -> LessonError:
        if isinstance(error, SystemExit):
            return LessonError("the file calls sys.exit", site=self._line(error), hint="Return instead.")
        if isinstance(error, MemoryError):
            return LessonError(OUT_OF_MEMORY, site=self._line(error))
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            said = f"the file prints or writes more than {LARGEST_FILE >> 20} MB"
            return LessonError(said, site=self._line(error), hint="Print less.")
        if isinstance(error, SyntaxError):
            site = Site(self.path, error.lineno or 1)
            return LessonError(f"the file is not Python: {error.msg}", site=site, hint="Look at this line, or before.")
        what = error.message if isinstance(error, MinigraphError) else f"{error}"
        details, hint = (error.details, error.hint) if isinstance(error, MinigraphError) else ((), "")
        kind = "" if isinstance(error, LessonError) else f"{type(error).__name__}: "
        return LessonError(f"{kind}{what}", details=details, site=self._line(error), hint=hint)

    def _line(self, error: BaseException) -> Site | None:
        """Return the last line of the student's file that the error went through."""
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.path]
        return Site(self.path, lines[-1] or 1) if lines else None


def _text(program: Program, name: str) -> str:
    try:
        return str(program)
    except Exception as error:
        raise LessonError(f"the program that {name} leaves cannot be printed: {error}") from None


def _plain(value: Any, name: str) -> Any:
    """Return a value as JSON has it: a tuple or set as a list."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each, f"{name}[{key!r}]") for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        parts = [_plain(each, name) for each in value]
        return sorted(parts, key=repr) if isinstance(value, set | frozenset) else parts
    raise LessonError(f"{name} is {value!r:.60}", hint="Give numbers, texts, or lists of these.")


def limit_memory(megabytes: int) -> bool:
    """Limit the memory of this process and the size of files it writes; returns whether the platform can."""
    try:
        assert resource is not None
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (AssertionError, ValueError, OSError):
        return False
    return True


_READS = frozenset({"open", "os.link", "os.rename"})
"""Audit events whose first argument is a file that is read, or gets another name by which it can be read."""

_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"})
"""Audit events of other programs that are started."""

_FORKS = frozenset({"os.fork", "os.forkpty"})
"""Audit events of a second process that would go on with the file."""


class SecondProcessError(LessonError, PermissionError):
    """The file of a student forks, or makes a lock for several processes; libraries go on without such a lock."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__("the file starts a second process", hint="Do the work in one process.")


def withhold_answers(path: str) -> None:
    """Let this process open no file with the answers of a lesson, but for the one that is graded, if it is such a file.

    Another program would be free to, so it starts none, and a fork would answer the grader a second time. A mistake by
    whoever copies is told. What goes past Python, as by ctypes, is not seen: this is no sandbox.
    """
    lessons, graded = Path(__file__).resolve().parent, os.path.realpath(path)

    def refuse(*_: Any, **__: Any) -> Any:
        raise LessonError("the file starts another program", hint="Do the work in the file itself.")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in _STARTS:
            refuse()
        if event in _FORKS:
            raise SecondProcessError
        if event not in _READS or not isinstance(args[0], str | bytes | os.PathLike):
            return
        found = Path(os.path.realpath(os.fsdecode(args[0])))
        # A file that is not there may be one that is named from another folder, by a descriptor.
        is_answer = lessons in found.parents or not found.exists()
        if found.name.partition(".")[0] in WITHHELD and is_answer and str(found) != graded:
            raise LessonError("the file reads the answers of a lesson", hint="Write the answer yourself.")

    with suppress(ImportError):  # what multiprocessing starts programs by raises no event
        module: Any = importlib.import_module("_posixsubprocess")
        module.fork_exec = refuse
    with suppress(ImportError):  # nor do its locks, without which it makes no pools and queues
        module = importlib.import_module("_multiprocessing")
        module.SemLock = type("SemLock", (module.SemLock,), {"__new__": _refuse_lock})
    sys.addaudithook(hook)


def _refuse_lock(*_: Any, **__: Any) -> Any:
    raise SecondProcessError


def serve(path: str, megabytes: int, requests: IO[str], replies: IO[str]) -> None:
    """Say that the process is ready, then answer requests, one line of JSON each; the first one loads the file."""
    print("ready", file=replies, flush=True)
    answer: Answer | None = None
    process = os.getpid()
    for line in requests:
        request = json.loads(line)
        # The stack of a call that does not end goes to stderr, where the grader finds the student's line.
        faulthandler.dump_traceback_later(request.pop("seconds"), exit=True)
        try:
            if answer is None:
                content: dict[str, Any] = {"value": limit_memory(megabytes)}
                withhold_answers(path)
                keep_inside([os.getcwd(), tempfile.gettempdir()])
                random.seed(0)  # the same file gets the same grade
                np.random.seed(0)
                answer = Answer(path)
            else:
                content = {"value": answer.call(**request)}
        except MemoryError:
            content = {"error": OUT_OF_MEMORY}
        except Exception as error:  # whatever the file has done to this process, it gets an answer
            content = {"error": str(error) if isinstance(error, MinigraphError) else f"{type(error).__name__}: {error}"}
        if os.getpid() != process:  # a fork that went past Python: one of the two answers
            os._exit(0)
        replies.write(json.dumps(content) + "\n")
        replies.flush()
        faulthandler.cancel_dump_traceback_later()


def main() -> None:
    """Serve the requests that come by stdin; what the student's code prints goes to stderr."""
    path, megabytes = sys.argv[1], int(sys.argv[2])
    requests, replies = (os.fdopen(os.dup(number), mode, encoding="utf-8") for number, mode in ((0, "r"), (1, "w")))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    # Modules beside the file are found, but one called random.py does not hide Python's. The current folder comes last.
    sys.path += [os.path.dirname(os.path.abspath(path)), sys.path.pop(0)]
    with suppress(BrokenPipeError):
        serve(path, megabytes, requests, replies)


if __name__ == "__main__":
    main()
