"""The subcommand ``minigraph trace``."""

from __future__ import annotations

import argparse
import runpy
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from minigraph.cli.commands import Command, Commands
from minigraph.errors import MissingFileError
from minigraph.rewrite.tracing import trace
from minigraph.support.atomic_files import check_writable


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", metavar="SCRIPT", help="the Python file to run")
    parser.add_argument("-o", "--output", default="steps.html", metavar="FILE", help="the page (default: steps.html)")
    parser.add_argument(
        "--arguments", type=shlex.split, default=[], metavar="TEXT",
        help='arguments of the script: --arguments="--epochs 3"',
    )  # fmt: skip


def _trace(options: argparse.Namespace) -> int:
    """Run a script, and write each step of what rewrites its programs to a page.

    Steps are what passes, rules, append_backward, clips and optimizers do, and what
    executors do to their private copies of programs. The page is one HTML file that
    needs no other file and no network. If the script fails, the page has the steps
    until then.

    The exit status is that of the script.
    """
    script = Path(options.script)
    if not script.is_file():
        raise MissingFileError(f"there is no script {options.script}")
    check_writable(options.output)
    with trace() as steps:
        status = _run(script, options.arguments)
    steps.save(options.output)
    print(f"{options.output}: {steps.counted()}")
    return status


def _run(script: Path, arguments: Sequence[str]) -> int:
    """Run a script as Python does; returns its exit status."""
    before = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        traceback.print_exception(type(error), error, _from(script, error.__traceback__))
        return 1
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _from(script: Path, trace: TracebackType | None) -> TracebackType | None:
    """A traceback without what called the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename != str(script):
        trace = trace.tb_next
    return trace


COMMANDS: Commands = {"trace": Command(_trace, _add_options)}
