"""One step of recurrent cells. float16 is computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.kernels.activation import relu, relu_grad, sigmoid, sigmoid_grad, tanh, tanh_grad
from minigraph.kernels.matrix import bare_dot
from minigraph.kernels.registry import kernel, specialize
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import widen


def _same(xp, x) -> Any:
    return x


def _same_grad(xp, result, d_out) -> Any:
    return d_out


_ACTIVATIONS = ((_same, _same_grad), (sigmoid, sigmoid_grad), (tanh, tanh_grad), (relu, relu_grad))
"""Function and gradient by the numbers that attributes hold."""


def _wide(*arrays) -> list[Any]:
    return [None if a is None else widen(a) for a in arrays]


def _narrowed(like, *arrays) -> tuple[Any, ...]:
    return tuple(a if a is None else a.astype(like.dtype, copy=False) for a in arrays)


def _weights(weight) -> tuple[Any, Any]:
    """The matrices for the gates and for the candidate, which lie one after the other."""
    size, flat = len(weight), weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)


@kernel("gru_unit")
def gru_unit(xp, x, hidden, weight, bias, *, activation, gate_activation, origin_mode):
    step = _gru_step(xp, activation, gate_activation, origin_mode)
    return _narrowed(x, *step(*_wide(x, hidden, weight, bias)))


@kernel("gru_unit_grad")
def gru_unit_grad(
    xp, x, hidden, weight, bias, gate, kept, d_hidden, *, activation, gate_activation, origin_mode, wanted
):  # fmt: skip
    step = _gru_step_grad(xp, activation, gate_activation, origin_mode, wanted)
    return _narrowed(x, *step(*_wide(x, hidden, weight, bias, gate, kept, d_hidden)))


@specialize("gru_unit")
def _wide_gru(xp, x, hidden, weight, bias, *, activation, gate_activation, origin_mode):
    return None if x.dtype == np.float16 else _gru_step(xp, activation, gate_activation, origin_mode)


@specialize("gru_unit_grad")
def _wide_gru_grad(
    xp, x, hidden, weight, bias, gate, kept, d_hidden, *, activation, gate_activation, origin_mode, wanted
):  # fmt: skip
    return None if x.dtype == np.float16 else _gru_step_grad(xp, activation, gate_activation, origin_mode, wanted)


def _gru_step(xp, activation, gate_activation, origin_mode) -> Callable[..., Any]:
    """A step as a function of arrays of float32 or float64."""
    dot, gates_of, candidate_of = bare_dot(xp), _ACTIVATIONS[gate_activation][0], _ACTIVATIONS[activation][0]

    def step(total, before, w, b):
        size = before.shape[1]
        for_gates, for_candidate = _weights(w)
        gate = total.copy() if b is None else total + b
        both, last = gate[:, : 2 * size], gate[:, 2 * size :]
        # One product for both gates; the candidate needs the reset gate first.
        both += dot(before, for_gates)
        both[...] = gates_of(xp, both)
        update, reset = both[:, :size], both[:, size:]
        kept = reset * before
        last[...] = candidate = candidate_of(xp, last + dot(kept, for_candidate))
        result = candidate + update * (before - candidate) if origin_mode else before + update * (candidate - before)
        return gate, kept, result

    return step


def _gru_step_grad(xp, activation, gate_activation, origin_mode, wanted) -> Callable[..., Any]:
    """The gradients of a step as a function of arrays of float32 or float64."""
    dot, gates_grad, candidate_grad = bare_dot(xp), _ACTIVATIONS[gate_activation][1], _ACTIVATIONS[activation][1]

    def step_grad(total, before, w, b, gate, kept, d):
        size = before.shape[1]
        for_gates, for_candidate = _weights(w)
        update, reset, candidate = gate[:, :size], gate[:, size : 2 * size], gate[:, 2 * size :]
        rest = 1 - update
        d_gate = xp.empty_like(gate)
        d_both, d_last = d_gate[:, : 2 * size], d_gate[:, 2 * size :]
        d_last[...] = candidate_grad(xp, candidate, d * (rest if origin_mode else update))
        d_kept = dot(d_last, for_candidate.T)
        # The gradients of both gates side by side, as the gates lie, for one product.
        d_update = (d if origin_mode else -d) * (before - candidate)
        d_both[...] = gates_grad(xp, gate[:, : 2 * size], xp.concatenate([d_update, d_kept * before], 1))
        d_before = d * (update if origin_mode else rest)
        d_before += d_kept * reset + dot(d_both, for_gates.T)
        d_weight = d_bias = None
        if wanted[2]:
            parts = dot(before.T, d_both), dot(kept.T, d_last)
            d_weight = xp.concatenate([part.reshape(-1) for part in parts]).reshape(w.shape)
        if wanted[3]:
            d_bias = add_over(xp, d_gate, (0,), keepdims=True)
        return d_gate, d_before, d_weight, d_bias

    return step_grad


@kernel("lstm_unit")
def lstm_unit(xp, x, c_prev, *, forget_bias):
    wide, before = _wide(x, c_prev)
    i, f, o, g = _gates(xp, wide, forget_bias)
    cell = f * before + i * g
    return _narrowed(x, cell, o * xp.tanh(cell))


@kernel("lstm_unit_grad")
def lstm_unit_grad(xp, x, c_prev, cell, d_cell, d_out, *, forget_bias):
    wide, before, c, d_c, d_h = _wide(x, c_prev, cell, d_cell, d_out)
    i, f, o, g = _gates(xp, wide, forget_bias)
    squashed = xp.tanh(c)
    d_c = d_c + tanh_grad(xp, squashed, d_h * o)
    d_gates = [
        sigmoid_grad(xp, i, d_c * g), sigmoid_grad(xp, f, d_c * before), sigmoid_grad(xp, o, d_h * squashed),
        tanh_grad(xp, g, d_c * i),
    ]  # fmt: skip
    return _narrowed(x, xp.concatenate(d_gates, 1), d_c * f)


def _gates(xp, x, forget_bias) -> tuple[Any, Any, Any, Any]:
    size = x.shape[1] // 4
    i, f, o, g = (x[:, k * size : (k + 1) * size] for k in range(4))
    return sigmoid(xp, i), sigmoid(xp, f + x.dtype.type(forget_bias)), sigmoid(xp, o), xp.tanh(g)
