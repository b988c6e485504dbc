"""Connectionist temporal classification whose sums over paths are a compiled loop.

Results are within 8 units of the last place of the shared kernel's results for each step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minigraph.kernels.ctc import LEAST, warpctc_by
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_wide, offer

_LOOPS = Loops("ctc")
_SIGNATURE = "boolean(float64[:, :, ::1], {0}, {0}, int64[::1], float64, float64[::1], float64[:, :, ::1])".format(
    "float64[:, ::1]"
)


def _scaled_sums(xp: Any, of_states: Any, skips: Any, ends: Any, present: Any) -> tuple[Any, Any]:
    loop = _LOOPS.compiled("path_shares", _SIGNATURE)
    lengths = present.sum(0)
    log_totals, share = np.zeros(len(lengths)), np.zeros_like(of_states)
    needs_logarithms = loop(
        of_states, skips.astype(np.float64), ends.astype(np.float64), lengths, LEAST, log_totals, share
    )
    return (None, None) if needs_logarithms else (log_totals, share)


@offer("warpctc", any_size=True)
def warpctc(xp: Any, logits: Any, *given: Any, **attrs: Any) -> Any:
    return partial(warpctc_by(_scaled_sums), xp, **attrs) if is_wide(logits.shape[-1]) else None
