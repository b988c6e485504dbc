"""Steps of recurrent networks over sequences, with the usual activations.

Results are within 8 units of the last place of the shared kernels' results for each step that they depend on.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import IS_KNOWN
from minigraph.kernels.jit.offers import is_wide, numba_name, offer
from minigraph.kernels.recurrent_cells import ACTIVATIONS, GRUCell, LSTMCell, Projection, weights_of_gru
from minigraph.kernels.recurrent_sequences import (
    gru_by,
    gru_grad_by,
    lstm_by,
    lstm_grad_by,
    lstmp_by,
    lstmp_grad_by,
)
from minigraph.kernels.step_products import StepProduct
from minigraph.support import blas

_LOOPS = {
    kind: Loops(f"functions{kind[-2:]}", "exponentials", "layout", "table", "recurrent")
    for kind in ("float32", "float64")
}


@cache
def _loop(name: str, letters: str, dtype: Any) -> Any:
    """The loop `name` for matrices, ``m``, also in parts, ``p``, vectors of rows, ``r``, and booleans, ``b``."""
    kind = numba_name(dtype)
    assert kind is not None
    types = {"m": f"{kind}[:, ::1]", "p": f"{kind}[:, :, ::1]", "r": "int64[::1]", "b": "boolean"}
    if letters[0] == "g":
        types["g"] = f"int64, {_gemm(dtype)[1].dtype}"
    return _LOOPS[kind].typed(name, letters, types)


@cache
def _steps(name: str, letters: str, dtype: Any) -> Any:
    """The loop `name` over steps, with products by BLAS."""
    return partial(_loop(name, "g" + letters, dtype), *_gemm(dtype))


@cache
def _gemm(dtype: Any) -> tuple[int, Any]:
    """Address of BLAS's product of matrices, 0 if it is not known, and a number of the type of its integers."""
    found = blas.address_of(f"cblas_{'s' if dtype == np.float32 else 'd'}gemm") if IS_KNOWN else None
    address, bits = found or (0, 64)
    return address, np.dtype(f"int{bits}").type(0)


def _forms(product: StepProduct) -> tuple[np.ndarray, np.ndarray]:
    """A matrix in parts, and as one part."""
    whole = product.matrix[None]
    return whole if product.parts is None else product.parts, whole


class _LSTMCell(LSTMCell):
    """A cell whose steps are one compiled loop."""

    def shares(self, x, rows, bias) -> np.ndarray:
        return _shares(x, rows, bias)

    def run(self, steps, weight, before, cells_before, run, given, projection) -> None:
        first = np.zeros((steps.most(), run.cells.shape[1]), weight.dtype) if cells_before is None else cells_before
        states = first[:0] if before is None else before
        loop = _steps("lstm", "rppmmmmmmmpbm", weight.dtype)
        forms = _forms(StepProduct(np, weight, steps.most()))
        part = _part(projection, weight.dtype)
        loop(steps.starts, *forms, self._seen(first), states, first, *run, part, _is_squashed(projection), given)

    def run_grad(self, steps, back, run, given, cells_before, d_given, d_cells, d_gates, d_first_cells, projection):
        loop = _steps("lstm_grad", "rppmmmmmmmmpbm", back.dtype)
        forms = _forms(StepProduct(np, back, steps.most()))
        arrays = run.gates, cells_before, run.squashed, d_given, d_cells, d_gates, d_first_cells
        part = np.ascontiguousarray(_part(projection, back.dtype).swapaxes(1, 2))
        loop(steps.starts, *forms, self._seen(d_first_cells), *arrays, part, _is_squashed(projection), given)

    def _seen(self, cells) -> np.ndarray:
        return np.zeros((3, cells.shape[1]), cells.dtype) if self.seen is None else self.seen


def _part(projection: Projection | None, dtype: Any) -> np.ndarray:
    """The matrix of a projection as one part, or none."""
    return np.empty((0, 0, 0), dtype) if projection is None else np.ascontiguousarray(projection.weight)[None]


