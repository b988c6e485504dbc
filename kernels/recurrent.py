"""One step of recurrent cells. float16 is computed in float32."""

from __future__ import annotations

from typing import Any

from minigraph.kernels.activation import relu, relu_grad, sigmoid, sigmoid_grad, tanh, tanh_grad
from minigraph.kernels.cuda import gemm
from minigraph.kernels.registry import kernel
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
    """The matrices for the gates and for the candidate, which lie one behind the other."""
    size, flat = len(weight), weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)


@kernel("gru_unit")
def gru_unit(xp, x, hidden, weight, bias, *, activation, gate_activation, origin_mode):
    total, before, w, b = _wide(x, hidden, weight, bias)
    size = hidden.shape[1]
    for_gates, for_candidate = _weights(w)
    gate = total.copy() if b is None else total + b
    # One product for both gates; the candidate needs the reset gate first.
    gate[:, : 2 * size] += gemm.dot(xp, before, for_gates)
    gate[:, : 2 * size] = _ACTIVATIONS[gate_activation][0](xp, gate[:, : 2 * size])
    update, reset = gate[:, :size], gate[:, size : 2 * size]
    kept = reset * before
    candidate = _ACTIVATIONS[activation][0](xp, gate[:, 2 * size :] + gemm.dot(xp, kept, for_candidate))
    gate[:, 2 * size :] = candidate
    result = candidate + update * (before - candidate) if origin_mode else before + update * (candidate - before)
    return _narrowed(x, gate, kept, result)


@kernel("gru_unit_grad")
def gru_unit_grad(
    xp, x, hidden, weight, bias, gate, kept, d_hidden, *, activation, gate_activation, origin_mode, wanted
):  # fmt: skip
    before, w, gate, kept, d = _wide(hidden, weight, gate, kept, d_hidden)
    size = hidden.shape[1]
    for_gates, for_candidate = _weights(w)
    update, reset, candidate = (gate[:, i * size : (i + 1) * size] for i in range(3))
    sign = 1 if origin_mode else -1
    d_before = d * (update if origin_mode else 1 - update)
    d_gate = xp.empty_like(gate)
    d_gate[:, 2 * size :] = _ACTIVATIONS[activation][1](xp, candidate, d * ((1 - update) if origin_mode else update))
    d_kept = gemm.dot(xp, d_gate[:, 2 * size :], for_candidate.T)
    # The gradients of both gates side by side, as the gates lie, for one product.
    d_gates = xp.concatenate([sign * d * (before - candidate), d_kept * before], 1)
    d_gate[:, : 2 * size] = _ACTIVATIONS[gate_activation][1](xp, gate[:, : 2 * size], d_gates)
    d_before += d_kept * reset + gemm.dot(xp, d_gate[:, : 2 * size], for_gates.T)
    d_weight = d_bias = None
    if wanted[2]:
        parts = gemm.dot(xp, before.T, d_gate[:, : 2 * size]), gemm.dot(xp, kept.T, d_gate[:, 2 * size :])
        d_weight = xp.concatenate([part.reshape(-1) for part in parts]).reshape(weight.shape)
    if wanted[3]:
        d_bias = add_over(xp, d_gate, (0,), keepdims=True)
    return _narrowed(x, d_gate, d_before, d_weight, d_bias)


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
