"""What the reports of both comparisons have in common: how they leave the computer's memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from minigraph.comparison.statistics import GradientStatistics
from minigraph.comparison.wording import counted
from minigraph.errors import NotFoundError, caller_site, suggest
from minigraph.ir import Program
from minigraph.ir.text.diff import diff
from minigraph.runtime.place import Place
from minigraph.support.atomic_files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, RenderableType

    from minigraph.ir.text.diff import Difference

Path = str | os.PathLike[str]


class Interrupted(KeyboardInterrupt):
    """A comparison was interrupted; `report` holds what was found until then."""

    def __init__(self, report: Report[Any]) -> None:
        super().__init__(report.partial)
        self.report = report


@dataclass(frozen=True, eq=False, repr=False)
class StrategyResult:
    """What is known of one strategy, in either comparison.

    Attributes
    ----------
    name : str
    strategy : GradientClipBase or None
        None: unclipped.
    program : Program
        The unclipped program with this strategy's operators, and no other strategy's.
    parameters : dict of str to GradientStatistics
        By parameter, in the order of their creation.
    total : GradientStatistics
        All gradients as one vector, so that its norms are global norms.
    """

    name: str
    strategy: Any
    program: Program
    parameters: Mapping[str, GradientStatistics]
    total: GradientStatistics

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.total!r:.200}>"

    def _repr_html_(self) -> str:
        from minigraph.comparison.page import result_in_notebook

        return result_in_notebook(self)


R = TypeVar("R", bound=StrategyResult)


@dataclass(frozen=True, eq=False, repr=False)
class Report(Generic[R]):
    """Results by strategy; ``report["name"]`` is one of them, and iteration gives the names.

    Attributes
    ----------
    forward : Program
        The program without backward pass.
    unclipped : Program
        The same with everything but clipping.
    strategies : dict of str to StrategyResult
        In the order asked for.
    place : Place
    settings : dict
        What the caller noted about the experiment; shown with the results.
    partial : str
        Where the comparison was interrupted; empty if it was not.
    """

    forward: Program
    unclipped: Program
    strategies: Mapping[str, R]
    place: Place
    settings: Mapping[str, Any] = field(default_factory=dict)
    partial: str = ""

    def __getitem__(self, name: str) -> R:
        if name not in self.strategies:
            known = f"There are {', '.join(self.strategies)}." if self.strategies else "There is none."
            raise NotFoundError(f"the report has no strategy {name!r}", site=caller_site(),
                                hint=suggest(name, self.strategies) or known)  # fmt: skip
        return self.strategies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.strategies)

    def __len__(self) -> int:
        return len(self.strategies)

    def shape(self, parameter: str) -> tuple[int, ...]:
        """The shape of a parameter."""
        return tuple(self.unclipped.global_block().var(parameter).shape or ())

    def diff(self, name: str) -> Difference:
        """What a strategy's operators change in the text of the unclipped program; see `minigraph.diff`."""
        return diff(self.unclipped, self[name].program)

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

    def figure(self) -> Figure:
        """The picture that `plot` saves (matplotlib)."""
        raise TypeError(f"{type(self).__name__} does not define figure")

    def html(self) -> str:
        """The page that `save_html` writes."""
        raise TypeError(f"{type(self).__name__} does not define html")

    # For readers

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

    def _repr_html_(self) -> str:
        from minigraph.comparison.page import report_in_notebook

        return report_in_notebook(self)

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        from minigraph.comparison.layout import columns

        text = StringIO()
        self.print(Console(file=text, width=columns(), highlight=False, color_system=None))
        return text.getvalue().rstrip()

    def save_json(self, path: Path) -> None:
        """Write `to_json` to a file."""
        from minigraph.comparison.records import write_json

        with replacing(path) as partial:
            write_json(self.to_json(), partial)

    def save_csv(self, path: Path) -> None:
        """Write `rows` to a file (RFC 4180, UTF-8); numbers that are not finite are ``nan``, ``inf`` and ``-inf``."""
        from minigraph.comparison.records import write_csv

        with replacing(path) as partial:
            write_csv(self, partial)

    def plot(self, path: Path) -> None:
        """Draw to a file whose name ends in .png, .svg or .pdf.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed; ``pip install 'minigraph[plot]'``.
        """
        from minigraph.comparison.plots import write_figure

        with replacing(path) as partial:
            write_figure(self, partial, os.path.splitext(os.fspath(path))[1])

    def save_html(self, path: Path) -> None:
        """Write one HTML page with tables, pictures and each strategy's diff, which needs no other file and no network.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed; ``pip install 'minigraph[plot]'``.
        """
        with replacing(path) as partial:
            partial.write_text(self.html(), encoding="utf-8")
