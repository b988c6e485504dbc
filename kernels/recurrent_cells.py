"""Cells of recurrent networks over sequences, and their steps one after the other: LSTM, GRU and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minigraph.kernels.step_products import GateProduct, StepProduct


def _sigmoid(xp, x, out) -> None:
    xp.negative(x, out=out)
    _sigmoid_of_negative(xp, out)


def _sigmoid_of_negative(xp, x) -> None:
    """Make the sigmoid from -x in its place; where ``exp(-x)`` is infinite it is 0, as it should be."""
    xp.exp(x, out=x)
    x += 1
    xp.reciprocal(x, out=x)


def _tanh(xp, x, out) -> None:
    xp.tanh(x, out=out)


def _relu(xp, x, out) -> None:
    xp.maximum(x, 0, out=out)


def _identity(xp, x, out) -> None:
    if out is not x:
        out[...] = x


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
    """A function that writes its result to `out`, perhaps its argument, and one that writes its derivative, from it."""

    apply: Callable[..., None]
    slope: Callable[..., None]


ACTIVATIONS = {
    "sigmoid": Activation(_sigmoid, _sigmoid_slope),
    "tanh": Activation(_tanh, _tanh_slope),
    "relu": Activation(_relu, _relu_slope),
    "identity": Activation(_identity, _identity_slope),
}


def _by_gate(gates, count) -> Any:
    """[rows, gates * size] as [gates, rows, size], in the same memory."""
    return gates.reshape(len(gates), count, gates.shape[1] // count).swapaxes(0, 1)


def _apart(xp, gates, count) -> Any:
    """Copy the gates to [gates, rows, size]: on few rows of one gate a call is quicker where they have no gaps."""
    return _by_gate(gates, count).copy()


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
        seen, is_negative = None if self.seen is None else self.seen[:, None], self.gate is ACTIVATIONS["sigmoid"]
        by_gate, gates = _by_gate(run.gates, 4), _apart(xp, run.gates, 4)
        if is_negative:  # a sigmoid begins with -x, which negative weights give
            xp.negative(gates[1:], out=gates[1:])
            weight = weight.copy()
            xp.negative(weight[:, size:], out=weight[:, size:])
            seen = None if seen is None else -seen
        times = GateProduct(xp, weight, steps.most(), 4)
        for step in steps.slices():
            alive = step.stop - step.start
            now, cells, squashed, hidden = gates[:, step], run.cells[step], run.squashed[step], run.hidden[step]
            if before is not None:
                now += times(before[:alive])
            self._step(None if cells_before is None else cells_before[:alive], seen, is_negative, now, cells, squashed)
            xp.multiply(now[3], squashed, out=hidden)
            before, cells_before = given[step], cells
            if projection is not None:
                projection.step(xp, hidden, before)
        by_gate[...] = gates

    def _step(self, before, seen, is_negative, gates, cells, squashed) -> None:
        """Compute the cells of a step and its gates from the sums of the gates, and the cells `before`.

        The gates are [4, rows, size], and `seen` [3, 1, size].
        """
        xp = self.xp
        candidate, inner, forget, outer = gates
        if before is not None and seen is not None:
            gates[1:3] += before * seen[:2]
        self.candidate.apply(xp, candidate, candidate)
        self._apply_gate(gates[1:] if seen is None else gates[1:3], is_negative)
        xp.multiply(inner, candidate, out=cells)
        if before is not None:
            cells += forget * before
        if self.clip > 0:
            xp.clip(cells, -self.clip, self.clip, out=cells)
        if seen is not None:
            outer += cells * seen[2]
            self._apply_gate(outer, is_negative)
        self.cell.apply(xp, cells, squashed)

    def _apply_gate(self, x, is_negative) -> None:
        if is_negative:
            _sigmoid_of_negative(self.xp, x)
        else:
            self.gate.apply(self.xp, x, x)

    def run_grad(self, steps, back, run, given, cells_before, d_given, d_cells, d_gates, d_first_cells, projection):
        """Write `d_gates`, and add to `d_first_cells`, the gradient of the cells before the first step.

        `back` is the transposed weight; `d_given` and `d_cells` are changed.
        """
        xp, slices = self.xp, steps.slices()
        times, by_gate = StepProduct(xp, back, steps.most()), _by_gate(d_gates, 4)
        factors, through, onwards, kept = self._slopes(run, cells_before)
        if projection is not None:
            to_hidden, projected = StepProduct(xp, projection.weight.T, steps.most()), projection.slopes(xp, given)
        for number in range(len(slices) - 1, -1, -1):
            step, start = slices[number], slices[number - 1].start
            alive = slice(start, start + step.stop - step.start)
            d_hidden = d_given[step]
            if projection is not None:
                d_hidden *= projected[step]
                d_hidden = to_hidden(d_hidden)
            now, factor, d_now = by_gate[:, step], factors[:, step], d_cells[step]
            xp.multiply(d_hidden, factor[3], out=now[3])
            d_now += d_hidden * through[step]
            if kept is not None:
                d_now *= kept[step]
            xp.multiply(d_now, factor[:3], out=now[:3])
            d_before = d_cells[alive] if number else d_first_cells
            d_before += d_now * onwards[step]
            if number:
                d_given[alive] += times(d_gates[step])

    def _slopes(self, run, before) -> tuple[Any, ...]:
        """Factors that make gradients those of the gates, for all rows at once.

        For the gates, [4, rows, size], where those of the output gate belong to the gradient of the hidden state and
        others to that of the cells; for the cells from the hidden state; for the cells before; and None, or the cells
        that were not clipped. The last two pass through the gates that see the cells as well.
        """
        xp, gates = self.xp, _by_gate(run.gates, 4)
        factors, through = xp.empty(gates.shape, gates.dtype), xp.empty_like(run.squashed)
        self.candidate.slope(xp, gates[0], factors[0])
        self.gate.slope(xp, gates[1:], factors[1:])
        for factor, other in zip(factors, (gates[1], gates[0], before, run.squashed), strict=True):
            factor *= other
        self.cell.slope(xp, run.squashed, through)
        through *= gates[3]
        onwards = gates[2].copy()
        if self.seen is not None:
            through += factors[3] * self.seen[2]
            onwards += factors[1] * self.seen[0]
            onwards += factors[2] * self.seen[1]
        return factors, through, onwards, abs(run.cells) < self.clip if self.clip > 0 else None


class Projection(NamedTuple):
    """Projection of the hidden state for the next step: a product, its activation, perhaps clipped."""

    weight: Any
    act: Activation
    clip: float

    def step(self, xp, hidden, out) -> None:
        self.act.apply(xp, xp.dot(hidden, self.weight), out)
        if self.clip > 0:
            xp.clip(out, -self.clip, self.clip, out=out)

    def slopes(self, xp, out) -> Any:
        """Factors that make gradients of the results `out` those of the products."""
        slopes = xp.empty_like(out)
        self.act.slope(xp, out, slopes)
        if self.clip > 0:
            slopes *= abs(out) < self.clip
        return slopes


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
        xp = self.xp
        for_gates, for_candidate = weights_of_gru(weight)
        is_negative = self.gate is ACTIVATIONS["sigmoid"]
        by_gate, gates = _by_gate(run.gates, 3), _apart(xp, run.gates, 3)
        if is_negative:  # as in `LSTMCell.run`
            xp.negative(gates[:2], out=gates[:2])
            for_gates = -for_gates
        to_gates = GateProduct(xp, for_gates, steps.most(), 2)
        to_candidate = StepProduct(xp, for_candidate, steps.most())
        for step in steps.slices():
            both, candidate, kept, hidden = gates[:2, step], gates[2, step], run.kept[step], run.hidden[step]
            before = before[: len(hidden)]
            both += to_gates(before)
            if is_negative:
                _sigmoid_of_negative(xp, both)
            else:
                self.gate.apply(xp, both, both)
            xp.multiply(both[1], before, out=kept)
            candidate += to_candidate(kept)
            self.candidate.apply(xp, candidate, candidate)
            start, end = (candidate, before) if self.origin_mode else (before, candidate)
            xp.subtract(end, start, out=hidden)
            hidden *= both[0]
            hidden += start
            before = hidden
        by_gate[...] = gates

    def run_grad(self, steps, for_gates, for_candidate, run, before, d_hidden, d_gates, d_first) -> None:
        """Write `d_gates`, and add to `d_first`, the gradient of the states before the first step.

        The weights are transposed. `before` are the states before each row, and `d_hidden` is changed. The share of the
        first step's update and reset gates in `d_first` is left out.
        """
        xp, size, slices = self.xp, d_hidden.shape[1], steps.slices()
        to_before, to_kept = (StepProduct(xp, each, steps.most()) for each in (for_gates, for_candidate))
        slopes, past, reset = self._slopes(run.gates, before)
        by_gate = _by_gate(d_gates, 3)
        for number in range(len(slices) - 1, -1, -1):
            step, start = slices[number], slices[number - 1].start
            d_h, slope, d_g = d_hidden[step], slopes[:, step], by_gate[:, step]
            d_before = d_hidden[start : start + len(d_h)] if number else d_first
            xp.multiply(d_h, slope[::2], out=d_g[::2])
            d_kept = to_kept(d_g[2])
            xp.multiply(d_kept, slope[1], out=d_g[1])
            d_before += d_h * past[step]
            d_kept *= reset[step]
            d_before += d_kept
            if number:
                d_before += to_before(d_gates[step, : 2 * size])

    def _slopes(self, gates, before) -> tuple[Any, Any, Any]:
        """Factors that make gradients those of the gates, for all rows at once, [3, rows, size].

        Those of the update gate and the candidate belong to the gradient of the state, that of the reset gate to the
        gradient of what is kept. The others are the factor for what goes past the gates, and the reset gate.
        """
        xp = self.xp
        update, reset, candidate = gates = _apart(xp, gates, 3)
        past, share = (update, 1 - update) if self.origin_mode else (1 - update, update)
        slopes = xp.empty_like(gates)
        self.gate.slope(xp, gates[:2], slopes[:2])
        self.candidate.slope(xp, candidate, slopes[2])
        slopes[0] *= before - candidate if self.origin_mode else candidate - before
        slopes[1] *= before
        slopes[2] *= share
        return slopes, past, reset


def weights_of_gru(weight) -> tuple[Any, Any]:
    """The matrices for the gates and for the candidate, which lie one after the other."""
    size, flat = len(weight), weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)
