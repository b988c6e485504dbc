"""The subcommand ``minigraph check``."""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
from pathlib import Path
from typing import Any

from minigraph.cli.commands import Command, Commands
from minigraph.errors import MissingFileError, NotFoundError, suggest
from minigraph.passes.base import Rewrite
from minigraph.rewrite.checking import check
from minigraph.support.atomic_files import check_writable, write_files


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file_and_pass", metavar="FILE:PASS", help="the Python file, and the name of the pass in it")
    parser.add_argument("--programs", type=int, default=500, metavar="N", help="number of programs (default: 500)")
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
    file, _, name = options.file_and_pass.partition(".py:")
    rewrite = _load(Path(f"{file.removesuffix('.py')}.py"), name)
    check_writable(options.output)
    found = check(rewrite, options.programs, options.seed)
    if found is None:
        print(f"{name}: {options.programs:,} programs, none of them broken")
        return 0
    write_files({Path(options.output): [found.to_python().encode()]})
    print(f"{found}\n\n{options.output} shows it: python {options.output}")
    return 1


def _load(file: Path, name: str) -> Any:
    """The pass of a name that a file defines."""
    if not file.is_file():
        raise MissingFileError(f"there is no file {file}", hint="Give FILE:PASS, such as passes.py:MyPass.")
    before = sys.path[:]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        known = runpy.run_path(str(file))
    finally:
        sys.path[:] = before
    if name not in known:
        passes = [
            each for each, value in known.items()
            if each != "_" and (isinstance(value, Rewrite) or getattr(value, "__module__", "") == "<run_path>")
        ]  # fmt: skip
        hint = suggest(name, passes) or f"It defines {', '.join(passes) or 'nothing'}."
        raise NotFoundError(f"{file} has no pass {name!r}", hint=hint)
    found = known[name]
    return found() if inspect.isclass(found) else found


COMMANDS: Commands = {"check": Command(_check, _add_options)}
