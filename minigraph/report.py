"""A comparison of clips for its readers: tables for people, JSON for programs, a picture.

Nothing here computes; all numbers are those of a `minigraph.comparison.Comparison`.
"""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minigraph.comparison import Changes, ClipComparison, Comparison, ParameterChanges, clip_text
from minigraph.errors import DataError, MissingExtraError
from minigraph.ir import Parameter, Program, Role
from minigraph.text import diff, value_text
from minigraph.types import product
from minigraph.version import __version__

JSON_FORMAT: Final = "minigraph-comparison"
JSON_VERSION: Final = 1
PLOT_SUFFIXES: Final = (".png", ".svg", ".pdf")

NUMBERS: Final = (
    "norm before\nclipping", "norm after\nclipping", "factor", "batches\nclipped", "cosine",
)  # fmt: skip
"""Headings of the columns with numbers; `_cells` fills them."""


# Tables


def print_report(comparison: Comparison, console: Console, data: str = "", show_diff: bool = True) -> None:
    """Print what was compared, and for each clip the operators it inserted and what they did.

    Parameters
    ----------
    comparison : Comparison
    console : rich.console.Console
    data : str
        What the images are, for the heading.
    show_diff : bool
        Whether to print the operators that each clip inserts.
    """
    console.print(_heading(comparison, data))
    for clip in comparison.clips:
        console.print()
        console.print(_clip_heading(comparison, clip))
        if show_diff:
            console.print(_inserted_operators(comparison, clip, console.width), end="\n\n")
        console.print(_table(clip))


def _heading(comparison: Comparison, data: str) -> Table:
    params = comparison.program.all_parameters()
    values = sum(product(param.shape or ()) for param in params)
    rows = {
        "program": f"{_count(comparison.forward)} operators, {_count(comparison.program)} with the backward pass",
        "parameters": f"{len(params)}, {values:,} values, {_updates(comparison)}",
        "data": f"{data + ', ' if data else ''}{_batches(comparison)}, seed {comparison.seed}",
        "place": repr(comparison.place),
        "loss": _losses(comparison),
        "norms": "L2, before clipping in the unclipped program, after clipping in the clone",
        "factor": "norm after / norm before",
        "cosine": "of the angle between the gradients before and after",
        "numbers": f"means over {_number_of_batches(comparison)}",
    }
    grid = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        grid.add_row(Text(name, "bold"), Text(value))
    broken = _not_finite(comparison)
    if broken:
        grid.add_row(Text("warning", "bold red"), Text(broken, "red"))
    return grid


def _not_finite(comparison: Comparison) -> str:
    """Which gradients of the unclipped program are the first with NaN or infinity; empty if there are none."""
    for index in range(len(comparison.batches)):
        for clip in comparison.clips[:1]:  # before clipping all have the same
            names = [p.name for p in clip.parameters if not math.isfinite(p.batches[index].norm_before)]
            if names:
                return f"NaN or infinity from batch {index + 1} on, in the gradients of {', '.join(names)}"
    return ""


def _updates(comparison: Comparison) -> str:
    if comparison.learning_rate is None:
        return "kept at their start values"
    return f"updated by SGD with learning rate {comparison.learning_rate:g}, unclipped"


def _batches(comparison: Comparison) -> str:
    sizes = [batch.size for batch in comparison.batches]
    images = f" ({sum(sizes):,} images)" if set(sizes) != {comparison.batch_size} else ""
    return f"{_number_of_batches(comparison)} of {comparison.batch_size}{images}"


def _number_of_batches(comparison: Comparison) -> str:
    count = len(comparison.batches)
    return f"{count} {'batch' if count == 1 else 'batches'}"


def _losses(comparison: Comparison) -> str:
    losses = [batch.loss for batch in comparison.batches]
    if comparison.learning_rate is None:
        return f"{math.fsum(losses) / len(losses):.4f} on average"
    return f"{losses[0]:.4f} in the first batch, {losses[-1]:.4f} in the last"


