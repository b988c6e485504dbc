"""``paddle.utils.plot``: curves of a training, as the chapters of the Paddle book draw them."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from minigraph.errors import MissingExtraError, NotFoundError, suggest

__all__ = ["Ploter"]


class Ploter:
    """Curves by title, which grow point by point.

    Parameters
    ----------
    *args : str
        Title of each curve.

    Notes
    -----
    With the environment variable ``DISABLE_PLOT=True`` nothing is drawn. In fluid matplotlib and IPython must be
    installed to make one; here matplotlib must be to draw one.

    Examples
    --------
    >>> costs = Ploter("train cost", "test cost")
    >>> costs.append("train cost", 1, 0.5)
    >>> costs.append("train cost", 2, 0.25)
    >>> costs.points("train cost")
    ([1, 2], [0.5, 0.25])
    """

    def __init__(self, *args: str) -> None:
        self._curves: dict[str, tuple[list[float], list[Any]]] = {title: ([], []) for title in args}

    def points(self, title: str) -> tuple[list[float], list[Any]]:
        """Steps and values of a curve.

        Raises
        ------
        NotFoundError
            If there is no curve of this title.
        """
        if title not in self._curves:
            raise NotFoundError(f"there is no curve {title!r}", hint=suggest(title, self._curves))
        return self._curves[title]

    def append(self, title: str, step: float, value: Any) -> None:
        """Add a point to a curve."""
        steps, values = self.points(title)
        steps.append(step)
        values.append(value)

    def plot(self, path: str | os.PathLike[str] | None = None) -> None:
        """Draw the curves into the file `path`, or where no path is given into the notebook.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        if os.environ.get("DISABLE_PLOT") == "True":
            return
        if find_spec("matplotlib") is None:
            raise MissingExtraError("Ploter.plot needs matplotlib", hint="Run pip install 'minigraph[plot]'.")
        from matplotlib.figure import Figure

        figure = Figure()
        axes = figure.subplots()
        for title, (steps, values) in self._curves.items():
            if steps:
                axes.plot(steps, [np.ravel(value)[0] for value in values], label=title)  # fetched values are arrays
        if axes.lines:
            axes.legend(loc="upper left")
        if path is not None:
            figure.savefig(path)
        elif find_spec("IPython") is not None:
            display: Any = import_module("IPython.display")
            display.clear_output(wait=True)
            display.display(figure)

    def reset(self) -> None:
        """Remove all points."""
        for steps, values in self._curves.values():
            steps.clear()
            values.clear()
