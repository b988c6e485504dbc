"""Recurrent networks over sequences of different lengths.

The rows of all sequences are brought into the order of time (`TimeSteps`). So each step is one product with the
weights, for the sequences that still go on, and what needs no earlier step is computed for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph.kernels.recurrent_cells import (
    ACTIVATIONS,
    GRU,
    LSTM,
    GRUCell,
    LSTMCell,
    Projection,
    weights_of_cell,
    weights_of_gru,
)
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import TimeSteps
from minigraph.kernels.sums import add_over


def lstm_forward(xp, steps, x, h0, c0, weight, bias, cell, projection=None) -> tuple[LSTM, Any]:
    """Run a long short-term memory with `weight` from what a step gives to the gates of the next.

    The results of the steps, and what they give to the next one, both by time.
    """
    gates = cell.shares(x, steps.rows, bias[0, : x.shape[1]])
    shape = len(gates), gates.shape[1] // 4
    run = LSTM(gates, *(xp.empty(shape, gates.dtype) for _ in range(3)))
    given = run.hidden if projection is None else xp.empty((len(gates), projection.weight.shape[1]), gates.dtype)
    before, cells_before = (None if state is None else state[steps.ranked] for state in (h0, c0))
    cell.run(steps, weight, before, cells_before, run, given, projection)
    return run, given


def lstm_backward(xp, steps, run, given, h0, c0, weight, bias, d_given, d_cells, cell, projection=None):
    """The gradients of x, h0, c0, weight, bias and the projection's weight, that of x by time.

    `d_given` and `d_cells` are by time, and are changed.
    """
    gates, cells, _, hidden = run
    size = cells.shape[1]
    before, cells_before = earlier(xp, steps, given, h0), earlier(xp, steps, cells, c0)
    first, back = slice(0, steps.most()), xp.ascontiguousarray(weight.T)
    d_gates, d_first_cells = xp.empty_like(gates), xp.zeros((first.stop, size), cells.dtype)
    cell.run_grad(steps, back, run, given, cells_before, d_given, d_cells, d_gates, d_first_cells, projection)
    d_h0 = None if h0 is None else first_of(xp, steps, xp.dot(d_gates[first], back), len(h0))
    d_c0 = None if c0 is None else first_of(xp, steps, d_first_cells, len(c0))
    d_weight = xp.dot(before.T, d_gates)
    d_bias = xp.empty_like(bias)
    d_bias[0, : 4 * size] = add_over(xp, d_gates, (0,))
    if cell.seen is not None:
        d_seen = weights_of_cell(d_bias)
        for row, saw in enumerate((cells_before, cells_before, cells)):
            d_seen[row] = add_over(xp, d_gates[:, (row + 1) * size : (row + 2) * size] * saw, (0,))
    return d_gates, d_h0, d_c0, d_weight, d_bias, None if projection is None else xp.dot(hidden.T, d_given)


def earlier(xp, steps, by_time, first) -> Any:
    """The rows of the step before each; `first`, by sequence, before the first step, or zeros."""
    result = xp.empty_like(by_time)
    count = steps.most()
    result[:count] = 0 if first is None else first[steps.ranked[:count]]
    result[count:] = by_time[steps.before]
    return result


def first_of(xp, steps, by_rank, sequences) -> Any:
    """The gradient of what was before the first step, by sequence; that of an empty sequence is zero."""
    result = xp.zeros((sequences, by_rank.shape[1]), by_rank.dtype)
    result[steps.ranked[: len(by_rank)]] = by_rank
    return result


def gru_forward(xp, steps, x, h0, weight, bias, cell) -> GRU:
    """Run a gated recurrent unit."""
    gates = cell.shares(x, steps.rows, None if bias is None else bias[0])
    size = gates.shape[1] // 3
    run = GRU(gates, *(xp.empty((len(gates), size), gates.dtype) for _ in range(2)))
    before = xp.zeros((len(steps.ranked), size), gates.dtype) if h0 is None else h0[steps.ranked]
    cell.run(steps, weight, before, run)
    return run


def gru_backward(xp, steps, run, h0, weight, bias, d_hidden, cell):
    """The gradients of the inputs of `gru_forward`, x, h0, weight and bias, by time.

    `d_hidden` is by time and is written over.
    """
    _, kept, hidden = run
    size, first = hidden.shape[1], slice(0, steps.most())
    for_gates, for_candidate = (xp.ascontiguousarray(each.T) for each in weights_of_gru(weight))
    before, d_gates = earlier(xp, steps, hidden, h0), xp.empty_like(run.gates)
    d_first = xp.zeros((first.stop, size), hidden.dtype)
    cell.run_grad(steps, for_gates, for_candidate, run, before, d_hidden, d_gates, d_first)
    if h0 is not None:
        d_first += xp.dot(d_gates[first, : 2 * size], for_gates)
    parts = xp.dot(before.T, d_gates[:, : 2 * size]), xp.dot(kept.T, d_gates[:, 2 * size :])
    d_weight = xp.concatenate([part.reshape(-1) for part in parts]).reshape(weight.shape)
    d_bias = None if bias is None else add_over(xp, d_gates, (0,), keepdims=True)
    return d_gates, None if h0 is None else first_of(xp, steps, d_first, len(h0)), d_weight, d_bias


# Kernels


def lstm_by(cell_type) -> Callable[..., Any]:
    """The kernel of ``lstm`` whose steps a cell of this type computes."""

    def lstm(
        xp, x, h0, c0, weight, bias, x_lod, *, use_peepholes, is_reverse, gate_activation, cell_activation,
        candidate_activation,
    ):  # fmt: skip
        steps = TimeSteps.of(x_lod[-1], is_reverse)
        act = gate_activation, cell_activation, candidate_activation
        cell = cell_type(xp, act, weights_of_cell(bias) if use_peepholes else None)
        run, hidden = lstm_forward(xp, steps, x, h0, c0, weight, bias, cell)
        return steps.back(hidden), steps.back(run.cells), run.gates, run.squashed

    return lstm


def lstm_grad_by(cell_type) -> Callable[..., Any]:
    """The kernel of ``lstm_grad`` whose steps a cell of this type computes."""

    def lstm_grad(
        xp, x, h0, c0, weight, bias, hidden, cells, gates, squashed, d_hidden, d_cells, x_lod, *, use_peepholes,
        is_reverse, gate_activation, cell_activation, candidate_activation, wanted,
    ):  # fmt: skip
        steps = TimeSteps.of(x_lod[-1], is_reverse)
        act = gate_activation, cell_activation, candidate_activation
        cell = cell_type(xp, act, weights_of_cell(bias) if use_peepholes else None)
        run = LSTM(gates, cells[steps.rows], squashed, hidden[steps.rows])
        d_hidden, d_cells = _by_time(xp, steps, d_hidden, hidden), _by_time(xp, steps, d_cells, cells)
        d_x, *others, _ = lstm_backward(xp, steps, run, run.hidden, h0, c0, weight, bias, d_hidden, d_cells, cell)
        return steps.back(d_x), *others

    return lstm_grad


kernel("lstm")(lstm_by(LSTMCell))
kernel("lstm_grad")(lstm_grad_by(LSTMCell))


def _by_time(xp, steps, d, like) -> Any:
    """The gradient that flows in, in the order of time; zeros where none does."""
    return xp.zeros_like(like) if d is None else d[steps.rows]


def lstmp_by(cell_type) -> Callable[..., Any]:
    """The kernel of ``lstmp`` whose steps a cell of this type computes."""

    def lstmp(
        xp, x, h0, c0, weight, proj_weight, bias, x_lod, *, use_peepholes, is_reverse, cell_clip, proj_clip,
        gate_activation, cell_activation, candidate_activation, proj_activation,
    ):  # fmt: skip
        steps = TimeSteps.of(x_lod[-1], is_reverse)
        act = gate_activation, cell_activation, candidate_activation
        cell = cell_type(xp, act, weights_of_cell(bias) if use_peepholes else None, cell_clip)
        projection = Projection(proj_weight, ACTIVATIONS[proj_activation], proj_clip)
        run, projected = lstm_forward(xp, steps, x, h0, c0, weight, bias, cell, projection)
        return steps.back(projected), steps.back(run.cells), run.gates, run.squashed, run.hidden

    return lstmp


def lstmp_grad_by(cell_type) -> Callable[..., Any]:
    """The kernel of ``lstmp_grad`` whose steps a cell of this type computes."""

    def lstmp_grad(
        xp, x, h0, c0, weight, proj_weight, bias, projected, cells, gates, squashed, hidden, d_projected, d_cells,
        x_lod, *, use_peepholes, is_reverse, cell_clip, proj_clip, gate_activation, cell_activation,
        candidate_activation, proj_activation, wanted,
    ):  # fmt: skip
        steps = TimeSteps.of(x_lod[-1], is_reverse)
        act = gate_activation, cell_activation, candidate_activation
        cell = cell_type(xp, act, weights_of_cell(bias) if use_peepholes else None, cell_clip)
        projection = Projection(proj_weight, ACTIVATIONS[proj_activation], proj_clip)
        run = LSTM(gates, cells[steps.rows], squashed, hidden)
        d_projected, d_cells = _by_time(xp, steps, d_projected, projected), _by_time(xp, steps, d_cells, cells)
        d_x, d_h0, d_c0, d_weight, d_bias, d_projection = lstm_backward(
            xp, steps, run, projected[steps.rows], h0, c0, weight, bias, d_projected, d_cells, cell, projection
        )
        return steps.back(d_x), d_h0, d_c0, d_weight, d_projection, d_bias

    return lstmp_grad


kernel("lstmp")(lstmp_by(LSTMCell))
kernel("lstmp_grad")(lstmp_grad_by(LSTMCell))


def gru_by(cell_type) -> Callable[..., Any]:
    """The kernel of ``gru`` whose steps a cell of this type computes."""

    def gru(xp, x, h0, weight, bias, x_lod, *, activation, gate_activation, is_reverse, origin_mode):
        steps = TimeSteps.of(x_lod[-1], is_reverse)
        cell = cell_type(xp, (gate_activation, activation), origin_mode)
        run = gru_forward(xp, steps, x, h0, weight, bias, cell)
        return *run, steps.back(run.hidden)

    return gru


kernel("gru")(gru_by(GRUCell))


def gru_grad_by(cell_type) -> Callable[..., Any]:
    """The kernel of ``gru_grad`` whose steps a cell of this type computes."""

    def gru_grad(
        xp, x, h0, weight, bias, gates, kept, by_time, hidden, d_hidden, x_lod, *, activation, gate_activation,
        is_reverse, origin_mode, wanted,
    ):  # fmt: skip
        steps = TimeSteps.of(x_lod[-1], is_reverse)
        cell = cell_type(xp, (gate_activation, activation), origin_mode)
        run = GRU(gates, kept, by_time)
        d_x, *others = gru_backward(xp, steps, run, h0, weight, bias, d_hidden[steps.rows], cell)
        return steps.back(d_x), *others

    return gru_grad


kernel("gru_grad")(gru_grad_by(GRUCell))
