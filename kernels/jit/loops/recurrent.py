"""One step of recurrent networks, for all sequences that still go on: what stands beside the products with weights.

Activations are the usual ones: sigmoid for gates, tanh for states and candidates. A loop with few arrays is vectorized,
so that each quantity of a row has a loop of its own.
"""

from minigraph.kernels.jit.loops.functions32 import T, tanh

CONTRACTED = ("add_tanh", "add_sigmoid", "add_product", "mix", "add_through_tanh", "through_tanh", "through_sigmoid")


def add_tanh(x, y):
    for j in range(x.size):
        x[j] = tanh(x[j] + y[j])


def add_sigmoid(x, y):
    for j in range(x.size):
        x[j] = tanh((x[j] + y[j]) * T(0.5)) * T(0.5) + T(0.5)


def add_product(x, y, z):
    for j in range(x.size):
        x[j] += y[j] * z[j]


def multiply(x, y, out):
    for j in range(x.size):
        out[j] = x[j] * y[j]


def tanh_of(x, out):
    for j in range(x.size):
        out[j] = tanh(x[j])


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


def lstm_step(product, before, seen, gates, cells, squashed, hidden):
    """The step after one with the cells `before`; `product` is that of its results with the weights.

    `seen` are the weights of the cell in the input, forget and output gate.
    """
    size = cells.shape[1]
    for i in range(cells.shape[0]):
        g, p, c = gates[i], product[i], cells[i]
        candidate, inner, forget, outer = g[:size], g[size : 2 * size], g[2 * size : 3 * size], g[3 * size :]
        add_product(inner, before[i], seen[0])
        add_product(forget, before[i], seen[1])
        add_tanh(candidate, p[:size])
        add_sigmoid(g[size : 3 * size], p[size : 3 * size])
        multiply(inner, candidate, c)
        add_product(c, before[i], forget)
        add_product(outer, c, seen[2])
        add_sigmoid(outer, p[3 * size :])
        tanh_of(c, squashed[i])
        multiply(outer, squashed[i], hidden[i])


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


def gru_gates(product, before, gates, kept):
    """The gates of a step, and the states `before` times the reset gate."""
    size = kept.shape[1]
    for i in range(kept.shape[0]):
        add_sigmoid(gates[i, : 2 * size], product[i])
        multiply(gates[i, size : 2 * size], before[i], kept[i])


def gru_states(product, before, origin_mode, gates, hidden):
    """The candidates and the states of a step; `product` is that of what is kept with the weights."""
    size = hidden.shape[1]
    for i in range(hidden.shape[0]):
        candidate = gates[i, 2 * size :]
        add_tanh(candidate, product[i])
        if origin_mode:
            mix(gates[i, :size], candidate, before[i], hidden[i])
        else:
            mix(gates[i, :size], before[i], candidate, hidden[i])


def difference(x, y, out):
    for j in range(out.size):
        out[j] = x[j] - y[j]


def gru_slopes(gates, before, origin_mode, slopes):
    """Factors of the gradients of the states and of what is kept, in the order of the gates."""
    size = before.shape[1]
    for i in range(before.shape[0]):
        g, s, b = gates[i], slopes[i], before[i]
        update, candidate, work = g[:size], g[2 * size :], s[2 * size :]
        if origin_mode:
            difference(b, candidate, work)
        else:
            difference(candidate, b, work)
        of_sigmoid(work, update, s[:size])
        of_sigmoid(b, g[size : 2 * size], s[size : 2 * size])
        of_tanh(update, origin_mode, candidate, work)


def of_sigmoid(factor, y, out):
    for j in range(out.size):
        out[j] = factor[j] * (y[j] - y[j] * y[j])


def of_tanh(update, origin_mode, y, out):
    for j in range(out.size):
        out[j] = (T(1) - update[j] if origin_mode else update[j]) * (T(1) - y[j] * y[j])


def gru_states_grad(slopes, d_hidden, d_gates):
    size = d_hidden.shape[1]
    for i in range(d_hidden.shape[0]):
        multiply(d_hidden[i], slopes[i, :size], d_gates[i, :size])
        multiply(d_hidden[i], slopes[i, 2 * size :], d_gates[i, 2 * size :])


def gru_gates_grad(slopes, gates, origin_mode, d_hidden, d_kept, d_gates, d_before):
    size = d_hidden.shape[1]
    reset = slice(size, 2 * size)
    for i in range(d_hidden.shape[0]):
        multiply(d_kept[i], slopes[i, reset], d_gates[i, reset])
        stays(d_hidden[i], gates[i, :size], origin_mode, d_before[i])
        add_product(d_before[i], d_kept[i], gates[i, reset])


def stays(d, update, origin_mode, out):
    for j in range(out.size):
        out[j] += d[j] * (update[j] if origin_mode else T(1) - update[j])
