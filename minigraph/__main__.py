"""The command ``minigraph``; what its subcommands do is in `minigraph.comparison.command` and `minigraph.doctor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from minigraph.comparison.command import add_commands, fail, message_of
from minigraph.doctor import add_command as add_doctor
from minigraph.errors import MinigraphError
from minigraph.operator_reference import add_command as add_operators
from minigraph.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (default: those of the process).

    Returns
    -------
    int
        0: done. 1: failed. 2: an option makes no sense or asks for what is not there. 130: interrupted.
    """
    try:
        options = _parser().parse_args(argv)
        status: int = options.run(options)
    except SystemExit as end:  # argparse has printed all there is to say
        return end.code if isinstance(end.code, int) else 1
    except MinigraphError as error:
        return fail(message_of(error), 1)
    except KeyboardInterrupt:
        return 130
    return status


class _Parser(argparse.ArgumentParser):
    """Says what is wrong without repeating the usage in front of it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


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
    return parser


if __name__ == "__main__":
    sys.exit(main())
