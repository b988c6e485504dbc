"""The interface of a module of subcommands, and the printing of errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias, TypeVar

from minigraph.errors import MinigraphError

N = TypeVar("N", int, float)


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


def number_option(convert: Callable[[str], N], is_right: Callable[[N], bool], what: str) -> Callable[[str], N]:
    """A function that reads a number of an option."""

    def parse(text: str) -> N:
        with suppress(ValueError):
            if is_right(number := convert(text)):
                return number
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}")

    return parse


WHOLE_NUMBER: Final = number_option(int, lambda number: number >= 1, "a whole number of at least 1")
