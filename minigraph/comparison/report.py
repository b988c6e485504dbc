"""Reports of both comparisons: their figures, and the methods that print, draw and save them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar

from minigraph.comparison import findings, plots, records
from minigraph.comparison.results import GradientResults, Results, StrategyResult, TrainingResults, TrainingRun
from minigraph.comparison.wording import counted
from minigraph.support.atomic_files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, RenderableType

Path = str | os.PathLike[str]
R = TypeVar("R", bound=StrategyResult)


class Interrupted(KeyboardInterrupt):
    """A comparison was interrupted; `report` holds the results until then."""

    def __init__(self, report: Report[Any]) -> None:
        super().__init__(report.partial)
        self.report = report


@dataclass(frozen=True, eq=False, repr=False)
class Report(Results[R]):
    """Results by strategy; ``report["name"]`` is one of them, and iteration gives the names.

    Attributes
    ----------
    forward, unclipped, strategies, place, settings, partial
        As in `Results`.
    """

    # What each kind of report makes itself

    def renderables(self, show_diff: bool) -> Iterator[RenderableType]:
        """Headings and tables, as rich prints them."""
        raise TypeError(f"{type(self).__name__} does not define renderables")

    def to_json(self) -> dict[str, Any]:
        """All numbers in JSON's types; one that is not finite is None."""
        raise TypeError(f"{type(self).__name__} does not define to_json")

    def finding(self) -> str:
        """The finding, in a sentence."""
        raise TypeError(f"{type(self).__name__} does not define finding")

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows of the CSV file, the heading first."""
        raise TypeError(f"{type(self).__name__} does not define rows")

    def html(self) -> str:
        """The page that `save_html` writes."""
        raise TypeError(f"{type(self).__name__} does not define html")

    # For readers

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
        from rich.console import Console

        from minigraph.comparison.layout import columns

        console = console or Console(width=columns(), highlight=False)
        for renderable in self.renderables(show_diff):
            console.print(renderable)

    def __repr__(self) -> str:
        size = counted(len(self), "strategy", "strategies")
        return f"<{type(self).__name__} of {size}; print() shows it>\n{self.finding()}"

    def __str__(self) -> str:
        from rich.console import Console

        from minigraph.comparison.layout import columns

        text = StringIO()
        self.print(Console(file=text, width=columns(), highlight=False, color_system=None))
        return text.getvalue().rstrip()

    def save_json(self, path: Path) -> None:
        """Write `to_json` to a file."""
        with replacing(path) as partial:
            records.write_json(self.to_json(), partial)

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

    def save_html(self, path: Path) -> None:
        """Write one HTML page with tables, pictures and each strategy's diff, which needs no other file and no network.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed; ``pip install 'minigraph[plot]'``.
        """
        with replacing(path) as partial:
            partial.write_text(self.html(), encoding="utf-8")


# rich, which tables and the page need, takes longer to import than the rest of the package together.


class GradientReport(GradientResults, Report[StrategyResult]):
    __doc__ = GradientResults.__doc__

    def finding(self) -> str:
        """As `minigraph.comparison.findings.gradient_finding` says it."""
        return findings.gradient_finding(self)

    def renderables(self, show_diff: bool) -> Iterator[RenderableType]:
        from minigraph.comparison.tables import gradient_tables

        return gradient_tables(self, show_diff)

    def to_json(self) -> dict[str, Any]:
        """As documented at `minigraph.comparison.records.gradient_json`."""
        return records.gradient_json(self)

    def rows(self) -> Iterator[Sequence[Any]]:
        """One row per strategy, parameter and batch; see `minigraph.comparison.records.gradient_rows`."""
        return records.gradient_rows(self)

    def html(self) -> str:
        from minigraph.comparison.page import gradient_page

        return gradient_page(self)

    def _repr_html_(self) -> str:
        from minigraph.comparison.page import gradients_in_notebook

        return gradients_in_notebook(self)


class TrainingReport(TrainingResults, Report[TrainingRun]):
    __doc__ = TrainingResults.__doc__

    def finding(self) -> str:
        """As `minigraph.comparison.findings.training_finding` says it."""
        return findings.training_finding(self)

    def renderables(self, show_diff: bool) -> Iterator[RenderableType]:
        from minigraph.comparison.tables import training_tables

        return training_tables(self, show_diff)

    def to_json(self) -> dict[str, Any]:
        """As documented at `minigraph.comparison.records.training_json`."""
        return records.training_json(self)

    def rows(self) -> Iterator[Sequence[Any]]:
        """One row per run, parameter and step; see `minigraph.comparison.records.training_rows`."""
        return records.training_rows(self)

    def html(self) -> str:
        from minigraph.comparison.page import training_page

        return training_page(self)

    def _repr_html_(self) -> str:
        from minigraph.comparison.page import training_in_notebook

        return training_in_notebook(self)
