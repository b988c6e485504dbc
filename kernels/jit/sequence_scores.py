"""Scores of predicted sequences by compiled loops, with the results of the shared kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import offer
from minigraph.kernels.sequence_scores import edit_distance_by

_LOOPS = Loops("sequence_scores")


def _distances(*given: np.ndarray) -> np.ndarray:
    loop = _LOOPS.typed("edit_distances", "mmvvvv", {"m": "int64[:, ::1]", "v": "int64[::1]"})
    a, b, *counts = (np.ascontiguousarray(each, np.int64) for each in given)
    result = np.empty(len(a), np.int64)
    loop(a, b, *counts, np.empty(b.shape[1] + 1, np.int64), result)
    return result


@offer("edit_distance", any_size=True)
def edit_distance(xp: Any, *given: Any, **attrs: Any) -> Any:
    return partial(edit_distance_by(_distances), xp, **attrs)
