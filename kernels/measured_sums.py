"""Sums over ranks whose squares are added up while they are made, and norms of the sums.

The sum of the squares is exact but for the roundings of the parts, as by `minigraph.kernels.norm`. All ranks have the
same, because each adds up its part alone, and then the numbers of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import local
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.clip import factor_for
from minigraph.kernels.collective import merged_call
from minigraph.kernels.sums import squares_in_parts
from minigraph.support.communicator import current, sums_in_order


def _clip_factor(total, clip_norm, out):
    return factor_for(np, clip_norm, 1.0, total**0.5, out)


def _global_norm(total, xs, out):
    return deliver(np, np.array([total**0.5], np.float32), out)


OF_SQUARES = {"clip_factor": _clip_factor, "global_norm": _global_norm}
"""Results of operators whose norm, of order 2, is the root of a number; with their last argument."""


class MeasuredSum:
    """The function of an exchange of float32, and those of norms of what it gives.

    With `jit`, a compiled loop adds up the squares. Each thread that runs a plan has a sum of its own.
    """

    def __init__(self, jit: bool) -> None:
        self._squares: Callable[[Any], Sequence[float]] = squares_in_parts
        if jit:
            from minigraph.kernels.jit.norms import parts_of_squares  # late: only executors that compile have numba

            self._squares = parts_of_squares()
        self._found = local()

    def exchange(self, xp: Any, x: Any, *, ring_id: int, op_input_names: Sequence[str], over: Any) -> None:
        """``merged_c_allreduce_sum`` with results that are written over its operand."""
        call = merged_call(op_input_names, ring_id, over)
        self._found.total = None
        if sums_in_order():
            current().all_reduce(over, "sum", call, over)
        else:
            self._found.total = current().sum_with_squares(over, call, self._squares)

    def norm(self, type: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a norm, for which `function` stands where the squares are not known."""

        def measured(*arguments, **keywords):
            total = self._found.total
            if total is None:
                return function(*arguments, **keywords)
            return OF_SQUARES[type](total, arguments[-1], keywords.get("out"))

        return measured
