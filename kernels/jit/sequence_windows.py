"""Row convolutions over sequences by compiled loops.

Results are within 8 units of the last place of the shared kernels' results; a gradient of the weights is compared with
its largest element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_wide, numba_name, offer
from minigraph.kernels.sequence_rows import lengths_of
from minigraph.kernels.sequence_windows import offsets_of_rows
from minigraph.kernels.sums import add_over

_LOOPS = Loops("sequence_windows")
_ROWS_OF_A_PART = 32
"""Rows whose products are added one by one: sums of many would lose digits."""


def _loop(name: str, letters: str, dtype: Any) -> Any:
    """The loop `name` for matrices, ``m``, tensors, ``t``, and the ends of sequences, ``e``."""
    kind = numba_name(dtype)
    types = {"m": f"{kind}[:, ::1]", "t": f"{kind}[:, :, ::1]", "e": "int64[::1]"}
    return _LOOPS.typed(name, letters, types)


def _ends(x: Any, x_lod: Any) -> Any:
    offsets = offsets_of_rows(x, x_lod)
    return np.repeat(offsets[1:], lengths_of(offsets))


def _is_compiled(x: Any) -> bool:
    return len(x.shape) == 2 and numba_name(x.dtype) is not None and is_wide(x.shape[1])


@offer("row_conv", any_size=True)
def row_conv(xp: Any, x: Any, *others: Any) -> Any:
    def lookahead(x: Any, weights: Any, x_lod: Any = None) -> Any:
        out = np.zeros_like(x)
        _loop("lookahead", "mmem", x.dtype)(x, weights, _ends(x, x_lod), out)
        return out

    return lookahead if _is_compiled(x) else None


@offer("row_conv_grad", any_size=True)
def row_conv_grad(xp: Any, x: Any, *others: Any, wanted: Any) -> Any:
    def lookahead_grad(x: Any, weights: Any, d_out: Any, x_lod: Any = None) -> Any:
        d_x = np.zeros_like(x)
        d_weights = np.zeros((max(1, len(x) // _ROWS_OF_A_PART), *weights.shape), x.dtype)
        _loop("lookahead_grad", "mmmemt", x.dtype)(x, weights, d_out, _ends(x, x_lod), d_x, d_weights)
        return (d_x if wanted[0] else None), (add_over(np, d_weights, (0,)) if wanted[1] else None)

    return lookahead_grad if _is_compiled(x) else None
