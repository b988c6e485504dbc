"""Norms of order 2 and clipping by them: one launch adds up squares, one finishes, one scales what is too long.

A gradient whose norm is at most the threshold keeps its bits. One that is longer is multiplied with the factor rounded
to its type, as on the processor; the norm itself is added up in another order, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.kernels import clip as shared_clip
from minigraph.kernels import norm as shared_norm
from minigraph.kernels.buffers import deliver
from minigraph.kernels.cuda.launching import contiguous, launcher, source, table_of
from minigraph.kernels.registry import kernel

TYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}


def are_taken(*arrays: Any) -> bool:
    """Whether the kernels take arrays of these types."""
    return all([x.dtype in TYPES for x in arrays])


class Group:
    """Arrays whose joint norm is made, without waiting for it."""

    def __init__(self, xp, xs: Sequence[Any]) -> None:
        self.xp = xp
        self.xs = [contiguous(xp, x) for x in xs]
        self._launch = launcher(xp, source("norms"))

    def _table(self, outs: Sequence[Any]) -> Any:
        pairs = zip(self.xs, outs, strict=True)
        return table_of(
            self.xp,
            [(x.size, TYPES[x.dtype], x.data.ptr, y.data.ptr) for x, y in pairs if x.size],
        )

    def factor(self, threshold, dtype, total_out=None) -> tuple[Any, Any]:
        """Threshold, scale and ratio in one array of the device, and the norm in `dtype`.

        Parameters
        ----------
        threshold : float or array of one element
        dtype : dtype or None
            None for no norm.
        total_out : array, optional
            What the norm is written to.
        """
        xp = self.xp
        table = self._table(self.xs)
        partial = xp.empty((max(table.blocks, 1), 6), np.float64)  # `Squares` of the source
        if table.pieces:
            self._launch("partial_sums", table.blocks, table.array, table.rows, table.pieces, partial)
        factor = xp.empty(3, np.float64)
        total = 0 if dtype is None else xp.empty(1, dtype) if total_out is None else total_out
        given, number = (threshold, 0.0) if hasattr(threshold, "dtype") else (0, float(threshold))
        wide = TYPES[np.dtype(dtype if dtype is not None else np.float32)]
        self._launch("finish", 1, partial, table.blocks, given, wide, number, factor, total)
        return factor, total

    def scaled(self, factor, outs: Sequence[Any]) -> list[Any]:
        """The arrays, scaled down as `factor` says."""
        made = [_room(self.xp, x, out) for x, out in zip(self.xs, outs, strict=True)]
        table = self._table(made)
        if table.pieces:
            self._launch("scale_down", table.blocks, table.array, table.rows, table.pieces, factor)
        return [deliver(self.xp, y, out) for y, out in zip(made, outs, strict=True)]


def _room(xp, x, out) -> Any:
    """`out`, if a kernel can write there what it makes of `x`, else a new array."""
    fits = out is not None and out.dtype == x.dtype and out.shape == x.shape and out.flags.c_contiguous
    return out if fits else xp.empty(x.shape, x.dtype)


@kernel("clip_factor", place="cuda", joins="short")
def clip_factor(xp, xs, clip_norm, *, p, out=None):
    if p != 2 or not are_taken(*xs, clip_norm):
        return shared_clip.clip_factor(xp, xs, clip_norm, p=p, out=out)
    factor_out, norm_out = out or (None, None)
    factor, total = Group(xp, xs).factor(clip_norm, clip_norm.dtype)
    return deliver(xp, factor, factor_out), deliver(xp, total, norm_out)


@kernel("clip_by_global_norm", place="cuda", joins="short")
def clip_by_global_norm(xp, xs, clip_norm, *, p=2.0, strict=False, out=None):
    if p != 2 or strict or not are_taken(*xs, clip_norm):
        return shared_clip.clip_by_global_norm(xp, xs, clip_norm, p=p, strict=strict, out=out)
    outs, norm_out = out or ([None] * len(xs), None)
    group = Group(xp, xs)
    factor, total = group.factor(clip_norm, clip_norm.dtype)
    return group.scaled(factor, outs), deliver(xp, total, norm_out)


@kernel("clip_by_norm", place="cuda")
def clip_by_norm(xp, x, *, max_norm, out=None):
    if not are_taken(x):
        return shared_clip.clip_by_norm(xp, x, max_norm=max_norm, out=out)
    group = Group(xp, [x])
    return group.scaled(group.factor(max_norm, None)[0], [out])[0]


@kernel("global_norm", place="cuda", joins="short")
def global_norm(xp, xs, *, p, out=None):
    if p != 2 or not are_taken(*xs):
        return shared_norm.global_norm(xp, xs, p=p, out=out)
    dtype = np.result_type(np.float32, *[x.dtype for x in xs])
    return deliver(xp, Group(xp, xs).factor(0.0, dtype)[1], out)
