"""The command ``minigraph``: one module of `minigraph.cli` for each group of subcommands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from minigraph.cli.checking import add_command as add_check
from minigraph.cli.comparisons import add_commands, fail, message_of
from minigraph.cli.doctor import add_command as add_doctor
from minigraph.cli.launching import add_command as add_launch
from minigraph.cli.lessons import add_commands as add_lessons
from minigraph.cli.models import add_commands as add_models
from minigraph.cli.operator_reference import add_command as add_operators
from minigraph.cli.porting import add_command as add_port
from minigraph.cli.tracing import add_command as add_trace
from minigraph.errors import MinigraphError, suggest
from minigraph.support.interrupted_import import raise_again
from minigraph.version import __version__


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
        sys.stdout.flush()
    except SystemExit as end:  # argparse has printed the error
        return end.code if isinstance(end.code, int) else 1
    except MinigraphError as error:
        return fail(message_of(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as head, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end of the process
        return 1
    return status


class _Parser(argparse.ArgumentParser):
    """Say what is wrong and which option lists the others, without the usage that argparse prints first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n  {self.prog} --help lists the options.\n")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        # argparse would name the program, not the subcommand, and suggest nothing.
        command: argparse.ArgumentParser = options.parser
        known = [name for action in command._actions for name in action.option_strings]
        hint = suggest(unknown[0].partition("=")[0], known)
        command.error("\n  ".join(filter(None, [f"unrecognized arguments: {' '.join(unknown)}", hint])))
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="minigraph",
        description="A static computation-graph engine that shows what gradient clipping does to a training program.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"minigraph {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_commands(commands)
    add_doctor(commands)
    add_operators(commands)
    add_trace(commands)
    add_check(commands)
    add_launch(commands)
    add_lessons(commands)
    add_port(commands)
    add_models(commands)
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    return parser
