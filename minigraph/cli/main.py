"""The command ``minigraph``: one module of `minigraph.cli` for each group of subcommands."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from minigraph.cli.commands import Commands, fail, message_of
from minigraph.errors import MinigraphError, suggest
from minigraph.support.atomic_files import DISK_IS_FULL
from minigraph.support.interrupted_import import raise_again
from minigraph.version import __version__

_MODULES = {
    "compare": ("comparisons", "compare a program's gradients with and without clipping"),
    "train": ("comparisons", "compare training with and without clipping"),
    "doctor": ("doctor", "report the settings that affect speed on this machine"),
    "operators": ("operator_reference", "describe operators: slots, attributes, gradients"),
    "trace": ("tracing", "run a script, and write a page with each step of the rewriting of its programs"),
    "check": ("checking", "look for a program that a pass breaks"),
    "launch": ("launching", "run a script on several ranks"),
    "lessons": ("lessons", "list the lessons on rewriting, or copy one to work on"),
    "grade": ("lessons", "grade a solution of a lesson"),
    "port": (
        "porting",
        "list what scripts for fluid use that is missing or differs, and write them with their imports changed",
    ),
    "show": ("models", "print the program of a saved model"),
    "diff": ("models", "compare the programs of two saved models"),
}
"""The subcommands in the order of the help: module of `minigraph.cli`, which is loaded when it is used, and summary."""

_ROOM = "Free space on its disk, or write elsewhere: TMPDIR is the folder of temporary files."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (default: those of the process).

    Returns
    -------
    int
        0: done. 1: failed. 2: wrong option. 130: interrupted.
    """
    try:
        raise_again()
        options = _options(argv)
        status: int = options.run(options)
        if sys.stdout is not None:  # it is where it was closed before the start
            sys.stdout.flush()
    except SystemExit as end:  # argparse has printed the error
        return end.code if isinstance(end.code, int) else 1
    except MinigraphError as error:
        return fail(message_of(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as head, has read enough
        _print_no_more()
        return 1
    except OSError as error:
        is_for_files = "temporary directory" in str(error.strerror)  # as Python says when no disk has room for one
        if error.errno not in DISK_IS_FULL and not is_for_files:
            raise
        _print_no_more()
        what = error.filename or ("temporary files" if is_for_files else "the output")
        return fail(f"cannot write {what}: {error.strerror}\n  {_ROOM}", 1)
    return status


def _print_no_more() -> None:
    """Drop what could not be printed, which the end of the process would try again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Say what is wrong and which option lists the others, without the usage that argparse prints first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n  {self.prog} --help lists the options.\n")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    words = sys.argv[1:] if argv is None else argv
    options, unknown = _parser(words).parse_known_args(words)
    if unknown:
        # argparse would name the program, not the subcommand, and suggest nothing.
        command: argparse.ArgumentParser = options.parser
        known = [name for action in command._actions for name in action.option_strings]
        hint = suggest(unknown[0].partition("=")[0], known)
        command.error("\n  ".join(filter(None, [f"unrecognized arguments: {' '.join(unknown)}", hint])))
    return options


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command, and of the subcommand that `argv` names; those of the others have no options."""
    parser = _Parser(
        prog="minigraph",
        description="A static computation-graph engine that shows what gradient clipping does to a training program.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"minigraph {__version__}")
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, summary) in _MODULES.items():
        command = parsers.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        if name == named:
            known: Commands = import_module(f"minigraph.cli.{module}").COMMANDS
            command.description = inspect.getdoc(known[name].run)
            command.set_defaults(run=known[name].run, parser=command)
            known[name].add_options(command)
    return parser
