"""The command ``minigraph``: compare the gradients of a program with those of its clipped clones."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from minigraph.errors import DataError, MinigraphError, NotFoundError, suggest
from minigraph.version import __version__

if TYPE_CHECKING:
    from minigraph.clip import GradientClipBase
    from minigraph.comparison import Comparison
    from minigraph.place import Place
    from minigraph.reader import Reader

T = TypeVar("T")

DEFAULT_CLIPS = ("norm=2", "global_norm=1", "value=0.1")
MAX_SEED = 2**31 - 1
LONG_RUN = 50  # batches from which on a progress bar is worth its place
WIDTH = 100  # columns where there is no terminal to ask

DESCRIPTION = """\
Compare gradients with and without clipping.

The network 784-128-64-10 is built once and cloned for each clip. The unclipped
program and its clipped clones run on the same batches of handwritten digits,
from the same start values, and their gradients are compared by parameter.
"""

EPILOG = """\
clips:
  norm=C            scale each gradient down to an L2 norm of at most C
  global_norm=C     scale all gradients by one factor, down to a common norm of C
  value=C           limit each element to [-C, C]
  value=LOW:HIGH    limit each element to [LOW, HIGH]

examples:
  minigraph compare
  minigraph compare --clip norm=0.5 --clip norm=1 --batches 3 --no-diff
  minigraph compare --train 0.1 --batches 60 --plot norms.png --json norms.json
"""


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
        return _fail(_message(error), 1)
    except KeyboardInterrupt:
        return 130
    return status


def _fail(message: str, status: int) -> int:
    print(f"minigraph: error: {message}", file=sys.stderr)
    return status


# Options


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
    _add_compare(commands)
    return parser


def _add_compare(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="compare a program's gradients with those of its clipped clones",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=_compare)
    experiment = parser.add_argument_group("experiment")
    experiment.add_argument(
        "--clip", dest="clips", action="append", type=_checked(_clip), metavar="KIND=THRESHOLD",
        help=f"a clip to compare, see below; may be repeated (default: {', '.join(DEFAULT_CLIPS)})",
    )  # fmt: skip
    experiment.add_argument(
        "--data", choices=("digits", "mnist"), default="digits",
        help="the bundled digits in MNIST's form, or MNIST, which is downloaded if need be (default: digits)",
    )  # fmt: skip
    experiment.add_argument(
        "--batches", type=_checked(_whole_number), default=10, metavar="N",
        help="how many batches; the data are read again when they end (default: 10; an epoch of digits has 12)",
    )  # fmt: skip
    experiment.add_argument(
        "--batch-size", type=_checked(_whole_number), default=128, metavar="N", help="images in a batch (default: 128)"
    )
    experiment.add_argument(
        "--seed", type=_checked(_seed), default=1, metavar="N",
        help="of the start values and the shuffling; equal seeds, equal output (default: 1)",
    )  # fmt: skip
    experiment.add_argument(
        "--train", type=_checked(_learning_rate), metavar="RATE",
        help="move the parameters after each batch by SGD along the unclipped gradients (default: they stay)",
    )  # fmt: skip
    experiment.add_argument(
        "--place", type=_checked(_place), default="cpu", metavar="PLACE",
        help="cpu, cuda, or cuda:1 for the second GPU (default: cpu)",
    )  # fmt: skip
    output = parser.add_argument_group("output")
    # Not argparse.BooleanOptionalAction, whose help differs between versions of Python.
    output.add_argument(
        "--diff", action="store_true", default=True, help="print the operators that each clip inserts (the default)"
    )
    output.add_argument("--no-diff", dest="diff", action="store_false", help="leave them out")
    output.add_argument("--json", metavar="FILE", help="write all numbers, batch by batch, to this file")
    output.add_argument(
        "--plot", type=_checked(_plot_file), metavar="FILE.png", help="draw the norms to this file (.png, .svg or .pdf)"
    )
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """`parse` with its errors as argparse prints them."""

    def parse_option(text: str) -> T:
        try:
            return parse(text)
        except MinigraphError as error:
            raise argparse.ArgumentTypeError(_message(error)) from None

    return parse_option


def _message(error: MinigraphError) -> str:
    """What `error` says, without the line of code that raised it, which is not the user's."""
    return "\n  ".join(filter(None, [error.message, *error.details, error.hint]))


