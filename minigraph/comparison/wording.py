"""Numbers and lists as text, for tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from minigraph.comparison.statistics import Estimate, GradientStatistics

ALL_TOGETHER: Final = "all together"
"""Name of all gradients as one vector, where others have a parameter's name."""

NUMBERS: Final = ("norm\nbefore", "norm\nafter", "factor", "cosine", "batches\nclipped", "elements\nchanged")
"""Headings of the columns with numbers; `number_cells` fills them."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun, such as ``1 batch`` or ``2 batches``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """Join names, such as ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def number(value: float) -> str:
    """A number with four decimals, or with four digits where it is large or small."""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.4g}"


def share(value: float) -> str:
    """A share in percent, rounded, but 0% and 100% only where that is exact."""
    if 0 < value < 0.001:
        return "<0.1%"
    if 0.999 < value < 1:
        return ">99.9%"
    return f"{value:.1%}".replace(".0%", "%")


def number_cells(statistics: GradientStatistics) -> tuple[str, ...]:
    """The means under the headings of `NUMBERS`."""
    means = {name: statistics.summary(name).mean for name in ("norm_before", "norm_after", "factor", "cosine")}
    return (
        f"{means['norm_before']:#.4g}",
        f"{means['norm_after']:#.4g}",
        f"{means['factor']:.4f}",
        f"{means['cosine']:.4f}",
        f"{statistics.share_clipped:.0%}",
        share(statistics.summary("share_changed").mean),
    )


def estimate_text(estimate: Estimate) -> str:
    """Mean and spread over the seeds, such as ``0.6761 (0.0312)``."""
    mean, *notes = _parts(estimate)
    return f"{mean} ({', '.join(notes)})" if notes else mean


def estimate_words(estimate: Estimate) -> str:
    """Mean and spread over the seeds, such as ``0.6761, spread 0.0312``."""
    return ", spread ".join(_parts(estimate)[:2]) + "".join(f", {note}" for note in _parts(estimate)[2:])


def _parts(estimate: Estimate) -> list[str]:
    if math.isnan(estimate.mean):
        return ["diverged" if estimate.diverged else "-"]
    parts = [number(estimate.mean)]
    if estimate.seeds > 1:
        spread = estimate.spread
        parts.append("-" if math.isnan(spread) else f"{spread:.1g}" if 0 < spread < 1e-3 else number(spread))
    if estimate.diverged:
        parts.append(f"{estimate.diverged} of {estimate.seeds} diverged")
    return parts


def evenly(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers from 0 to ``count - 1``, evenly spread, the first and the last among them.

    Examples
    --------
    >>> evenly(3, 10), evenly(101, 6), evenly(9, 1)
    ([0, 1, 2], [0, 20, 40, 60, 80, 100], [8])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)] if most > 1 else [count - 1]


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Names of at most `most` characters: long ones lose their middle, and get a number if they would be equal.

    Examples
    --------
    >>> shortened(["fc_0.w_0", "encoder_1.attention.w_0", "encoder_2.attention.w_0"], 12)
    ['fc_0.w_0', '1…ention.w_0', '2…ention.w_0']
    """
    head = (most - 1) // 2
    short = [name if len(name) <= most else f"{name[:head]}…{name[head + 1 - most :]}" for name in names]
    if len(set(short)) == len(short):
        return short
    return [
        name if len(name) <= most else f"{number}…{name[len(str(number)) + 1 - most :]}"
        for number, name in enumerate(names)
    ]
