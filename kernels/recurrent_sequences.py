"""Recurrent networks over sequences of different lengths.

The rows of all sequences are brought into the order of time (`TimeSteps`). So each step is one product with the
weights, for the sequences that still go on, and what needs no earlier step is computed for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import TimeSteps
from minigraph.kernels.sums import add_over


def _sigmoid(xp, x) -> None:
    # By tanh, which cannot overflow.
    x *= 0.5
    xp.tanh(x, out=x)
    x *= 0.5
    x += 0.5


def _tanh(xp, x) -> None:
    xp.tanh(x, out=x)


def _relu(xp, x) -> None:
    xp.maximum(x, 0, out=x)


def _identity(xp, x) -> None:
    pass


class Activation(NamedTuple):
    """A function that writes over its argument, and its derivative from its result."""

    apply: Callable[..., None]
    slope: Callable[..., Any]


ACTIVATIONS = {
    "sigmoid": Activation(_sigmoid, lambda xp, y: y - y * y),
    "tanh": Activation(_tanh, lambda xp, y: 1 - y * y),
    "relu": Activation(_relu, lambda xp, y: (y > 0).astype(y.dtype)),
    "identity": Activation(_identity, lambda xp, y: xp.ones_like(y)),
}


class LSTM(NamedTuple):
    """Results of the steps of a long short-term memory, in the order of time.

    The gates of a row are the candidate, the input gate, the forget gate and the output gate, each after its
    activation.
    """

    gates: Any
    cells: Any
    squashed: Any
    """The cells after their activation."""
    hidden: Any


class LSTMCell:
    """Cell of a long short-term memory: a step without the products with weights.

    Parameters
    ----------
    act : sequence of str
        Activations of the gates, the cell and the candidate.
    seen : array or None
        Weights, three rows, of the cell in the input, forget and output gate.
    clip : float
        Bound of the cells, 0 for none.
    """

    def __init__(self, xp, act, seen, clip=0.0) -> None:
        self.xp, self.seen, self.clip = xp, seen, clip
        self.gate, self.cell, self.candidate = (ACTIVATIONS[name] for name in act)

    def step(self, product, before, gates, cells, squashed, hidden) -> None:
        """From the share of x in the gates, that of the step before (`product`, or None), and the cells `before`.

        The last four are written.
        """
        xp, size = self.xp, cells.shape[1]
        if product is not None:
            gates += product
        candidate, both, outer = gates[:, :size], gates[:, size : 3 * size], gates[:, 3 * size :]
        inner, forget = both[:, :size], both[:, size:]
        if before is not None and self.seen is not None:
            inner += before * self.seen[0]
            forget += before * self.seen[1]
        self.candidate.apply(xp, candidate)
        self.gate.apply(xp, both)
        xp.multiply(inner, candidate, out=cells)
        if before is not None:
            cells += forget * before
        if self.clip > 0:
            xp.clip(cells, -self.clip, self.clip, out=cells)
        if self.seen is not None:
            outer += cells * self.seen[2]
        self.gate.apply(xp, outer)
        squashed[...] = cells
        self.cell.apply(xp, squashed)
        xp.multiply(outer, squashed, out=hidden)

    def step_grad(self, run, before, d_hidden, d_cells, d_gates, d_before) -> None:
        """Write from the gradients of a step's results `d_gates`, and add to `d_before`, that of the cells before.

        `d_cells` is changed.
        """
        xp, size = self.xp, run.cells.shape[1]
        candidate, inner, forget, outer = (run.gates[:, k * size : (k + 1) * size] for k in range(4))
        slopes = self.gate.slope(xp, run.gates[:, size:])
        xp.multiply(d_hidden * run.squashed, slopes[:, 2 * size :], out=d_gates[:, 3 * size :])
        d_cells += d_hidden * outer * self.cell.slope(xp, run.squashed)
        if self.seen is not None:
            d_cells += d_gates[:, 3 * size :] * self.seen[2]
        if self.clip > 0:
            d_cells *= abs(run.cells) < self.clip
        xp.multiply(d_cells * inner, self.candidate.slope(xp, candidate), out=d_gates[:, :size])
        xp.multiply(d_cells * candidate, slopes[:, :size], out=d_gates[:, size : 2 * size])
        xp.multiply(d_cells * before, slopes[:, size : 2 * size], out=d_gates[:, 2 * size : 3 * size])
        d_before += d_cells * forget
        if self.seen is not None:
            d_before += d_gates[:, size : 2 * size] * self.seen[0]
            d_before += d_gates[:, 2 * size : 3 * size] * self.seen[1]


class Projection(NamedTuple):
    """Projection of the hidden state for the next step: a product, its activation, perhaps clipped."""

    weight: Any
    act: Activation
    clip: float

    def step(self, xp, hidden, out) -> None:
        out[...] = xp.dot(hidden, self.weight)
        self.act.apply(xp, out)
        if self.clip > 0:
            xp.clip(out, -self.clip, self.clip, out=out)

    def step_grad(self, xp, out, d_out) -> Any:
        """The gradient of the hidden state; `d_out` becomes that of the product."""
        d_out *= self.act.slope(xp, out)
        if self.clip > 0:
            d_out *= abs(out) < self.clip
        return xp.dot(d_out, self.weight.T)


def weights_of_cell(bias) -> Any:
    """The weights of the cell in the gates, three rows after the bias of the four gates; None if there are none."""
    size = bias.shape[1] // 7
    return bias[0, 4 * size :].reshape(3, size)


def lstm_forward(xp, steps, x, h0, c0, weight, bias, cell, projection=None) -> tuple[LSTM, Any]:
    """Run a long short-term memory with `weight` from what a step gives to the gates of the next.

    The results of the steps, and what they give to the next one, both by time.
    """
    gates = x[steps.rows]
    gates += bias[0, : gates.shape[1]]
    shape = len(gates), gates.shape[1] // 4
    run = LSTM(gates, *(xp.empty(shape, gates.dtype) for _ in range(3)))
    given = run.hidden if projection is None else xp.empty((len(gates), projection.weight.shape[1]), gates.dtype)
    before, cells_before = (None if state is None else state[steps.ranked] for state in (h0, c0))
    for step in steps.slices():
        alive = step.stop - step.start
        product = None if before is None else xp.dot(before[:alive], weight)
        part = LSTM(*(each[step] for each in run))
        cell.step(product, None if cells_before is None else cells_before[:alive], *part)
        before, cells_before = given[step], part.cells
        if projection is not None:
            projection.step(xp, part.hidden, before)
    return run, given


def lstm_backward(xp, steps, run, given, h0, c0, weight, bias, d_given, d_cells, cell, projection=None):
    """The gradients of x, h0, c0, weight, bias and the projection's weight, that of x by time.

    `d_given` and `d_cells` are by time, and are changed.
    """
    gates, cells, _, hidden = run
    size = cells.shape[1]
    before, cells_before = earlier(xp, steps, given, h0), earlier(xp, steps, cells, c0)
    slices = steps.slices()
    first = slices[0] if slices else slice(0, 0)
    d_gates, back = xp.empty_like(gates), _turned(xp, weight)
    d_first_cells = xp.zeros((first.stop, size), cells.dtype)
    for number in range(len(slices) - 1, -1, -1):
        step, start = slices[number], slices[number - 1].start
        alive = slice(start, start + step.stop - step.start)
        d_hidden = d_given[step]
        if projection is not None:
            d_hidden = projection.step_grad(xp, given[step], d_hidden)
        d_before = d_cells[alive] if number else d_first_cells
        part = LSTM(*(each[step] for each in run))
        cell.step_grad(part, cells_before[step], d_hidden, d_cells[step], d_gates[step], d_before)
        if number:
            d_given[alive] += xp.dot(d_gates[step], back)
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


def _turned(xp, weight) -> Any:
    """The transposed weight in memory of its own: a product of few rows with it takes two thirds of the time."""
    return xp.ascontiguousarray(weight.T)


def earlier(xp, steps, by_time, first) -> Any:
    """The rows of the step before each; `first`, by sequence, before the first step, or zeros."""
    result = xp.empty_like(by_time)
    count = int(steps.starts[1]) if len(steps.starts) > 1 else 0
    result[:count] = 0 if first is None else first[steps.ranked[:count]]
    result[count:] = by_time[steps.before()]
    return result


def first_of(xp, steps, by_rank, sequences) -> Any:
    """The gradient of what was before the first step, by sequence; that of an empty sequence is zero."""
    result = xp.zeros((sequences, by_rank.shape[1]), by_rank.dtype)
    result[steps.ranked[: len(by_rank)]] = by_rank
    return result


class GRU(NamedTuple):
    """Results of the steps of a gated recurrent unit, in the order of time.

    The gates of a row are the update gate, the reset gate and the candidate, each after its activation.
    """

    gates: Any
    kept: Any
    """The state before, times the reset gate."""
    hidden: Any


class GRUCell:
    """Cell of a gated recurrent unit: a step without the products with weights.

    `act` has the activations of the gates and of the candidate.
    """

    def __init__(self, xp, act, origin_mode) -> None:
        self.xp, self.origin_mode = xp, origin_mode
        self.gate, self.candidate = (ACTIVATIONS[name] for name in act)

    def gates(self, product, before, gates, kept) -> None:
        """From the share of x in the gates and that of the states `before` the gates, and what is kept of `before`."""
        size = kept.shape[1]
        both = gates[:, : 2 * size]
        both += product
        self.gate.apply(self.xp, both)
        self.xp.multiply(both[:, size:], before, out=kept)

    def states(self, product, before, gates, hidden) -> None:
        """From the share of x in the candidates and that of what is kept the candidates and the new states."""
        xp, size = self.xp, hidden.shape[1]
        candidate = gates[:, 2 * size :]
        candidate += product
        self.candidate.apply(xp, candidate)
        start, end = (candidate, before) if self.origin_mode else (before, candidate)
        xp.subtract(end, start, out=hidden)
        hidden *= gates[:, :size]
        hidden += start

    def slopes(self, gates, before) -> Any:
        """Factors that make gradients those of the gates, for all rows at once, in the gates' order.

        That of the state for the update gate and the candidate, that of what is kept for the reset gate.
        """
        xp, size = self.xp, before.shape[1]
        update, _, candidate = (gates[:, k * size : (k + 1) * size] for k in range(3))
        slopes = xp.empty_like(gates)
        slopes[:, : 2 * size] = self.gate.slope(xp, gates[:, : 2 * size])
        slopes[:, :size] *= before - candidate if self.origin_mode else candidate - before
        slopes[:, size : 2 * size] *= before
        share = 1 - update if self.origin_mode else update
        xp.multiply(self.candidate.slope(xp, candidate), share, out=slopes[:, 2 * size :])
        return slopes

    def states_grad(self, slopes, d_hidden, d_gates) -> None:
        """Write the gradients of the update gate and the candidate."""
        size = d_hidden.shape[1]
        for part in (slice(0, size), slice(2 * size, None)):
            self.xp.multiply(d_hidden, slopes[:, part], out=d_gates[:, part])

    def gates_grad(self, slopes, gates, d_hidden, d_kept, d_gates, d_before) -> None:
        """Write the gradient of the reset gate, and add to `d_before` what goes past the gates; `d_kept` is changed."""
        xp, size = self.xp, d_hidden.shape[1]
        reset = slice(size, 2 * size)
        xp.multiply(d_kept, slopes[:, reset], out=d_gates[:, reset])
        update = gates[:, :size]
        d_before += d_hidden * (update if self.origin_mode else 1 - update)
        d_kept *= gates[:, reset]
        d_before += d_kept


def gru_forward(xp, steps, x, h0, weight, bias, cell) -> GRU:
    """Run a gated recurrent unit."""
    gates = x[steps.rows]
    size = gates.shape[1] // 3
    if bias is not None:
        gates += bias[0]
    for_gates, for_candidate = weights_of_gru(weight)
    run = GRU(gates, *(xp.empty((len(gates), size), gates.dtype) for _ in range(2)))
    sequences = len(steps.ranked)
    before = xp.zeros((sequences, size), gates.dtype) if h0 is None else h0[steps.ranked]
    for step in steps.slices():
        part = GRU(*(each[step] for each in run))
        before = before[: len(part.gates)]
        cell.gates(xp.dot(before, for_gates), before, part.gates, part.kept)
        cell.states(xp.dot(part.kept, for_candidate), before, part.gates, part.hidden)
        before = part.hidden
    return run


def weights_of_gru(weight) -> tuple[Any, Any]:
    """The matrices for the gates and for the candidate, which lie one after the other."""
    size, flat = len(weight), weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)


def gru_backward(xp, steps, run, h0, weight, bias, d_hidden, cell):
    """The gradients of the inputs of `gru_forward`, x, h0, weight and bias, by time.

    `d_hidden` is by time and is written over.
    """
    gates, kept, hidden = run
    size = hidden.shape[1]
    for_gates, for_candidate = (_turned(xp, each) for each in weights_of_gru(weight))
    before = earlier(xp, steps, hidden, h0)
    slopes, d_gates, slices = cell.slopes(gates, before), xp.empty_like(gates), steps.slices()
    d_first = xp.zeros((slices[0].stop if slices else 0, size), hidden.dtype)
    for number in range(len(slices) - 1, -1, -1):
        step, start = slices[number], slices[number - 1].start
        d_h, d_g = d_hidden[step], d_gates[step]
        cell.states_grad(slopes[step], d_h, d_g)
        d_kept = xp.dot(d_g[:, 2 * size :], for_candidate)
        d_before = d_hidden[start : start + len(d_h)] if number else d_first
        cell.gates_grad(slopes[step], gates[step], d_h, d_kept, d_g, d_before)
        if number or h0 is not None:
            d_before += xp.dot(d_g[:, : 2 * size], for_gates)
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


@kernel("lstmp")
def lstmp(
    xp, x, h0, c0, weight, proj_weight, bias, x_lod, *, use_peepholes, is_reverse, cell_clip, proj_clip,
    gate_activation, cell_activation, candidate_activation, proj_activation,
):  # fmt: skip
    steps = TimeSteps.of(x_lod[-1], is_reverse)
    act = gate_activation, cell_activation, candidate_activation
    cell = LSTMCell(xp, act, weights_of_cell(bias) if use_peepholes else None, cell_clip)
    projection = Projection(proj_weight, ACTIVATIONS[proj_activation], proj_clip)
    run, projected = lstm_forward(xp, steps, x, h0, c0, weight, bias, cell, projection)
    return steps.back(projected), steps.back(run.cells), run.gates, run.squashed, run.hidden


@kernel("lstmp_grad")
def lstmp_grad(
    xp, x, h0, c0, weight, proj_weight, bias, projected, cells, gates, squashed, hidden, d_projected, d_cells, x_lod, *,
    use_peepholes, is_reverse, cell_clip, proj_clip, gate_activation, cell_activation, candidate_activation,
    proj_activation, wanted,
):  # fmt: skip
    steps = TimeSteps.of(x_lod[-1], is_reverse)
    act = gate_activation, cell_activation, candidate_activation
    cell = LSTMCell(xp, act, weights_of_cell(bias) if use_peepholes else None, cell_clip)
    projection = Projection(proj_weight, ACTIVATIONS[proj_activation], proj_clip)
    run = LSTM(gates, cells[steps.rows], squashed, hidden)
    d_projected, d_cells = _by_time(xp, steps, d_projected, projected), _by_time(xp, steps, d_cells, cells)
    d_x, d_h0, d_c0, d_weight, d_bias, d_projection = lstm_backward(
        xp, steps, run, projected[steps.rows], h0, c0, weight, bias, d_projected, d_cells, cell, projection
    )
    return steps.back(d_x), d_h0, d_c0, d_weight, d_projection, d_bias


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
