"""The interface of a module of subcommands, and the printing of errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from minigraph.errors import MinigraphError


class Command(NamedTuple):
    """A subcommand."""

    run: Callable[[argparse.Namespace], int]
    """Runs it with its options, and returns the exit status; the docstring is its description."""
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None


Commands: TypeAlias = Mapping[str, Command]


def message_of(error: MinigraphError) -> str:
    """The text of `error` without the line of code that raised it, which is not the user's."""
    return "\n  ".join(filter(None, [error.message, *error.details, error.hint]))


def fail(message: str, status: int) -> int:
    """Print an error; returns the exit status."""
    print(f"minigraph: error: {message}", file=sys.stderr)
    return status
