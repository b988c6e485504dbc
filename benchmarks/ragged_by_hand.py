"""Steps of `ragged.py`'s networks for texts, written by hand in NumPy: forward, backward and SGD.

A step takes the parameters by name, which it updates, and a batch: words, offsets of the texts, labels. It returns the
loss. Rows of a table are updated where they were looked up, the rest of the table is left alone.
"""

import numpy as np

RATE = 0.001


def lstm(params, ids, offsets, labels):
    """An LSTM over words, its largest states, and a classifier; the longest texts come first in each step of time."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    active = (lengths[order] > np.arange(lengths.max())[:, None]).sum(1)
    at = np.concatenate([offsets[order[:count]] + time for time, count in enumerate(active)])
    bounds = np.concatenate([[0], np.cumsum(active)])
    x, weight = params["embedding_0.w_0"][ids[at]], params["lstm_0.w_0"]
    gates = x @ params["fc_0.w_0"] + (params["fc_0.b_0"] + params["lstm_0.b_0"][0])
    width = len(weight)
    hidden, cells, squashed = (np.empty((len(x), width), np.float32) for _ in range(3))
    parts = [slice(i * width, (i + 1) * width) for i in range(4)]  # candidate, input, forget, output
    for time, count in enumerate(active):
        now = slice(bounds[time], bounds[time + 1])
        before = slice(bounds[time - 1], bounds[time - 1] + count)
        z = gates[now]
        if time:
            z += hidden[before] @ weight
        np.tanh(z[:, parts[0]], out=z[:, parts[0]])
        z[:, width:] = 1 / (1 + np.exp(-z[:, width:]))
        cells[now] = z[:, parts[0]] * z[:, parts[1]]
        if time:
            cells[now] += z[:, parts[2]] * cells[before]
        np.tanh(cells[now], out=squashed[now])
        hidden[now] = z[:, parts[3]] * squashed[now]
    back = np.empty(len(at), np.int64)
    back[at] = np.arange(len(at))
    states = hidden[back]
    largest = np.maximum.reduceat(states, offsets[:-1])
    loss, d_largest, grads = classified(params, largest, labels, "fc_1")
    rows = np.arange(len(states))[:, None]
    places = np.where(states == np.repeat(largest, lengths, 0), rows, len(states))
    d_states = np.zeros_like(states)
    np.put_along_axis(d_states, np.minimum.reduceat(places, offsets[:-1]), d_largest, 0)
    d_hidden, d_gates = d_states[at], np.empty_like(gates)
    d_after, d_cells = (np.zeros((len(lengths), width), np.float32) for _ in range(2))
    for time in reversed(range(len(active))):
        count, now = active[time], slice(bounds[time], bounds[time + 1])
        candidate, taken, kept, shown = (gates[now][:, part] for part in parts)
        d_h, d_z = d_hidden[now] + d_after[:count], d_gates[now]
        d_c = d_h * shown * (1 - squashed[now] ** 2) + d_cells[:count]
        d_z[:, parts[0]] = d_c * taken * (1 - candidate**2)
        d_z[:, parts[1]] = d_c * candidate * taken * (1 - taken)
        d_z[:, parts[2]] = 0
        d_z[:, parts[3]] = d_h * squashed[now] * shown * (1 - shown)
        if time:
            before = slice(bounds[time - 1], bounds[time - 1] + count)
            d_z[:, parts[2]] = d_c * cells[before] * kept * (1 - kept)
            d_cells[:count] = d_c * kept
            d_after[:count] = d_z @ weight.T
    before = np.concatenate([bounds[time] + np.arange(count) for time, count in enumerate(active[1:])])
    d_bias = d_gates.sum(0)
    grads |= {
        "lstm_0.w_0": hidden[before].T @ d_gates[bounds[1] :], "lstm_0.b_0": d_bias[None],
        "fc_0.w_0": x.T @ d_gates, "fc_0.b_0": d_bias,
    }  # fmt: skip
    d_x = d_gates @ params["fc_0.w_0"].T
    update(params, grads)
    np.subtract.at(params["embedding_0.w_0"], ids[at], RATE * d_x)
    return loss


def conv(params, ids, offsets, labels):
    """Windows of three and four words, each with a table of its own, their sums by root of length, a classifier."""
    lengths = np.diff(offsets)
    first, last = np.repeat(offsets[:-1], lengths)[:, None], np.repeat(offsets[1:], lengths)[:, None]
    root = (1 / np.sqrt(lengths)).astype(np.float32)[:, None]
    pooled, kept = [], []
    for i, size in enumerate((3, 4)):
        x = params[f"embedding_{i}.w_0"][ids]
        rows = np.arange(len(ids))[:, None] + np.arange(size) - size // 2
        outside = (rows < first) | (rows >= last)
        windows = x[np.where(outside, 0, rows)]
        windows[outside] = 0
        windows = windows.reshape(len(ids), -1)
        y = np.tanh(windows @ params[f"sequence_conv_{i}.w_0"] + params[f"sequence_conv_{i}.b_0"])
        pooled.append(np.add.reduceat(y, offsets[:-1]) * root)
        kept.append((rows, outside, windows, y))
    loss, d_pooled, grads = classified(params, np.concatenate(pooled, 1), labels, "fc_0")
    looked_up = []
    for i, (rows, outside, windows, y) in enumerate(kept):
        weight, width = params[f"sequence_conv_{i}.w_0"], y.shape[1]
        d_y = np.repeat(d_pooled[:, i * width : (i + 1) * width] * root, lengths, 0) * (1 - y * y)
        grads |= {f"sequence_conv_{i}.w_0": windows.T @ d_y, f"sequence_conv_{i}.b_0": d_y.sum(0)}
        d_windows = (d_y @ weight.T).reshape(*rows.shape, -1)
        d_x = np.zeros((len(ids), d_windows.shape[2]), np.float32)
        for column in range(rows.shape[1]):
            inside = ~outside[:, column]
            d_x[rows[inside, column]] += d_windows[inside, column]
        looked_up.append((params[f"embedding_{i}.w_0"], d_x))
    update(params, grads)
    for table, d_x in looked_up:
        np.subtract.at(table, ids, RATE * d_x)
    return loss


def classified(params, x, labels, name):
    """The mean cross entropy of a softmax, the gradient of x, and those of the layer's parameters."""
    score = x @ params[f"{name}.w_0"] + params[f"{name}.b_0"]
    shares = np.exp(score - score.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    rows = np.arange(len(labels)), labels[:, 0]
    loss = -np.log(shares[rows]).mean()
    shares[rows] -= 1
    shares /= len(labels)
    return loss, shares @ params[f"{name}.w_0"].T, {f"{name}.w_0": x.T @ shares, f"{name}.b_0": shares.sum(0)}


def update(params, grads):
    for name, grad in grads.items():
        params[name] -= RATE * grad


STEPS = {"lstm": lstm, "conv": conv}
