"""The subcommand ``minigraph launch``."""

from __future__ import annotations

import argparse

from minigraph.cli.commands import Command, Commands
from minigraph.parallel.launching import launch


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--ranks", type=int, required=True, metavar="N", help="number of ranks")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds that a rank waits for others (default: 600)"
    )
    parser.add_argument(
        "--threads", type=int, metavar="T", help="BLAS threads of each rank (default: the ranks share the cores)"
    )
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module, as for python -m")
    parser.add_argument("script", metavar="SCRIPT", help="the Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")


def _launch(options: argparse.Namespace) -> int:
    """Run a script as N processes, which exchange arrays by MPI.

    Each rank is the script with the environment of fluid's launcher: PADDLE_TRAINER_ID,
    PADDLE_TRAINERS_NUM and so on; minigraph.parallel.rank() and size() say the same.
    Lines that ranks print begin with their number. When one rank fails all end, and its
    error is the one that is shown. The cores are divided among the ranks, unless --threads
    or OPENBLAS_NUM_THREADS says otherwise.

    The exit status is 1 if a rank failed.
    """
    if options.ranks < 1:
        options.parser.error(f"argument -n/--ranks: must be at least 1, got {options.ranks}")
    if options.threads is not None and options.threads < 1:
        options.parser.error(f"argument --threads: must be at least 1, got {options.threads}")
    return launch(options.script, options.arguments, options.ranks, options.timeout, options.threads, options.module)


COMMANDS: Commands = {"launch": Command(_launch, _add_options)}
