"""The subcommand ``minigraph check``."""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from minigraph.cli.commands import WHOLE_NUMBER, Command, Commands
from minigraph.errors import MissingFileError, NotFoundError, ProgramError, suggest
from minigraph.passes.base import Rewrite
from minigraph.rewrite.checking import check
from minigraph.support.atomic_files import check_writable, write_files


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file_and_pass", metavar="FILE:PASS", help="the Python file, and the name of the pass in it")
    parser.add_argument(
        "--programs", type=WHOLE_NUMBER, default=500, metavar="N", help="number of programs (default: 500)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="other seeds give other programs (default: 0)")
    parser.add_argument(
        "-o", "--output", default="counterexample.py", metavar="FILE",
        help="the script that shows what is wrong (default: counterexample.py)",
    )  # fmt: skip


def _check(options: argparse.Namespace) -> int:
    """Apply a pass to random programs, and look for one that it breaks.

    PASS is a rule, an object with a method apply, a class of such objects that takes no
    arguments, or a function that changes a program in place and says whether it did.
    What is found is made as small as possible, and printed, and a script is written
    that shows it.

    The exit status is 1 if the pass breaks a program.
    """
    text = options.file_and_pass
    file, _, name = (text, "", "") if text.endswith(".py") else text.rpartition(":")
    rewrite = _load(Path(file), name)
    check_writable(options.output)
    with warnings.catch_warnings(record=True) as said:
        found = check(rewrite, options.programs, options.seed)
    if found is None:
        print(f"{name}: {options.programs:,} programs, none of them broken")
    for each in said:
        print(each.message, file=sys.stderr)
    if found is None:
        return 0
    write_files({Path(options.output): [found.to_python().encode()]})
    print(f"{found}\n\n{options.output} shows it: python {options.output}")
    return 1


def _load(file: Path, name: str) -> Any:
    """The pass of a name that a file defines."""
    if not file.is_file():
        raise MissingFileError(f"there is no file {file}", hint="Give FILE:PASS, such as passes.py:MyPass.")
    known = _run(file)
    if name not in known:
        passes = [
            each for each, value in known.items()
            if each != "_" and (isinstance(value, Rewrite) or getattr(value, "__module__", "") == "<run_path>")
        ]  # fmt: skip
        hint = suggest(name, passes) or f"It defines {', '.join(passes) or 'nothing'}."
        raise NotFoundError(f"{file} has no pass {name!r}" if name else f"say which pass of {file}", hint=hint)
    found = known[name]
    if not inspect.isclass(found):
        return found
    try:
        return found()
    except Exception as error:
        raise ProgramError(
            f"{name}() of {file} fails with {_told(error)}",
            hint=f"Give the name of an object instead: my_pass = {name}(...)",
        ) from error


def _run(file: Path) -> dict[str, Any]:
    """The names that a file defines."""
    before = sys.path[:]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        return runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(file) else (lines or [None])[-1]
        where = "" if line is None else f" in line {line}"
        raise ProgramError(
            f"{file} fails{where} with {_told(error)}", hint=f"Mend it: python {file} runs it."
        ) from error
    finally:
        sys.path[:] = before


def _told(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


COMMANDS: Commands = {"check": Command(_check, _add_options)}
