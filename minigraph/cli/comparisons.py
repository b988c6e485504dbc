"""The subcommands ``minigraph compare`` and ``minigraph train``: a classifier of digits under several clips."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Final, TypeVar

from minigraph.cli.commands import WHOLE_NUMBER, Command, Commands, fail, message_of, number_option
from minigraph.clip import GradientClipBase
from minigraph.comparison.clip_text import clip_text, parse_clip
from minigraph.comparison.digits import Batches, build_network
from minigraph.comparison.gradients import compare_gradients
from minigraph.comparison.plots import PLOT_SUFFIXES, check_plotting
from minigraph.comparison.report import Interrupted, Report
from minigraph.comparison.training import compare_training
from minigraph.dataset import digits, mnist
from minigraph.errors import DataError, MinigraphError, NotFoundError, suggest
from minigraph.optimizer import AdamOptimizer, MomentumOptimizer, Optimizer, SGDOptimizer
from minigraph.reader import Reader
from minigraph.runtime.place import CPUPlace, CUDAPlace, Place
from minigraph.support.atomic_files import check_writable
from minigraph.support.blas import one_thread

T = TypeVar("T")

DEFAULT_CLIPS: Final = ("norm=2", "global_norm=1", "value=0.1")
DEFAULT_SEEDS: Final = (1, 2, 3)
DEFAULT_RATES: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Learning rates below and above the best one of each default clip."""

SAVERS: Final = {"json": "save_json", "csv": "save_csv", "plot": "plot", "html": "save_html"}
"""Methods of a report by the option that names the file."""

UNCLIPPED: Final = "unclipped"
OPTIMIZERS: Final[dict[str, Callable[[float], Optimizer]]] = {
    "sgd": SGDOptimizer,
    "momentum": partial(MomentumOptimizer, momentum=0.9),
    "adam": AdamOptimizer,
}
MAX_SEED: Final = 2**31 - 1
EVALUATION_BATCH: Final = 500

CLIPS: Final = """\
clips:
  norm=C            scale each gradient down to an L2 norm of at most C
  global_norm=C     scale all gradients by one factor, down to a common norm of C
  value=C           limit each element to [-C, C]
  value=LOW:HIGH    limit each element to [LOW, HIGH]
  CLASS(...)        any strategy of minigraph.clip, as a program's text has it:
                    "GradientClipByNorm(clip_norm=2.0)"
"""

COMPARE_EXAMPLES: Final = """
examples:
  minigraph compare
  minigraph compare --clip norm=0.5 --clip norm=1 --batches 3 --no-diff
  minigraph compare --train 0.1 --batches 60 --plot norms.png --json norms.json
  minigraph compare --quiet --csv norms.csv --html norms.html
"""

TRAIN_EXAMPLES: Final = """
examples:
  minigraph train
  minigraph train --seeds 1 2 3 4 5 --rates 0.05 0.1 --clip global_norm=1 --html training.html
  minigraph train --optimizer adam --rates 0.001 0.01 --csv training.csv
  minigraph train --epochs 1 --seeds 1 --rates 0.1
"""


# Options


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.epilog = CLIPS + COMPARE_EXAMPLES
    experiment = _experiment(parser)
    experiment.add_argument(
        "--batches", type=WHOLE_NUMBER, default=10, metavar="N",
        help="number of batches; the data are read again when they end (default: 10; an epoch of digits has 12)",
    )  # fmt: skip
    experiment.add_argument(
        "--seed", type=_seed, default=1, metavar="N",
        help="seed for initial values and shuffling; the same seed gives the same output (default: 1)",
    )  # fmt: skip
    experiment.add_argument(
        "--train", type=_LEARNING_RATE, metavar="RATE",
        help="update parameters after each batch by SGD on the unclipped gradients (default: no updates)",
    )  # fmt: skip
    experiment.add_argument(
        "--ranks", type=WHOLE_NUMBER, default=1, metavar="N",
        help="ranks that share each batch evenly: also show each clip on the gradients of each rank alone (default: 1)",
    )  # fmt: skip
    _output(parser, "batch by batch")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.epilog = CLIPS + TRAIN_EXAMPLES
    experiment = _experiment(parser)
    experiment.add_argument(
        "--epochs", type=WHOLE_NUMBER, default=5, metavar="N", help="runs over the data (default: 5)"
    )
    experiment.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="update rule (default: sgd)")
    experiment.add_argument(
        "--seeds", "--seed", type=_seed, nargs="+", default=DEFAULT_SEEDS, metavar="N",
        help="seeds for initial values and shuffling; the same seed gives the same output "
             f"(default: {_words(DEFAULT_SEEDS)})",
    )  # fmt: skip
    experiment.add_argument(
        "--rates", "--rate", type=_LEARNING_RATE, nargs="+", default=DEFAULT_RATES, metavar="RATE",
        help=f"learning rates (default: {_words(DEFAULT_RATES)})",
    )  # fmt: skip
    _output(parser, "step by step")


