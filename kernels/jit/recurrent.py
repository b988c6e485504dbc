"""Steps of recurrent networks over sequences, with the usual activations.

Results are within 8 units of the last place of the shared kernels' results for each step that they depend on.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_wide, numba_name, offer
from minigraph.kernels.recurrent_sequences import GRUCell, LSTMCell, gru_by, gru_grad_by, lstm_by, lstm_grad_by

_LOOPS = {kind: Loops(f"functions{kind[-2:]}", "exponentials", "recurrent") for kind in ("float32", "float64")}


@cache
def _loop(name: str, letters: str, dtype: Any) -> Any:
    """The loop `name` for matrices, ``m``, and booleans, ``b``, of a type; cached, because each step asks."""
    kind = numba_name(dtype)
    assert kind is not None
    return _LOOPS[kind].typed(name, letters, {"m": f"{kind}[:, ::1]", "b": "boolean"})


class _LSTMCell(LSTMCell):
    """A cell whose steps are compiled loops."""

    def step(self, product, before, gates, cells, squashed, hidden) -> None:
        loop = _loop("lstm_step", "m" * 7, gates.dtype)
        product, before = _or_zeros(product, gates), _or_zeros(before, cells)
        loop(product, before, self._seen(cells), gates, cells, squashed, hidden)

    def step_grad(self, run, before, d_hidden, d_cells, d_gates, d_before) -> None:
        loop = _loop("lstm_step_grad", "m" * 8, run.gates.dtype)
        loop(run.gates, before, self._seen(run.cells), run.squashed, d_hidden, d_cells, d_gates, d_before)

    def _seen(self, cells) -> np.ndarray:
        return np.zeros((3, cells.shape[1]), cells.dtype) if self.seen is None else self.seen


class _GRUCell(GRUCell):
    """A cell whose steps are compiled loops."""

    def gates(self, product, before, gates, kept) -> None:
        _loop("gru_gates", "mmmm", gates.dtype)(product, before, gates, kept)

    def states(self, product, before, gates, hidden) -> None:
        _loop("gru_states", "mmbmm", gates.dtype)(product, before, self.origin_mode, gates, hidden)

    def slopes(self, gates, before) -> np.ndarray:
        slopes = np.empty_like(gates)
        _loop("gru_slopes", "mmbm", gates.dtype)(gates, before, self.origin_mode, slopes)
        return slopes

    def states_grad(self, slopes, d_hidden, d_gates) -> None:
        _loop("gru_states_grad", "mmm", slopes.dtype)(slopes, d_hidden, d_gates)

    def gates_grad(self, slopes, gates, d_hidden, d_kept, d_gates, d_before) -> None:
        loop = _loop("gru_gates_grad", "mmbmmmm", slopes.dtype)
        loop(slopes, gates, self.origin_mode, d_hidden, d_kept, d_gates, d_before)


def _or_zeros(given: Any, like: Any) -> Any:
    return np.zeros_like(like) if given is None else given


def _is_usual(weight: Any, gate: str, *others: str) -> bool:
    usual = gate == "sigmoid" and set(others) == {"tanh"}
    return usual and is_wide(weight.shape[0]) and numba_name(weight.dtype) is not None


@offer("lstm", any_size=True)
def lstm(xp, x, h0, c0, weight, *others, **attrs):
    return partial(lstm_by(_LSTMCell), xp, **attrs) if _is_usual_lstm(weight, attrs) else None


@offer("lstm_grad", any_size=True)
def lstm_grad(xp, x, h0, c0, weight, *others, **attrs):
    return partial(lstm_grad_by(_LSTMCell), xp, **attrs) if _is_usual_lstm(weight, attrs) else None


def _is_usual_lstm(weight: Any, attrs: dict[str, Any]) -> bool:
    names = (attrs[f"{name}_activation"] for name in ("gate", "cell", "candidate"))
    return _is_usual(weight, *names)


@offer("gru", any_size=True)
def gru(xp, x, h0, weight, *others, **attrs):
    return partial(gru_by(_GRUCell), xp, **attrs) if _is_usual_gru(weight, attrs) else None


@offer("gru_grad", any_size=True)
def gru_grad(xp, x, h0, weight, *others, **attrs):
    return partial(gru_grad_by(_GRUCell), xp, **attrs) if _is_usual_gru(weight, attrs) else None


def _is_usual_gru(weight: Any, attrs: dict[str, Any]) -> bool:
    return _is_usual(weight, attrs["gate_activation"], attrs["activation"])
