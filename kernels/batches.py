"""Sequences of different lengths as a padded batch: from tensors with lengths, or from rows one after the other."""

from __future__ import annotations

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
            starts, lengths = levels[-1][:-1, None], np.diff(levels[-1])[:, None]
            steps = lengths.max(initial=0)
            # Behind the end of a sequence, any row.
            self.rows = xp.asarray((starts + np.arange(steps)).clip(max=max(len(x) - 1, 0)))
            lengths = xp.asarray(lengths)
        self.present = xp.arange(steps) < lengths

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
