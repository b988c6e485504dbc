"""Averages of parameters over the steps of a training. On a GPU, reading the counters waits for the device."""

from __future__ import annotations

import numpy as np

from minigraph.kernels.registry import kernel
from minigraph.kernels.tensor import copied

_MOST_SUMMED = 16384
"""Maximum steps in one sum: a longer sum would lose digits of the parameters."""


@kernel("average_accumulates")
def average_accumulates(
    xp, param, sum_1, sum_2, sum_3, count, old_count, updates,
    *, average_window, max_average_window, min_average_window, out=None,
):  # fmt: skip
    # Copies: each result may be written to the memory of any input, before the others are.
    updates, count, old_count = updates + 1, count + 1, old_count.copy()
    sum_2, sum_3 = sum_2.copy(), sum_3.copy()
    sum_1 = xp.add(sum_1, param)
    if updates.item() % _MOST_SUMMED == 0:
        sum_1, sum_2 = xp.zeros_like(param), xp.add(sum_1, sum_2)
    window = min(max_average_window, int(np.float32(updates.item()) * np.float32(average_window)))
    if count.item() >= max(min_average_window, window):
        sum_1, sum_2, sum_3 = xp.zeros_like(param), xp.zeros_like(param), xp.add(sum_1, sum_2)
        count, old_count = xp.zeros_like(count), count
    results = (sum_1, sum_2, sum_3, count, old_count, updates)
    return tuple(copied(xp, result, buffer) for result, buffer in zip(results, out or (None,) * 6, strict=True))
