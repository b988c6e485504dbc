"""Positions of the rows of sequences, from the offsets of a level: one int64 array that begins with 0.

All is vectorised over the sequences, and linear in the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np


def lengths_of(offsets) -> np.ndarray:
    """The length of each sequence."""
    return np.diff(offsets)


def offsets_of(lengths) -> np.ndarray:
    """Begin of each sequence, and end of the last one."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts, lengths) -> np.ndarray:
    """``start, start + 1, ...`` for each start, as many as its length, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + lengths, lengths) + np.arange(total)


def chosen(which, levels) -> tuple[np.ndarray, list[np.ndarray]]:
    """The rows of some sequences of the outermost level, and their levels; without levels, `which` are the rows."""
    found = []
    for level in levels:
        lengths = lengths_of(level)[which]
        found.append(offsets_of(lengths))
        which = ranges(level[which], lengths)
    return which, found


def joined(levels) -> np.ndarray:
    """The offsets of all sequences, from those of each part."""
    return offsets_of(np.concatenate([lengths_of(level) for level in levels]))


def copied(levels) -> list[np.ndarray]:
    """Levels in memory of their own, as a kernel returns them."""
    return [level.copy() for level in levels]


def slices_of(offsets) -> list[slice]:
    """The rows of each sequence."""
    return [slice(start, end) for start, end in pairwise(offsets.tolist())]


def rank_of(lengths) -> np.ndarray:
    """The numbers of the sequences, longest first; those of one length in their order."""
    return np.argsort(-np.asarray(lengths), kind="stable")


def alive_at(lengths, longest) -> np.ndarray:
    """Number of sequences that have a row at each of `longest` steps."""
    return len(lengths) - np.searchsorted(np.sort(lengths), np.arange(longest), side="right")


@dataclass(frozen=True)
class TimeSteps:
    """Sequences by time: the first row of each, then the second of each, and so on, longest sequence first.

    So the sequences that still go on at a step are the first of those at the step before.
    """

    ranked: np.ndarray
    """The sequences, longest first."""
    starts: np.ndarray
    """Position in `rows` where each step begins, and where the last one ends."""
    rows: np.ndarray
    """The rows of all steps, one step after the other."""

    @classmethod
    def of(cls, offsets, is_reverse=False) -> TimeSteps:
        """The steps of sequences; those of the latest offsets are kept, because all layers and gradients ask."""
        return _steps_of(np.ascontiguousarray(offsets, np.int64).tobytes(), bool(is_reverse))

    def slices(self) -> list[slice]:
        """The part of `rows` of each step."""
        return slices_of(self.starts)

    def most(self) -> int:
        """Number of sequences at the first step, which none has more."""
        return int(self.starts[1]) if len(self.starts) > 1 else 0

    @cached_property
    def before(self) -> np.ndarray:
        """Places that `rows` after those of the first step have in the step before."""
        alive = np.diff(self.starts)
        return ranges(self.starts[:-2], alive[1:]) if len(alive) else alive

    def back(self, by_time) -> np.ndarray:
        """The rows in the order of the sequences, from those of the steps."""
        return by_time[self._places]

    @cached_property
    def _places(self) -> np.ndarray:
        """Place of each row among the rows of the steps."""
        places = np.empty_like(self.rows)
        places[self.rows] = np.arange(len(places))
        return places


@lru_cache(maxsize=4)
def _steps_of(offsets: bytes, is_reverse: bool) -> TimeSteps:
    edges = np.frombuffer(offsets, np.int64)
    lengths = np.diff(edges)
    ranked = rank_of(lengths)
    longest = int(lengths.max(initial=0))
    alive = alive_at(lengths, longest)
    sequences = ranked[ranges(np.zeros(longest, np.int64), alive)]
    times = np.repeat(np.arange(longest), alive)
    rows = edges[sequences + 1] - 1 - times if is_reverse else edges[sequences] + times
    return TimeSteps(ranked, offsets_of(alive), rows)