def _clip(text: str) -> GradientClipBase:
    from minigraph.comparison import parse_clip

    return parse_clip(text)


def _whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def _seed(text: str) -> int:
    number = _whole_number(text)
    if number > MAX_SEED:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_SEED}, got {text!r}")
    return number


def _learning_rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return number


def _place(text: str) -> Place:
    from minigraph.place import CPUPlace, CUDAPlace

    kind, colon, number = text.partition(":")
    if text == "cpu":
        return CPUPlace()
    if kind != "cuda" or (colon and not (number.isascii() and number.isdigit())):
        hint = suggest(kind, ["cpu", "cuda"]) or "The places are cpu, cuda and cuda:N."
        raise NotFoundError(f"unknown place {text!r}", hint=hint)
    place = CUDAPlace(int(number or 0))
    _ = place.xp  # a missing GPU or library shows here, before any work
    return place


def _plot_file(text: str) -> str:
    from minigraph.report import PLOT_SUFFIXES, check_plotting

    if os.path.splitext(text)[1].lower() not in PLOT_SUFFIXES:
        raise argparse.ArgumentTypeError(f"the name must end in {', '.join(PLOT_SUFFIXES)}, got {text!r}")
    check_plotting()
    return text


# compare


def _compare(options: argparse.Namespace) -> int:
    from minigraph.comparison import parse_clip
    from minigraph.report import replacing, write_json, write_plot

    clips = options.clips or [parse_clip(text) for text in DEFAULT_CLIPS]
    if len(set(clips)) < len(clips):
        return _fail("the same --clip is given twice", 2)
    if options.json is not None and options.json == options.plot:
        return _fail(f"--json and --plot name the same file, {options.json}", 2)
    with ExitStack() as files:
        try:  # before the work, whose results would be lost
            json_path = files.enter_context(replacing(options.json)) if options.json is not None else None
            plot_path = files.enter_context(replacing(options.plot)) if options.plot is not None else None
        except DataError as error:
            return _fail(_message(error), 2)
        comparison = _run(options, clips)
        if json_path:
            write_json(comparison, json_path, options.data)
        if plot_path:
            write_plot(comparison, plot_path, os.path.splitext(options.plot)[1][1:].lower())
        if not options.quiet:
            _print(comparison, options)
    return 0


def _run(options: argparse.Namespace, clips: Sequence[GradientClipBase]) -> Comparison:
    from minigraph.comparison import compare

    reader = _reader(options.data)
    with ExitStack() as stack:
        on_batch = None
        if options.batches >= LONG_RUN and not options.quiet and sys.stderr.isatty():
            on_batch = _progress(stack, options.batches)
        return compare(
            clips,
            reader=reader,
            batches=options.batches,
            batch_size=options.batch_size,
            seed=options.seed,
            place=options.place,
            learning_rate=options.train,
            on_batch=on_batch,
        )


def _reader(data: str) -> Reader[Any]:
    from minigraph.dataset import digits, mnist

    # Who asks for MNIST by name is not served other data in its place.
    return mnist.train(strict=True) if data == "mnist" else digits.train(28)


def _progress(stack: ExitStack, total: int) -> Callable[[], None]:
    """A progress bar on standard error, moved on by the function returned and gone when `stack` closes."""
    from rich.console import Console
    from rich.progress import Progress

    progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = progress.add_task("batches", total=total)
    return lambda: progress.advance(task)


def _print(comparison: Comparison, options: argparse.Namespace) -> None:
    from rich.console import Console

    from minigraph.report import print_report

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    print_report(comparison, console, options.data, options.diff)


if __name__ == "__main__":
    sys.exit(main())
