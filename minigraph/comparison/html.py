"""The table that a comparison shows of each strategy, in HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping

from minigraph.comparison.statistics import GradientStatistics
from minigraph.comparison.wording import ALL_TOGETHER, NUMBERS, number_cells
from minigraph.support.html import table


def statistics_table(
    statistics: Mapping[str, GradientStatistics], shapes: Mapping[str, tuple[int, ...]], unit: str, is_clipped: bool
) -> str:
    """Means of each gradient; norms alone where nothing is clipped."""
    numbers = [heading.replace("batches", unit) for heading in NUMBERS] if is_clipped else ["norm"]
    sizes = {name: str(list(shape)) for name, shape in shapes.items()}
    sizes[ALL_TOGETHER] = f"{sum(map(math.prod, shapes.values())):,} values"
    rows = [[name, sizes[name], *number_cells(each)[: len(numbers)], _range(each)] for name, each in statistics.items()]
    range_of = "norm before\nmin to max" if is_clipped else "min to max"
    return table(f"Means over {unit}.", ["parameter", "shape", *numbers, range_of], rows, strong=ALL_TOGETHER)


def _range(statistics: GradientStatistics) -> str:
    summary = statistics.summary("norm_before")
    return f"{summary.min:#.3g} to {summary.max:#.3g}"
