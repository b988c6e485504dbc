"""Cells of recurrent networks over sequences, and their steps one after the other: LSTM, GRU and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minigraph.kernels.step_products import StepProduct


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


def weights_of_gru(weight) -> tuple[Any, Any]:
    """The matrices for the gates and for the candidate, which lie one after the other."""
    size, flat = len(weight), weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)
