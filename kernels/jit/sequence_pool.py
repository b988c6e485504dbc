"""Sums and maxima of sequences by compiled loops; sums are rounded once, maxima are the shared kernel's."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_wide, numba_name, offer, vectors

_LOOPS = {kind: Loops(f"functions{kind[-2:]}", "sequence_pool") for kind in ("float32", "float64")}


@offer("sequence_pool", any_size=True)
def sequence_pool(xp: Any, x: Any, *others: Any, pooltype: str, pad_value: float, **attrs: Any) -> Any:
    kind, columns = numba_name(x.dtype), prod(x.shape[1:])
    if kind is None or pooltype in ("FIRST", "LAST") or -1 in x.shape[1:] or not is_wide(columns):
        return None
    matrix = f"{kind}[:, ::1]"
    words = {"MAX": ("maxima", "float64", matrix, "int32[:, ::1]")}
    name, *types = words.get(pooltype, ("sums", "float64[::1]", "float64", matrix))
    loop = _LOOPS[kind].compiled(name, f"void({', '.join([matrix, 'int64[::1]', *types])})")

    def pool(x: Any, levels: Any) -> Any:
        offsets = np.ascontiguousarray(levels[-1], np.int64)
        rows = vectors(x)[0].reshape(-1, columns)
        out = np.empty((len(offsets) - 1, *x.shape[1:]), x.dtype)
        flat = out.reshape(-1, columns)
        if pooltype == "MAX":
            places = np.empty(out.shape, np.int32)
            loop(rows, offsets, pad_value, flat, places.reshape(flat.shape))
            return out, places
        loop(rows, offsets, _factors(pooltype, np.diff(offsets)), pad_value, flat)
        return out, np.zeros((0, *x.shape[1:]), np.int32)

    return pool


def _factors(pooltype: str, lengths: Any) -> Any:
    if pooltype == "SUM":
        return np.ones(len(lengths))
    counts = np.maximum(lengths, 1).astype(np.float64)
    return 1 / (np.sqrt(counts) if pooltype == "SQRT" else counts)
