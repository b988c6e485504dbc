"""The subcommands ``minigraph show`` and ``minigraph diff``: programs in files, printed and compared."""

from __future__ import annotations

import argparse
from pathlib import Path

from minigraph.cli.commands import Command, Commands
from minigraph.errors import DataError, MissingFileError, ParseError
from minigraph.io.inference_model import MODEL_FILENAME
from minigraph.io.program_reading import deserialize_program
from minigraph.ir import Program
from minigraph.ir.text.diff import diff
from minigraph.support.atomic_files import read_file

_WHAT = """A model is a file __model__ or NAME.pdmodel, as Paddle 1.8 and minigraph write it,
a folder with a file __model__, or the text of a program."""


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _WHAT
    parser.add_argument("model", metavar="MODEL", type=Path)


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _WHAT
    parser.add_argument("a", metavar="A", type=Path)
    parser.add_argument("b", metavar="B", type=Path)
    parser.add_argument("--context", type=int, default=3, metavar="N", help="lines around each difference (default: 3)")


def _show(options: argparse.Namespace) -> int:
    """Print the program of a saved model."""
    print(program_in(options.model))
    return 0


def _diff(options: argparse.Namespace) -> int:
    """Print the lines in which the programs of two saved models differ.

    The exit status is 1 if they differ.
    """
    found = diff(program_in(options.a), program_in(options.b), options.context)
    print(found or "The programs are equal.")
    return 1 if found else 0


def program_in(path: Path) -> Program:
    """The program in a file or a folder.

    Raises
    ------
    MissingFileError
        If there is none.
    DataError
        If the file is neither a description nor the text of a program.
    """
    candidates = [path / MODEL_FILENAME] if path.is_dir() else [path, Path(f"{path}.pdmodel")]
    found = next((each for each in candidates if each.is_file()), None)
    if found is None:
        raise MissingFileError(
            f"there is no model {path}", hint=f"Give a file, or a folder that has a file {MODEL_FILENAME}."
        )
    content = read_file(found, "the model")
    try:
        return deserialize_program(content)
    except DataError as error:
        try:
            return Program.parse(content.decode("utf-8"))
        except UnicodeDecodeError:
            raise error from None
        except ParseError as unread:
            raise DataError(
                f"{found} holds no program",
                details=[f"as a description: {error.message}", f"as a text: {unread.message}"],
            ) from None


COMMANDS: Commands = {"show": Command(_show, _add_show), "diff": Command(_diff, _add_diff)}
