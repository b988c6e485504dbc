"""Connectionist temporal classification whose sums over paths are a compiled loop.

Results are within 8 units of the last place of the shared kernel's results for each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.ctc import LEAST, warpctc_by
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import offer_for_wide

_LOOPS = Loops("ctc")
_TYPES = {"t": "float64[:, :, ::1]", "m": "float64[:, ::1]", "v": "float64[::1]", "l": "int64[::1]", "n": "float64"}
"""Types of tensors, matrices, vectors, lengths and numbers."""


def _scaled_sums(xp: Any, of_states: Any, skips: Any, ends: Any, present: Any) -> tuple[Any, Any]:
    loop = _LOOPS.typed("path_shares", "tmmlnvt", _TYPES, "boolean")
    lengths = present.sum(0)
    log_totals, share = np.zeros(len(lengths)), np.zeros_like(of_states)
    needs_logarithms = loop(
        of_states, skips.astype(np.float64), ends.astype(np.float64), lengths, LEAST, log_totals, share
    )
    return (None, None) if needs_logarithms else (log_totals, share)


offer_for_wide("warpctc", warpctc_by(_scaled_sums))
