"""Recurrent networks over sequences of different lengths.

The rows of all sequences are brought into the order of time (`TimeSteps`). So each step is one product with the
weights, for the sequences that still go on, and what needs no earlier step is computed for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import TimeSteps
from minigraph.kernels.step_products import StepProduct
from minigraph.kernels.sums import add_over


def _sigmoid(xp, x) -> None:
    # By tanh, which cannot overflow.
    x *= 0.5
    xp.tanh(x, out=x)
    _finish_sigmoid(x)


def _finish_sigmoid(x) -> None:
    """Make the sigmoid of x from ``tanh(x / 2)``."""
    x *= 0.5
    x += 0.5


def _tanh(xp, x) -> None:
    xp.tanh(x, out=x)


def _relu(xp, x) -> None:
    xp.maximum(x, 0, out=x)


def _identity(xp, x) -> None:
    pass


def _sigmoid_slope(xp, y, out) -> None:
    xp.multiply(y, y, out=out)
    xp.subtract(y, out, out=out)


def _tanh_slope(xp, y, out) -> None:
    xp.multiply(y, y, out=out)
    xp.subtract(1, out, out=out)


def _relu_slope(xp, y, out) -> None:
    out[...] = y > 0


def _identity_slope(xp, y, out) -> None:
    out[...] = 1


class Activation(NamedTuple):
    """A function that writes over its argument, and one that writes its derivative, from its result."""

    apply: Callable[..., None]
    slope: Callable[..., None]


ACTIVATIONS = {
    "sigmoid": Activation(_sigmoid, _sigmoid_slope),
    "tanh": Activation(_tanh, _tanh_slope),
    "relu": Activation(_relu, _relu_slope),
    "identity": Activation(_identity, _identity_slope),
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
    """Cell of a long short-term memory, and its steps.

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

    def shares(self, x, rows, bias) -> Any:
        """The shares of x and the bias in the gates, by time."""
        gates = x[rows]
        gates += bias
        return gates

    def run(self, steps, weight, before, cells_before, run, given, projection) -> None:
        """Compute all steps from the shares of x, which `run.gates` has; `before` may be None, and `cells_before`."""
        xp, size = self.xp, run.cells.shape[1]
        seen, is_halved = self.seen, self.gate is ACTIVATIONS["sigmoid"]
        if is_halved:
            # tanh(x / 2) makes a sigmoid of x. A half is exact, and a factor of the weights instead of every step.
            run.gates[:, size:] *= 0.5
            weight = weight.copy()
            weight[:, size:] *= 0.5
            seen = None if seen is None else seen * run.gates.dtype.type(0.5)
        times = StepProduct(xp, weight, steps.most())
        for step in steps.slices():
            alive = step.stop - step.start
            gates, cells, squashed, hidden = (each[step] for each in run)
            if before is not None:
                gates += times(before[:alive])
            now = None if cells_before is None else cells_before[:alive]
            self._step(now, seen, is_halved, gates, cells, squashed, hidden)
            before, cells_before = given[step], cells
            if projection is not None:
                projection.step(xp, hidden, before)

    def _step(self, before, seen, is_halved, gates, cells, squashed, hidden) -> None:
        """Compute all results of a step from the sums of its gates, and the cells `before`."""
        xp, size = self.xp, cells.shape[1]
        inner, forget, outer = (gates[:, k * size : (k + 1) * size] for k in (1, 2, 3))
        candidate = gates[:, :size]
        if before is not None and seen is not None:
            inner += before * seen[0]
            forget += before * seen[1]
        first = gates[:, size:] if seen is None else gates[:, size : 3 * size]
        if is_halved and self.candidate is ACTIVATIONS["tanh"]:
            both = gates[:, : size + first.shape[1]]
            xp.tanh(both, out=both)
            _finish_sigmoid(first)
        else:
            self.candidate.apply(xp, candidate)
            self._apply_gate(first, is_halved)
        xp.multiply(inner, candidate, out=cells)
        if before is not None:
            cells += forget * before
        if self.clip > 0:
            xp.clip(cells, -self.clip, self.clip, out=cells)
        if seen is not None:
            outer += cells * seen[2]
            self._apply_gate(outer, is_halved)
        squashed[...] = cells
        self.cell.apply(xp, squashed)
        xp.multiply(outer, squashed, out=hidden)

    def _apply_gate(self, x, is_halved) -> None:
        if is_halved:
            self.xp.tanh(x, out=x)
            _finish_sigmoid(x)
        else:
            self.gate.apply(self.xp, x)

    def run_grad(self, steps, back, run, given, cells_before, d_given, d_cells, d_gates, d_first_cells, projection):
        """Write `d_gates`, and add to `d_first_cells`, the gradient of the cells before the first step.

        `back` is the transposed weight; `d_given` and `d_cells` are changed.
        """
        xp, slices = self.xp, steps.slices()
        times, slopes = StepProduct(xp, back, steps.most()), self._slopes(run, cells_before)
        for number in range(len(slices) - 1, -1, -1):
            step, start = slices[number], slices[number - 1].start
            alive = slice(start, start + step.stop - step.start)
            d_hidden = d_given[step]
            if projection is not None:
                d_hidden = projection.step_grad(xp, given[step], d_hidden)
            d_before = d_cells[alive] if number else d_first_cells
            factors = tuple(None if each is None else each[step] for each in slopes)
            self._step_grad(factors, d_hidden, d_cells[step], d_gates[step], d_before)
            if number:
                d_given[alive] += times(d_gates[step])

    def _slopes(self, run, before) -> tuple[Any, ...]:
        """Factors that make gradients those of the gates, for all rows at once.

        For the gates, [rows, 4, size], where those of the output gate belong to the gradient of the hidden state and
        others to that of the cells; for the cells from the hidden state; for the cells before; and None, or the cells
        that were not clipped.
        """
        xp, size = self.xp, run.cells.shape[1]
        gates = run.gates.reshape(len(run.gates), 4, size)
        factors, through = xp.empty_like(gates), xp.empty_like(run.squashed)
        self.candidate.slope(xp, gates[:, 0], factors[:, 0])
        self.gate.slope(xp, gates[:, 1:], factors[:, 1:])
        for place, other in enumerate((gates[:, 1], gates[:, 0], before, run.squashed)):
            factors[:, place] *= other
        self.cell.slope(xp, run.squashed, through)
        through *= gates[:, 3]
        return factors, through, gates[:, 2], abs(run.cells) < self.clip if self.clip > 0 else None

    def _step_grad(self, slopes, d_hidden, d_cells, d_gates, d_before) -> None:
        """Write from the gradients of a step's results `d_gates`, and add to `d_before`, that of the cells before.

        `d_cells` is changed.
        """
        xp, (factors, through, forget, kept) = self.xp, slopes
        d_gates = d_gates.reshape(factors.shape)
        xp.multiply(d_hidden, factors[:, 3], out=d_gates[:, 3])
        d_cells += d_hidden * through
        if self.seen is not None:
            d_cells += d_gates[:, 3] * self.seen[2]
        if kept is not None:
            d_cells *= kept
        xp.multiply(d_cells[:, None], factors[:, :3], out=d_gates[:, :3])
        d_before += d_cells * forget
        if self.seen is not None:
            d_before += d_gates[:, 1] * self.seen[0]
            d_before += d_gates[:, 2] * self.seen[1]


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
        slope = xp.empty_like(out)
        self.act.slope(xp, out, slope)
        d_out *= slope
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
    """Cell of a gated recurrent unit, and its steps.

    `act` has the activations of the gates and of the candidate.
    """

    def __init__(self, xp, act, origin_mode) -> None:
        self.xp, self.origin_mode = xp, origin_mode
        self.gate, self.candidate = (ACTIVATIONS[name] for name in act)

    def shares(self, x, rows, bias) -> Any:
        """The shares of x and the bias, which may be None, in the gates, by time."""
        gates = x[rows]
        if bias is not None:
            gates += bias
        return gates

    def run(self, steps, weight, before, run) -> None:
        """Compute all steps from the shares of x, which `run.gates` has; `before` are the states before the first."""
        xp, size = self.xp, run.hidden.shape[1]
        for_gates, for_candidate = weights_of_gru(weight)
        is_halved = self.gate is ACTIVATIONS["sigmoid"]
        if is_halved:  # as in `LSTMCell.run`
            run.gates[:, : 2 * size] *= 0.5
            for_gates = for_gates * run.gates.dtype.type(0.5)
        to_gates, to_candidate = (StepProduct(xp, each, steps.most()) for each in (for_gates, for_candidate))
        for step in steps.slices():
            gates, kept, hidden = (each[step] for each in run)
            before = before[: len(gates)]
            both, candidate = gates[:, : 2 * size], gates[:, 2 * size :]
            both += to_gates(before)
            if is_halved:
                xp.tanh(both, out=both)
                _finish_sigmoid(both)
            else:
                self.gate.apply(xp, both)
            xp.multiply(both[:, size:], before, out=kept)
            candidate += to_candidate(kept)
            self.candidate.apply(xp, candidate)
            start, end = (candidate, before) if self.origin_mode else (before, candidate)
            xp.subtract(end, start, out=hidden)
            hidden *= both[:, :size]
            hidden += start
            before = hidden

    def run_grad(self, steps, for_gates, for_candidate, run, before, d_hidden, d_gates, d_first) -> None:
        """Write `d_gates`, and add to `d_first`, the gradient of the states before the first step.

        The weights are transposed. `before` are the states before each row, and `d_hidden` is changed. The share of the
        first step's update and reset gates in `d_first` is left out.
        """
        xp, size, slices = self.xp, d_hidden.shape[1], steps.slices()
        to_before, to_kept = (StepProduct(xp, each, steps.most()) for each in (for_gates, for_candidate))
        slopes, past = self._slopes(run.gates, before)
        gates, by_gate = (each.reshape(-1, 3, size) for each in (run.gates, d_gates))
        for number in range(len(slices) - 1, -1, -1):
            step, start = slices[number], slices[number - 1].start
            d_h, slope, d_g = d_hidden[step], slopes[step], by_gate[step]
            d_before = d_hidden[start : start + len(d_h)] if number else d_first
            xp.multiply(d_h[:, None], slope[:, ::2], out=d_g[:, ::2])
            d_kept = to_kept(d_g[:, 2])
            xp.multiply(d_kept, slope[:, 1], out=d_g[:, 1])
            d_before += d_h * past[step]
            d_kept *= gates[step, 1]
            d_before += d_kept
            if number:
                d_before += to_before(d_gates[step, : 2 * size])

    def _slopes(self, gates, before) -> tuple[Any, Any]:
        """Factors that make gradients those of the gates, for all rows at once, [rows, 3, size].

        Those of the update gate and the candidate belong to the gradient of the state, that of the reset gate to the
        gradient of what is kept. The second result is the factor for what goes past the gates.
        """
        xp = self.xp
        update, _, candidate = gates = gates.reshape(len(gates), 3, -1).swapaxes(0, 1)
        past, share = (update, 1 - update) if self.origin_mode else (1 - update, update)
        slopes = xp.empty((len(before), *gates.shape[::2]), before.dtype)
        self.gate.slope(xp, gates[:2], slopes[:, :2].swapaxes(0, 1))
        self.candidate.slope(xp, candidate, slopes[:, 2])
        slopes[:, 0] *= before - candidate if self.origin_mode else candidate - before
        slopes[:, 1] *= before
        slopes[:, 2] *= share
        return slopes, past


def gru_forward(xp, steps, x, h0, weight, bias, cell) -> GRU:
    """Run a gated recurrent unit."""
    gates = cell.shares(x, steps.rows, None if bias is None else bias[0])
    size = gates.shape[1] // 3
    run = GRU(gates, *(xp.empty((len(gates), size), gates.dtype) for _ in range(2)))
    before = xp.zeros((len(steps.ranked), size), gates.dtype) if h0 is None else h0[steps.ranked]
    cell.run(steps, weight, before, run)
    return run


def weights_of_gru(weight) -> tuple[Any, Any]:
    """The matrices for the gates and for the candidate, which lie one after the other."""
    size, flat = len(weight), weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)


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
