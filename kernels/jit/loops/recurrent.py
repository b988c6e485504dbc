"""Recurrent networks over sequences, whose rows are in the order of time.

`starts` has the row where each step begins, and where the last one ends; the sequences of a step are the first ones of
the step before. Activations are the usual ones: sigmoid for gates, tanh for states and candidates. A loop with few
arrays is vectorized, so that each quantity of a row has a loop of its own.
"""

# mypy: disable-error-code="call-arg, attr-defined"

import numpy as np

from minigraph.kernels.jit.loops.functions32 import T, tanh
from minigraph.kernels.jit.loops.table import ROW_MAJOR, call_c

CONTRACTED = ("apply_sigmoid", "add_product", "mix", "add_through_tanh", "through_tanh", "through_sigmoid", "stays")

QUICK = 1_000_000
"""That of `minigraph.kernels.step_products`."""

PLAIN = 111
"""Form of a matrix that is not transposed, as BLAS counts forms."""


def multiply_rows(gemm, word, a, b, c, kept):
    """``c = a @ b + kept * c`` by BLAS; rows of a and c may be parts of longer ones, and b is in parts of its columns.

    `gemm` is the address of BLAS's function, and `word` is of the type of its integers.
    """
    I, rows, (parts, inner, width) = type(word), c.shape[0], b.shape
    for i in range(parts):
        call_c(gemm, (
            np.int32(ROW_MAJOR), np.int32(PLAIN), np.int32(PLAIN), I(rows), I(width), I(inner), T(1),
            a.ctypes.data, I(a.strides[0] // a.itemsize), b[i].ctypes.data, I(width), T(kept),
            c[:, i * width :].ctypes.data, I(c.strides[0] // c.itemsize),
        ), None)  # fmt: skip


def shares(x, rows, bias, gates):
    """Take rows of x, and add the bias, a matrix of one row, or none."""
    for i in range(rows.size):
        if bias.shape[0]:
            add(x[rows[i]], bias[0], gates[i])
        else:
            copy(x[rows[i]], gates[i])


def copy(x, out):
    # An element at a time: numba takes a second longer to compile an assignment of arrays, whose shapes may differ.
    for j in range(out.size):
        out[j] = x[j]


def add(x, y, out):
    for j in range(out.size):
        out[j] = x[j] + y[j]


def apply_tanh(x):
    for j in range(x.size):
        x[j] = tanh(x[j])


def apply_sigmoid(x):
    for j in range(x.size):
        x[j] = tanh(x[j] * T(0.5)) * T(0.5) + T(0.5)


def add_product(x, y, z):
    for j in range(x.size):
        x[j] += y[j] * z[j]


def multiply(x, y, out):
    for j in range(x.size):
        out[j] = x[j] * y[j]


def tanh_of(x, out):
    for j in range(x.size):
        out[j] = tanh(x[j])


def shrink_by_tanh(y, d):
    for j in range(d.size):
        d[j] *= T(1) - y[j] * y[j]


def mix(share, x, y, out):
    for j in range(x.size):
        out[j] = x[j] + share[j] * (y[j] - x[j])


def add_through_tanh(d, factor, y, out):
    for j in range(d.size):
        out[j] += d[j] * factor[j] * (T(1) - y[j] * y[j])


def through_tanh(d, factor, y, out):
    for j in range(d.size):
        out[j] = d[j] * factor[j] * (T(1) - y[j] * y[j])


def through_sigmoid(d, factor, y, out):
    for j in range(d.size):
        out[j] = d[j] * factor[j] * (y[j] - y[j] * y[j])


def lstm(
    gemm, word, starts, weight, whole, seen, h, c, gates, cells, squashed, hidden, projection, is_squashed, given
):  # fmt: skip
    """All steps of a long short-term memory, of which `gates` has the shares of x.

    `seen` are the weights of the cell in the input, forget and output gate. `h`, which may have no rows, and `c` are
    the states before the first step. `weight` is in parts for many rows, and `whole` for less. `projection`, of one
    part, gives what a step hands to the next one, perhaps after tanh; without parts, `given` is `hidden`.
    """
    for step in range(starts.size - 1):
        now, end = starts[step], starts[step + 1]
        before = starts[step - 1]
        count = end - now
        if step:
            h, c = given[before : before + count], cells[before : before + count]
        if h.shape[0]:
            multiply_rows(gemm, word, h[:count], chosen(weight, whole, count), gates[now:end], 1)
        lstm_step(c, seen, gates[now:end], cells[now:end], squashed[now:end], hidden[now:end])
        if projection.shape[0]:
            multiply_rows(gemm, word, hidden[now:end], projection, given[now:end], 0)
            if is_squashed:
                for i in range(now, end):
                    apply_tanh(given[i])


def lstm_step(before, seen, gates, cells, squashed, hidden):
    """The step after one with the cells `before`."""
    size = cells.shape[1]
    for i in range(cells.shape[0]):
        g, c = gates[i], cells[i]
        candidate, inner, forget, outer = g[:size], g[size : 2 * size], g[2 * size : 3 * size], g[3 * size :]
        add_product(inner, before[i], seen[0])
        add_product(forget, before[i], seen[1])
        apply_tanh(candidate)
        apply_sigmoid(g[size : 3 * size])
        multiply(inner, candidate, c)
        add_product(c, before[i], forget)
        add_product(outer, c, seen[2])
        apply_sigmoid(outer)
        tanh_of(c, squashed[i])
        multiply(outer, squashed[i], hidden[i])


def lstm_grad(
    gemm, word, starts, back, whole, seen, gates, before, squashed, d_given, d_cells, d_gates, d_first, projection,
    is_squashed, given,
):  # fmt: skip
    """All steps backwards; `before` are the cells before each row, and `d_first` the gradient of the first of them.

    `projection` is transposed, and `d_given` becomes the gradient of its product.
    """
    d_projected = np.empty_like(d_first)
    for step in range(starts.size - 2, -1, -1):
        now, end, start = starts[step], starts[step + 1], starts[step - 1]
        alive = start + end - now
        d_before = d_cells[start:alive] if step else d_first
        d_hidden = d_given[now:end]
        if projection.shape[0]:
            if is_squashed:
                for i in range(now, end):
                    shrink_by_tanh(given[i], d_given[i])
            d_hidden = d_projected[: end - now]
            multiply_rows(gemm, word, d_given[now:end], projection, d_hidden, 0)
        lstm_step_grad(
            gates[now:end], before[now:end], seen, squashed[now:end], d_hidden, d_cells[now:end], d_gates[now:end],
            d_before,
        )  # fmt: skip
        if step:
            multiply_rows(gemm, word, d_gates[now:end], chosen(back, whole, end - now), d_given[start:alive], 1)


def lstm_step_grad(gates, before, seen, squashed, d_hidden, d_cells, d_gates, d_before):
    """The gradients of the gates, and of the cells `before`, which is added to `d_before`; `d_cells` is changed."""
    size = squashed.shape[1]
    for i in range(squashed.shape[0]):
        g, d_g, d = gates[i], d_gates[i], d_cells[i]
        candidate, inner, forget, outer = g[:size], g[size : 2 * size], g[2 * size : 3 * size], g[3 * size :]
        d_inner, d_forget, d_outer = d_g[size : 2 * size], d_g[2 * size : 3 * size], d_g[3 * size :]
        through_sigmoid(d_hidden[i], squashed[i], outer, d_outer)
        add_through_tanh(d_hidden[i], outer, squashed[i], d)
        add_product(d, d_outer, seen[2])
        through_tanh(d, inner, candidate, d_g[:size])
        through_sigmoid(d, candidate, inner, d_inner)
        through_sigmoid(d, before[i], forget, d_forget)
        add_product(d_before[i], d, forget)
        add_product(d_before[i], d_inner, seen[0])
        add_product(d_before[i], d_forget, seen[1])


def gru(gemm, word, starts, for_gates, whole, for_candidate, h, origin_mode, gates, kept, hidden):
    """All steps of a gated recurrent unit, of which `gates` has the shares of x; `h` are the states before."""
    size = hidden.shape[1]
    for step in range(starts.size - 1):
        now, end = starts[step], starts[step + 1]
        before = starts[step - 1]
        count = end - now
        h = hidden[before : before + count] if step else h[:count]
        multiply_rows(gemm, word, h, chosen(for_gates, whole, count), gates[now:end, : 2 * size], 1)
        for i in range(count):
            g, k = gates[now + i], kept[now + i]
            apply_sigmoid(g[: 2 * size])
            multiply(g[size : 2 * size], h[i], k)
        multiply_rows(gemm, word, kept[now:end], for_candidate, gates[now:end, 2 * size :], 1)
        for i in range(count):
            g, result = gates[now + i], hidden[now + i]
            candidate = g[2 * size :]
            apply_tanh(candidate)
            if origin_mode:
                mix(g[:size], candidate, h[i], result)
            else:
                mix(g[:size], h[i], candidate, result)


def gru_grad(
    gemm, word, starts, for_gates, whole, for_candidate, origin_mode, gates, before, d_hidden, d_gates, d_first
):  # fmt: skip
    """All steps backwards, with transposed weights; the share of the first step's gates in `d_first` is left out."""
    size = d_hidden.shape[1]
    slopes, d_kept = np.empty(3 * size, d_hidden.dtype), np.empty_like(d_first)
    for step in range(starts.size - 2, -1, -1):
        now, end, start = starts[step], starts[step + 1], starts[step - 1]
        count = end - now
        d_before = d_hidden[start : start + count] if step else d_first
        for i in range(count):
            gru_state_grad(gates[now + i], before[now + i], origin_mode, d_hidden[now + i], d_gates[now + i], slopes)
        multiply_rows(gemm, word, d_gates[now:end, 2 * size :], for_candidate, d_kept[:count], 0)
        for i in range(count):
            g, d, d_k, d_b = gates[now + i], d_gates[now + i], d_kept[i], d_before[i]
            reset = g[size : 2 * size]
            through_sigmoid(d_k, before[now + i], reset, d[size : 2 * size])
            stays(d_hidden[now + i], g[:size], origin_mode, d_b)
            add_product(d_b, d_k, reset)
        if step:
            multiply_rows(gemm, word, d_gates[now:end, : 2 * size], chosen(for_gates, whole, count), d_before, 1)


def gru_state_grad(g, before, origin_mode, d_hidden, d_gates, work):
    """The gradients of the update gate and the candidate."""
    size = before.size
    update, candidate = g[:size], g[2 * size :]
    factor = work[:size]
    if origin_mode:
        difference(before, candidate, factor)
    else:
        difference(candidate, before, factor)
    through_sigmoid(d_hidden, factor, update, d_gates[:size])
    share(update, origin_mode, factor)
    through_tanh(d_hidden, factor, candidate, d_gates[2 * size :])


def share(update, origin_mode, out):
    for j in range(out.size):
        out[j] = T(1) - update[j] if origin_mode else update[j]


def chosen(parts, whole, count):
    """The form of a matrix for products of `count` rows: a small one in one part."""
    return whole if count * whole.size <= QUICK else parts


def difference(x, y, out):
    for j in range(out.size):
        out[j] = x[j] - y[j]


def stays(d, update, origin_mode, out):
    for j in range(out.size):
        out[j] += d[j] * (update[j] if origin_mode else T(1) - update[j])
