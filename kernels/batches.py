"""Sequences of different lengths as a padded batch: from tensors with lengths, or from rows one after the other."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError


class Batch:
    """Steps of sequences: in a tensor [batch, time, ...] with `length`, or in rows with `levels`.

    `present`, bool[batch, time], says whether a sequence still lasts.
    """

    def __init__(self, xp, x, length, levels, what) -> None:
        self.are_rows = length is None
        if length is not None:
            steps, lengths = x.shape[1], length.reshape(-1, 1)
            if ((lengths < 0) | (lengths > steps)).any():
                found = f"{int(lengths.min())} to {int(lengths.max())}"
                raise ExecutionError(f"the lengths of {what} must be in [0, {steps}], got {found}")
        elif not levels:
            raise ExecutionError(
                f"{what} has no lengths of sequences",
                hint="Feed a tensor that create_lod_tensor has made, or give lengths, int64[batch].",
            )  # fmt: skip
        else:
            # The operators of a loss, and their gradients, ask for the same sequences one after the other.
            places, lengths = _places(np.ascontiguousarray(levels[-1], np.int64).tobytes(), len(x))
            self.rows, lengths, steps = xp.asarray(places), xp.asarray(lengths), places.shape[1]
        self.present = xp.arange(steps) < lengths

    @cached_property
    def lengths(self) -> Any:
        """The number of steps of each sequence."""
        return self.present.sum(1)

    @cached_property
    def last(self) -> Any:
        """The last step of each sequence, 0 without any."""
        return self.lengths - (self.lengths > 0)

    def padded(self, x) -> Any:
        """`x` as [batch, time, ...]."""
        if not self.are_rows:
            return x
        return x[self.rows] if len(x) else x.reshape(*self.rows.shape, *x.shape[1:])

    def tokens(self, x) -> Any:
        """`x`, of one number for each step, as [batch, time]."""
        return self.padded(x).reshape(self.present.shape)

    def as_given(self, x) -> Any:
        """[batch, time, ...] as the tensors of the operator."""
        return x[self.present] if self.are_rows else x


@lru_cache(maxsize=4)
def _places(offsets: bytes, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each sequence its rows, of `count` in all, and behind its end any of them; and its length."""
    edges = np.frombuffer(offsets, np.int64)
    starts, lengths = edges[:-1, None], np.diff(edges)[:, None]
    rows = starts + np.arange(lengths.max(initial=0))
    return np.minimum(rows, max(count - 1, 0), out=rows), lengths