def _clip_heading(comparison: Comparison, clip: ClipComparison) -> Text:
    inserted = _count(clip.program) - _count(comparison.program)
    law = f"{value_text(clip.clip)} inserts {inserted} operators"
    return Text.assemble((clip_text(clip.clip), "bold cyan"), "  ", law)


def _inserted_operators(comparison: Comparison, clip: ClipComparison, width: int) -> Text:
    difference = diff(_plain(comparison.program), _plain(clip.program), context=0)
    styles = {"+": "green", "-": "red"}
    changed = [line for line in difference.split("\n") if line[:1] in styles]
    return Text("\n").join(Text(_folded(line, width), styles[line[0]]) for line in changed)


def _plain(program: Program) -> Program:
    """A copy without the marks that say what an operator is for: they make lines long and compute nothing."""
    copied = program.clone()
    for block in copied.blocks:
        for op in block.ops:
            op.role, op.role_vars, op.namescope = Role.FORWARD, (), "/"
        for var in block.vars.values():
            if isinstance(var, Parameter):
                var.gradient_clip = None
    return copied


def _folded(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)


def _table(clip: ClipComparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("parameter", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    for heading in NUMBERS:
        table.add_column(heading, justify="right", no_wrap=True)
    for param in clip.parameters:
        table.add_row(param.name, str(list(param.shape)), *_cells(param), style="" if param.share_clipped else "dim")
    table.add_section()
    table.add_row("all together", "", *_cells(clip.total), style="bold")
    return table


def _cells(changes: Changes) -> tuple[str, ...]:
    return (
        f"{changes.mean_norm_before:#.4g}",
        f"{changes.mean_norm_after:#.4g}",
        f"{changes.mean_factor:.4f}",
        f"{changes.share_clipped:.0%}",
        f"{changes.mean_cosine:.4f}",
    )


def _count(program: Program) -> int:
    return sum(len(block.ops) for block in program.blocks)


# JSON


def comparison_json(comparison: Comparison, data: str = "") -> dict[str, Any]:
    """The comparison as JSON's types; a number that is not finite is None.

    ::

        format          "minigraph-comparison"
        version         1; grows when a key changes its meaning or goes, not when one is added
        minigraph       version of the package
        settings        {data, batches, batch_size, seed, place, learning_rate (null: no updates)}
        program         {forward_operators, operators (forward and backward), parameters: [{name, shape}]}
        batches         [{size, loss}]
        clips           [clip], in the order asked for
          clip          as for --clip, such as "norm=2"
          strategy      as in the text of a program, such as "GradientClipByNorm(clip_norm=2.0)"
          operators_inserted
          parameters    [{name, shape, mean, batches}], in the order of the program's parameters
          total         {mean, batches}: all gradients as one vector, so that its norms are global norms
            mean        {norm_before, norm_after, factor, share_clipped, cosine}
            batches     {norm_before, norm_after, factor, clipped, cosine}, each a list with one entry per batch

    Parameters
    ----------
    comparison : Comparison
    data : str
        What the images are, for the settings.
    """
    return {
        "format": JSON_FORMAT,
        "version": JSON_VERSION,
        "minigraph": __version__,
        "settings": {
            "data": data,
            "batches": len(comparison.batches),
            "batch_size": comparison.batch_size,
            "seed": comparison.seed,
            "place": repr(comparison.place),
            "learning_rate": comparison.learning_rate,
        },
        "program": {
            "forward_operators": _count(comparison.forward),
            "operators": _count(comparison.program),
            "parameters": [
                {"name": param.name, "shape": list(param.shape or ())} for param in comparison.program.all_parameters()
            ],
        },
        "batches": [{"size": batch.size, "loss": _finite(batch.loss)} for batch in comparison.batches],
        "clips": [
            {
                "clip": clip_text(clip.clip),
                "strategy": value_text(clip.clip),
                "operators_inserted": _count(clip.program) - _count(comparison.program),
                "parameters": [
                    {"name": param.name, "shape": list(param.shape), **_changes_json(param)}
                    for param in clip.parameters
                ],
                "total": _changes_json(clip.total),
            }
            for clip in comparison.clips
        ],
    }


def _changes_json(changes: Changes) -> dict[str, Any]:
    return {
        "mean": {
            "norm_before": _finite(changes.mean_norm_before),
            "norm_after": _finite(changes.mean_norm_after),
            "factor": _finite(changes.mean_factor),
            "share_clipped": changes.share_clipped,
            "cosine": _finite(changes.mean_cosine),
        },
        "batches": {
            "norm_before": [_finite(change.norm_before) for change in changes.batches],
            "norm_after": [_finite(change.norm_after) for change in changes.batches],
            "factor": [_finite(change.factor) for change in changes.batches],
            "clipped": [change.clipped for change in changes.batches],
            "cosine": [_finite(change.cosine) for change in changes.batches],
        },
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def write_json(comparison: Comparison, path: Path, data: str = "") -> None:
    """Write `comparison_json` to `path`."""
    text = json.dumps(comparison_json(comparison, data), indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


# Picture


def check_plotting() -> None:
    """Raise `MissingExtraError` if pictures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "a plot needs matplotlib, which is not installed", hint="Install it with: pip install 'minigraph[plot]'"
        ) from None


def write_plot(comparison: Comparison, path: Path, format: str = "png") -> None:
    """Draw the norms before and after clipping, batch by batch: a row per clip, a column per parameter and one for all.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    check_plotting()
    from matplotlib.figure import Figure

    rows = [[*clip.parameters, clip.total] for clip in comparison.clips]
    figure = Figure(figsize=(1.9 * len(rows[0]) + 0.6, 1.9 * len(rows) + 0.7), layout="constrained")
    axes = figure.subplots(len(rows), len(rows[0]), squeeze=False, sharex=True, sharey="col")
    for clip, changes_of_clip, axes_of_row in zip(comparison.clips, rows, axes, strict=True):
        for changes, ax in zip(changes_of_clip, axes_of_row, strict=True):
            _draw(changes, ax)
        axes_of_row[0].set_ylabel(clip_text(clip.clip), fontweight="bold")
    for column, axes_of_column in zip(zip(*rows, strict=True), axes.T, strict=True):
        axes_of_column[0].set_title(_title(column[0]), fontsize=9)
        axes_of_column[0].set_ylim(0, _upper_limit(column))
        axes_of_column[-1].set_xlabel("batch", fontsize=8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path, format=format, dpi=120)


def _draw(changes: Changes, ax: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    count = len(changes.batches)
    numbers = range(1, count + 1)
    before = [change.norm_before for change in changes.batches]
    after = [change.norm_after for change in changes.batches]
    marker = "." if count <= 20 else ""
    # Before is broader, so that it stays visible under an equal after.
    ax.fill_between(numbers, before, after, color="0.9", linewidth=0)
    ax.plot(numbers, before, color="0.65", linewidth=2.2, marker=marker, markersize=9, label="L2 norm before clipping")
    ax.plot(numbers, after, color="tab:blue", linewidth=1, marker=marker, markersize=5, label="after clipping")
    ax.set_xlim(0.5, count + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    ax.tick_params(labelsize=7)


def _upper_limit(column: Sequence[Changes]) -> float:
    """A little more than the largest norm of the gradients, so that it fits into the picture."""
    norms = [norm for changes in column for c in changes.batches for norm in (c.norm_before, c.norm_after)]
    return 1.08 * max(filter(math.isfinite, norms), default=0.0) or 1.0


def _title(changes: Changes) -> str:
    return changes.name if isinstance(changes, ParameterChanges) else "all together"


# Files


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside `path` that takes its place when the block ends, and goes when the block fails.

    Raises
    ------
    DataError
        On entry, if `path` cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link is kept, and what it points to replaced
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
            raise PermissionError("is not a file that may be written" if not target.is_dir() else "is a directory")
        partial.open("wb").close()
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from None
    try:
        yield partial
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