def _words(numbers: Sequence[float]) -> str:
    return " ".join(map(str, numbers))


def _experiment(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_argument_group("experiment")
    group.add_argument(
        "--clip", dest="clips", action="append", type=checked(parse_clip), metavar="KIND=THRESHOLD",
        help=f"a clip to compare, see below; may be repeated (default: {', '.join(DEFAULT_CLIPS)})",
    )  # fmt: skip
    group.add_argument(
        "--data", choices=("digits", "mnist"), default="digits",
        help="the bundled digits in MNIST's form, or MNIST, which is downloaded once (default: digits)",
    )  # fmt: skip
    group.add_argument(
        "--batch-size", type=WHOLE_NUMBER, default=128, metavar="N", help="images in a batch (default: 128)"
    )
    group.add_argument(
        "--place", type=checked(_place), default="cpu", metavar="PLACE",
        help="cpu, cuda, or cuda:1 for the second GPU (default: cpu)",
    )  # fmt: skip
    return group


def _output(parser: argparse.ArgumentParser, resolution: str) -> None:
    group = parser.add_argument_group("output")
    # argparse.BooleanOptionalAction prints another help in each version of Python.
    shown = parser.prog.endswith("compare")
    group.add_argument(
        "--diff", action="store_true", default=shown,
        help=f"print the operators that each clip inserts{' (the default)' if shown else ''}",
    )  # fmt: skip
    group.add_argument("--no-diff", dest="diff", action="store_false", help="do not print these operators")
    group.add_argument("--json", metavar="FILE", help=f"write all numbers, {resolution}, to this file")
    group.add_argument("--csv", metavar="FILE", help=f"write a table of the numbers, {resolution}, to this file")
    group.add_argument(
        "--plot", type=checked(_plot_file), metavar="FILE.png", help="draw to this file (.png, .svg or .pdf)"
    )
    group.add_argument(
        "--html",
        type=checked(_html_file),
        metavar="FILE",
        help="write one page with tables, pictures and program diffs",
    )
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")


def checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """`parse` with its errors as argparse prints them."""

    def parse_option(text: str) -> T:
        try:
            return parse(text)
        except MinigraphError as error:
            raise argparse.ArgumentTypeError(message_of(error)) from None

    return parse_option


_LEARNING_RATE: Final = number_option(float, lambda rate: 0 < rate < math.inf, "a positive number")


def _seed(text: str) -> int:
    number = WHOLE_NUMBER(text)
    if number > MAX_SEED:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_SEED}, got {text!r}")
    return number


def _place(text: str) -> Place:
    kind, colon, number = text.partition(":")
    if text == "cpu":
        return CPUPlace()
    if kind != "cuda" or (colon and not (number.isascii() and number.isdigit())):
        near = "Did you mean cuda?" if kind == "gpu" else suggest(kind, ["cpu", "cuda"])
        hint = near or "The places are cpu, cuda and cuda:N."
        raise NotFoundError(f"unknown place {text!r}", hint=hint)
    place = CUDAPlace(int(number or 0))
    _ = place.xp  # a missing GPU or library shows here, before any work
    return place


def _html_file(text: str) -> str:
    check_plotting()
    return text


def _plot_file(text: str) -> str:
    if os.path.splitext(text)[1].lower() not in PLOT_SUFFIXES:
        raise argparse.ArgumentTypeError(f"the name must end in {', '.join(PLOT_SUFFIXES)}, got {text!r}")
    return _html_file(text)


