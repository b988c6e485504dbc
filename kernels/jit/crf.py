"""Conditional random fields whose sums over paths and best paths are compiled loops.

Results are within 8 units of the last place of the shared kernels' results for each step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minigraph.kernels.crf import crf_decoding_by, linear_chain_crf_by, linear_chain_crf_grad_by
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_wide, numba_name, offer

_LOOPS = Loops("crf")


def _loop(name: str, letters: str, kind: str = "float64") -> Any:
    """The loop `name` for tensors, ``t``, matrices, ``m``, paths, ``p``, and lengths, ``l``."""
    types = {"t": f"{kind}[:, :, ::1]", "m": f"{kind}[:, ::1]", "p": "int64[:, ::1]", "l": "int64[::1]"}
    return _LOOPS.typed(name, letters, types)


def _forward(xp: Any, exps: Any, weights: Any, present: Any) -> tuple[Any, Any]:
    alpha, totals = np.zeros(exps.shape), np.ones(present.shape)
    _loop("forward", "tmltm")(np.ascontiguousarray(exps), weights, present.sum(1), alpha, totals)
    return alpha, totals


def _backward(xp: Any, exps: Any, weights: Any, present: Any) -> Any:
    beta = np.zeros(exps.shape)
    back = np.ascontiguousarray(weights[2:].T)
    _loop("backward", "tmmlt")(np.ascontiguousarray(exps), weights, back, present.sum(1), beta)
    return beta


def _best_path(xp: Any, emission: Any, transition: Any, present: Any) -> Any:
    path = np.zeros(present.shape, np.int64)
    given = np.ascontiguousarray(emission), np.ascontiguousarray(transition)
    loop = _loop("best_paths", "tmlmp", str(numba_name(emission.dtype)))
    loop(*given, present.sum(1), np.empty(emission.shape[1:], emission.dtype), path)
    return path


def _offer(type: str, kernel: Any, is_known: Any = lambda dtype: True) -> None:
    @offer(type, any_size=True)
    def offered(xp: Any, emission: Any, *given: Any, **attrs: Any) -> Any:
        # A step makes all pairs of tags, so that the work of a row is the square of their number.
        is_compiled = is_wide(emission.shape[-1] ** 2) and is_known(emission.dtype)
        return partial(kernel, xp, **attrs) if is_compiled else None


_offer("linear_chain_crf", linear_chain_crf_by(_forward))
_offer("linear_chain_crf_grad", linear_chain_crf_grad_by(_backward))
_offer("crf_decoding", crf_decoding_by(_best_path), numba_name)