def _is_squashed(projection: Projection | None) -> bool:
    return projection is not None and projection.act is ACTIVATIONS["tanh"]


class _GRUCell(GRUCell):
    """A cell whose steps are one compiled loop."""

    def shares(self, x, rows, bias) -> np.ndarray:
        return _shares(x, rows, bias)

    def run(self, steps, weight, before, run) -> None:
        loop = _steps("gru", "rpppmbmmm", weight.dtype)
        for_gates, for_candidate = (StepProduct(np, each, steps.most()) for each in weights_of_gru(weight))
        forms = *_forms(for_gates), _forms(for_candidate)[0]
        loop(steps.starts, *forms, before, self.origin_mode, *run)

    def run_grad(self, steps, for_gates, for_candidate, run, before, d_hidden, d_gates, d_first) -> None:
        loop = _steps("gru_grad", "rpppbmmmmm", before.dtype)
        products = [StepProduct(np, each, steps.most()) for each in (for_gates, for_candidate)]
        forms = *_forms(products[0]), _forms(products[1])[0]
        loop(steps.starts, *forms, self.origin_mode, run.gates, before, d_hidden, d_gates, d_first)


def _shares(x: np.ndarray, rows: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    gates = np.empty_like(x)
    _loop("shares", "mrmm", x.dtype)(x, rows, x[:0] if bias is None else bias[None], gates)
    return gates


def _is_usual(weight: Any, gate: str, *others: str) -> bool:
    usual = gate == "sigmoid" and set(others) == {"tanh"}
    return (
        usual
        and is_wide(weight.shape[0])
        and numba_name(weight.dtype) is not None
        and _gemm(np.dtype(weight.dtype))[0] != 0
    )


@offer("lstm", any_size=True)
def lstm(xp, x, h0, c0, weight, *others, **attrs):
    return partial(lstm_by(_LSTMCell), xp, **attrs) if _is_usual_lstm(weight, attrs) else None


@offer("lstm_grad", any_size=True)
def lstm_grad(xp, x, h0, c0, weight, *others, **attrs):
    return partial(lstm_grad_by(_LSTMCell), xp, **attrs) if _is_usual_lstm(weight, attrs) else None


def _is_usual_lstm(weight: Any, attrs: dict[str, Any]) -> bool:
    names = (attrs[f"{name}_activation"] for name in ("gate", "cell", "candidate"))
    return _is_usual(weight, *names)


@offer("lstmp", any_size=True)
def lstmp(xp, x, h0, c0, weight, *others, **attrs):
    return partial(lstmp_by(_LSTMCell), xp, **attrs) if _is_usual_lstmp(weight, attrs) else None


@offer("lstmp_grad", any_size=True)
def lstmp_grad(xp, x, h0, c0, weight, *others, **attrs):
    return partial(lstmp_grad_by(_LSTMCell), xp, **attrs) if _is_usual_lstmp(weight, attrs) else None


def _is_usual_lstmp(weight: Any, attrs: dict[str, Any]) -> bool:
    is_clipped = attrs["cell_clip"] > 0 or attrs["proj_clip"] > 0
    return _is_usual_lstm(weight, attrs) and attrs["proj_activation"] in ("tanh", "identity") and not is_clipped


@offer("gru", any_size=True)
def gru(xp, x, h0, weight, *others, **attrs):
    return partial(gru_by(_GRUCell), xp, **attrs) if _is_usual_gru(weight, attrs) else None


@offer("gru_grad", any_size=True)
def gru_grad(xp, x, h0, weight, *others, **attrs):
    return partial(gru_grad_by(_GRUCell), xp, **attrs) if _is_usual_gru(weight, attrs) else None


def _is_usual_gru(weight: Any, attrs: dict[str, Any]) -> bool:
    return _is_usual(weight, attrs["gate_activation"], attrs["activation"])