# Running


def _reporting(make_report: Callable[[argparse.Namespace], Report[Any]]) -> Callable[[argparse.Namespace], int]:
    """A subcommand that checks its options, makes the report, writes the files and prints."""

    @wraps(make_report)
    def run(options: argparse.Namespace) -> int:
        options.clips = options.clips or [parse_clip(text) for text in DEFAULT_CLIPS]
        if len(set(options.clips)) < len(options.clips):
            return fail("the same --clip is given twice", 2)
        for name in ("seeds", "rates"):
            numbers = getattr(options, name, ())
            if len(set(numbers)) < len(numbers):
                return fail(f"--{name} has the same number twice", 2)
        paths = {kind: path for kind in SAVERS if (path := getattr(options, kind))}
        for kind, path in paths.items():
            twin = next(other for other in paths if paths[other] == path)
            if twin != kind:
                return fail(f"--{twin} and --{kind} name the same file, {path}", 2)
        try:  # before the work, whose results would be lost
            for path in paths.values():
                check_writable(path)
        except DataError as error:
            return fail(message_of(error), 2)
        try:
            with one_thread():
                report = make_report(options)
        except Interrupted as interrupted:
            report = interrupted.report
        for kind, path in paths.items():
            getattr(report, SAVERS[kind])(path)
        if not options.quiet:
            report.print(show_diff=options.diff)
        return fail(report.partial, 130) if report.partial else 0

    return run


def compare_report(options: argparse.Namespace) -> Report[Any]:
    """Compare gradients with and without clipping.

    The network 784-128-64-10 is built once. One program computes the gradients of
    each batch of handwritten digits and, next to them, the result of each clip.
    """
    network = build_network(options.seed)
    rate = options.train
    return compare_gradients(
        network.program,
        network.loss,
        _named(options.clips),
        _Counted(Batches(network, _reader(options.data), options.batch_size, options.seed), options.batches),
        startup=network.startup,
        optimizer=None if rate is None else lambda: SGDOptimizer(rate),
        place=options.place,
        settings={**_settings(options), "seed": options.seed, "learning_rate": rate},
        progress=False if options.quiet else None,
        ranks=options.ranks,
    )


def train_report(options: argparse.Namespace) -> Report[Any]:
    """Compare training with and without clipping.

    The network 784-128-64-10 is trained unclipped and under each clip, at each
    learning rate and with each seed. Runs with the same seed have the same start
    values and batches. After each epoch loss and accuracy are measured on digits
    held out from training. Each clip is judged at the learning rate that gives it
    the lowest held-out loss, by mean and spread over the seeds.
    """
    network = build_network(options.seeds[0])
    held_out = Batches(network, _reader(options.data, "test"), EVALUATION_BATCH)
    return compare_training(
        network.program,
        network.loss,
        {UNCLIPPED: None, **_named(options.clips)},
        Batches(network, _reader(options.data), options.batch_size, options.seeds[0]).epoch,
        optimizer=OPTIMIZERS[options.optimizer],
        epochs=options.epochs,
        seeds=options.seeds,
        rates=options.rates,
        metrics={"accuracy": network.accuracy},
        evaluate=list(held_out.epochs()()),
        startup=network.startup,
        place=options.place,
        settings={**_settings(options), "optimizer": options.optimizer},
        progress=False if options.quiet else None,
    )


class _Counted:
    """The first `count` batches, with a length for the progress bar."""

    def __init__(self, batches: Any, count: int) -> None:
        self._batches, self._count = batches, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        return self._batches.first(self._count)


def _named(clips: Sequence[GradientClipBase]) -> dict[str, Any]:
    return {clip_text(clip): clip for clip in clips}


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {"data": options.data, "batch_size": options.batch_size}


def _reader(data: str, part: str = "train") -> Reader[Any]:
    # strict: a user who names MNIST gets no other data in its place.
    return getattr(digits, part)(28) if data == "digits" else getattr(mnist, part)(strict=True)


COMMANDS: Commands = {
    "compare": Command(_reporting(compare_report), _add_compare),
    "train": Command(_reporting(train_report), _add_train),
}
