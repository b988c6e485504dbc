"""Conditional random fields as compiled loops.

Results are within 8 units of the last place of the shared kernels' results for each step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minigraph.kernels.batches import Batch
from minigraph.kernels.crf import crf_decoding_by, exponentials, tags_of
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_wide, numba_name, offer

_LOOPS = Loops("functions64", "exponentials", "crf")


def _loop(name: str, letters: str, kind: str = "float64") -> Any:
    """The loop `name` for tensors, ``t``, matrices, ``m``, those of float64, ``w``, paths, ``p``, and so on."""
    types = {
        "t": f"{kind}[:, :, ::1]", "m": f"{kind}[:, ::1]", "w": "float64[:, ::1]", "p": "int64[:, ::1]",
        "l": "int64[::1]", "n": "float64", "v": "float64[::1]",
    }  # fmt: skip
    return _LOOPS.typed(name, letters, types)


def _rows(x: Any, kind: str) -> Any:
    """One row of float32 or float64 for each step."""
    return np.ascontiguousarray(x, kind).reshape(-1, x.shape[-1])


def _kind(dtype: Any) -> str:
    """The type that loops compute float16 in, or the type itself."""
    return numba_name(dtype) or "float32"


def _spans(batch: Batch, levels: Any) -> tuple[Any, Any]:
    """First row and number of rows of each sequence."""
    if batch.are_rows:
        return np.ascontiguousarray(levels[-1][:-1]), batch.lengths
    count, steps = batch.present.shape
    return np.arange(count) * steps, batch.lengths


def _numbered(batch: Batch, label: Any, count: int) -> Any:
    """The tag of each row."""
    return np.ascontiguousarray(batch.as_given(tags_of(np, label, batch, count)), np.int64).reshape(-1)


def _linear_chain_crf(xp: Any, emission: Any, transition: Any, label: Any, length: Any, levels: Any = None) -> Any:
    batch, kind = Batch(np, emission, length, levels, "Emission"), _kind(emission.dtype)
    rows = _rows(emission, kind)
    weights, top = exponentials(np, transition, None)
    alpha, exps, out = np.zeros_like(rows), np.empty_like(rows), np.empty(len(batch.present))
    given = _numbered(batch, label, rows.shape[1]), *_spans(batch, levels)
    _loop("losses", "mwwnlllmmv", kind)(rows, transition.astype(np.float64), weights, top, *given, alpha, exps, out)
    results = alpha.reshape(emission.shape), exps.reshape(emission.shape), np.exp(transition.astype(np.float64))
    return tuple(result.astype(emission.dtype, copy=False) for result in (*results, out[:, None]))


def _linear_chain_crf_grad(
    xp: Any, emission: Any, transition: Any, label: Any, length: Any, alpha: Any, emission_exps: Any,
    transition_exps: Any, d_out: Any, levels: Any = None, *, wanted: Any,
) -> Any:  # fmt: skip
    batch, kind = Batch(np, emission, length, levels, "Emission"), _kind(emission.dtype)
    weights = exponentials(np, transition, None)[0]
    given = _numbered(batch, label, transition.shape[1]), *_spans(batch, levels)
    d_emission, d_transition = np.zeros((len(given[0]), transition.shape[1]), kind), np.zeros(transition.shape)
    sums = _rows(alpha, kind), _rows(emission_exps, kind), d_out.astype(np.float64).reshape(-1)
    back = np.ascontiguousarray(weights[2:].T)
    _loop("gradients", "wwlllmmvmw", kind)(weights, back, *given, *sums, d_emission, d_transition)
    d_emission = d_emission.reshape(emission.shape).astype(emission.dtype, copy=False)
    return d_emission, d_transition.astype(transition.dtype) if wanted[1] else None


def _best_path(xp: Any, emission: Any, transition: Any, batch: Batch) -> Any:
    path = np.zeros(batch.present.shape, np.int64)
    given = np.ascontiguousarray(emission), np.ascontiguousarray(transition)
    loop = _loop("best_paths", "tmlmp", str(numba_name(emission.dtype)))
    loop(*given, batch.lengths, np.empty(emission.shape[1:], emission.dtype), path)
    return path


def _offer(type: str, kernel: Any, is_known: Any = lambda dtype: True) -> None:
    @offer(type, any_size=True)
    def offered(xp: Any, emission: Any, *given: Any, **attrs: Any) -> Any:
        # A step makes all pairs of tags, so that the work of a row is the square of their number.
        is_compiled = is_wide(emission.shape[-1] ** 2) and is_known(emission.dtype)
        return partial(kernel, xp, **attrs) if is_compiled else None


_offer("linear_chain_crf", _linear_chain_crf)
_offer("linear_chain_crf_grad", _linear_chain_crf_grad)
_offer("crf_decoding", crf_decoding_by(_best_path), numba_name)
