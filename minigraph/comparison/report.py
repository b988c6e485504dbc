"""Reports of both comparisons: their figures, and the methods that print, draw and save them."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, RenderableType

from minigraph.comparison import findings, page, plots, records, tables
from minigraph.comparison.layout import columns
from minigraph.comparison.results import GradientResults, Results, StrategyResult, TrainingResults, TrainingRun
from minigraph.comparison.wording import counted
from minigraph.support.atomic_files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Path = str | os.PathLike[str]
R = TypeVar("R", bound=StrategyResult)


class Interrupted(KeyboardInterrupt):
    """A comparison was interrupted; `report` holds the results until then."""

    def __init__(self, report: Report[Any]) -> None:
        super().__init__(report.partial)
        self.report = report


@dataclass(frozen=True, eq=False, repr=False)
class Report(Results[R], ABC):
    """Results by strategy; ``report["name"]`` is one of them, and iteration gives the names.

    Attributes
    ----------
    forward, unclipped, strategies, place, settings, partial
        As in `Results`.
    """

    # Defined by each kind of report

    @abstractmethod
    def renderables(self, show_diff: bool) -> Iterator[RenderableType]:
        """Headings and tables, as rich prints them."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All numbers in JSON's types; one that is not finite is None."""

    @abstractmethod
    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows of the CSV file, the heading first."""

    @abstractmethod
    def html(self, norms: Any = None) -> str:
        """The page that `save_html` writes."""

    # Printing and saving

    def finding(self) -> str:
        """The finding, in a sentence."""
        return findings.conclusion(self).finding

    _repr_html_ = page.in_a_cell

    def figure(self) -> Figure:
        """The picture that `plot` saves (matplotlib): every quantity, a line per strategy."""
        return plots.overview(self)

    def print(self, console: Console | None = None, show_diff: bool = False) -> None:
        """Print the tables.

        Parameters
        ----------
        console : rich.console.Console, optional
            Default: standard output, as wide as the terminal or as COLUMNS in the environment says, else 100 columns.
        show_diff : bool
            Whether to print the operators that each strategy inserts, too.
        """
        console = console or Console(width=columns(), highlight=False)
        for renderable in self.renderables(show_diff):
            console.print(renderable)

    def __repr__(self) -> str:
        size = counted(len(self), "strategy", "strategies")
        return f"<{type(self).__name__} of {size}; print() shows it>\n{self.finding()}"

    def __str__(self) -> str:
        text = StringIO()
        self.print(Console(file=text, width=columns(), highlight=False, color_system=None))
        return text.getvalue().rstrip()

    def save_json(self, path: Path) -> None:
        """Write `to_json` to a file."""
        with replacing(path) as partial:
            partial.write_text(json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def save_csv(self, path: Path) -> None:
        """Write `rows` to a file (RFC 4180, UTF-8); numbers that are not finite are ``nan``, ``inf`` and ``-inf``."""
        with replacing(path) as partial:
            records.write_csv(self.rows(), self.partial, partial)

    def plot(self, path: Path) -> None:
        """Draw to a file whose name ends in .png, .svg or .pdf.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed; ``pip install 'minigraph[plot]'``.
        """
        with replacing(path) as partial:
            plots.write_figure(self, partial, os.path.splitext(os.fspath(path))[1])

    def save_html(self, path: Path, norms: Any = None) -> None:
        """Write one HTML page with tables, pictures and each strategy's diff, which needs no other file and no network.

        Parameters
        ----------
        path : path
        norms : NormsOverRanks, optional
            What `minigraph.parallel.compare_norms` has found: the page gets a section with the norms of the ranks.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed; ``pip install 'minigraph[plot]'``.
        """
        with replacing(path) as partial:
            partial.write_text(self.html(norms), encoding="utf-8")


class GradientReport(GradientResults, Report[StrategyResult]):
    __doc__ = GradientResults.__doc__

    renderables = tables.gradient_tables
    to_json = records.gradient_json
    rows = records.gradient_rows
    html = page.gradient_page


class TrainingReport(TrainingResults, Report[TrainingRun]):
    __doc__ = TrainingResults.__doc__

    renderables = tables.training_tables
    to_json = records.training_json
    rows = records.training_rows
    html = page.training_page
