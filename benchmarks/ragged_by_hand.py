"""Steps of `ragged.py`'s networks for texts, written by hand in NumPy: forward, backward, clip by global norm and SGD.

A step takes the parameters by name, which it updates, and a batch: words, offsets of the texts, labels. It returns the
loss. A layer returns its result and a function from the gradient of the result to that of its input, which notes the
gradients of parameters in `grads`. Of a table these are numbers of rows and their gradients; other rows stay alone.
"""

import numpy as np

RATE, LIMIT = 0.001, 0.5
"""Learning rate, and maximum of the global norm of the gradients."""


# Networks


def lstm(params, ids, offsets, labels, depth=1):
    """Layers of LSTM over words, every second one in reverse, their largest states, and a classifier."""
    net = Network(params)
    x = net.words("embedding_0", ids)
    for i in range(depth):
        x = net.lstm(f"lstm_{i}", net.dense(f"fc_{i}", x), offsets, is_reverse=i % 2 == 1)
    return net.step(net.classified(f"fc_{depth}", net.largest(x, offsets), labels))


def stacked_lstm(params, ids, offsets, labels):
    return lstm(params, ids, offsets, labels, 3)


def gru(params, ids, offsets, labels):
    """A GRU over words, its last states, and a classifier."""
    net = Network(params)
    x = net.gru("gru_0", net.dense("fc_0", net.words("embedding_0", ids)), offsets)
    return net.step(net.classified("fc_1", net.taken(x, offsets[1:] - 1), labels))


def conv(params, ids, offsets, labels):
    """Windows of three and four words, each with a table of its own, their sums by root of length, a classifier."""
    net, roots = Network(params), factors(1 / np.sqrt(np.diff(offsets)))
    parts = []
    for i, size in enumerate((3, 4)):
        x = net.windows(net.words(f"embedding_{i}", ids), offsets, size)
        parts.append(net.sums(net.tanh(net.dense(f"sequence_conv_{i}", x)), offsets, roots))
    return net.step(net.classified("fc_0", net.beside(parts), labels))


def pooled(params, ids, offsets, labels):
    """Words times the mean of their text and times shares of attention, added up, and a classifier."""
    net, lengths = Network(params), np.diff(offsets)
    x = net.words("embedding_0", ids)
    shares = net.shares(net.dense("fc_0", x), offsets)
    means = net.repeated(net.sums(x, offsets, factors(1 / lengths)), offsets)
    x = net.times(net.times(x, means), shares)
    return net.step(net.classified("fc_1", net.sums(x, offsets, factors(np.ones(len(lengths)))), labels))


def tagging(params, ids, offsets, tags):
    """A GRU over words, a score of each tag, and a random field over the tags."""
    net = Network(params)
    x = net.gru("gru_0", net.dense("fc_0", net.words("embedding_0", ids)), offsets)
    return net.step(net.field("crfw", net.dense("fc_1", x), offsets, tags[:, 0]))


STEPS = {
    "lstm": lstm, "stacked-lstm": stacked_lstm, "gru": gru, "conv": conv, "pool-softmax-expand-pad": pooled,
    "gru-crf": tagging,
}  # fmt: skip


def factors(numbers):
    return numbers.astype(np.float32)[:, None]


class Steps:
    """Rows of texts in the order of time, the longest text first in each step."""

    def __init__(self, offsets, is_reverse):
        lengths = np.diff(offsets)
        order = np.argsort(-lengths, kind="stable")
        self.active = (lengths[order] > np.arange(lengths.max())[:, None]).sum(1)
        first, by = (offsets[1:] - 1, -1) if is_reverse else (offsets[:-1], 1)
        self.rows = np.concatenate([first[order[:count]] + by * time for time, count in enumerate(self.active)])
        self.bounds = np.concatenate([[0], np.cumsum(self.active)])
        self.places = np.empty_like(self.rows)
        self.places[self.rows] = np.arange(len(self.rows))

    def slices(self):
        """For each step its rows, and those of the step before that go on."""
        edges = self.bounds.tolist()
        for time, count in enumerate(self.active.tolist()):
            begin = edges[time - 1] if time else 0
            yield slice(edges[time], edges[time] + count), slice(begin, begin + count) if time else None

    def before(self):
        """Of each row behind the first step the row before."""
        return np.concatenate([self.bounds[time] + np.arange(count) for time, count in enumerate(self.active[1:])])


class Network:
    """A forward pass that remembers how its gradients are computed.

    A value is an array; `backward` holds functions, the last layer's last, that take the gradients by value from `d`.
    """

    def __init__(self, params):
        self.params, self.grads, self.tables, self.d, self.backward = params, {}, {}, {}, []

    def step(self, loss):
        """Differentiate, clip the gradients by their global norm, and update; return the loss."""
        for function in reversed(self.backward):
            function()
        found = [*self.grads.values(), *[rows for _, rows in self.tables.values()]]
        norm = np.sqrt(sum(float(np.vdot(grad, grad)) for grad in found))
        rate = np.float32(RATE * LIMIT / max(LIMIT, norm))
        for name, grad in self.grads.items():
            self.params[name] -= rate * grad
        for name, (numbers, rows) in self.tables.items():
            self.params[name][numbers] -= rate * rows
        return loss

    def flow(self, x, grad):
        """Add a gradient that flows into `x`; the first one is kept as it is."""
        self.d[id(x)] = self.d[id(x)] + grad if id(x) in self.d else grad

    def note(self, result, function):
        """Call `function` with the gradient of `result` in the backward pass."""
        self.backward.append(lambda: function(self.d.pop(id(result))))
        return result

    def words(self, name, ids):
        name += ".w_0"

        def backward(d):
            order = np.argsort(ids, kind="stable")
            sorted_ids = ids[order]
            starts = np.flatnonzero(np.diff(sorted_ids, prepend=-1))
            self.tables[name] = sorted_ids[starts], np.add.reduceat(d[order], starts)

        return self.note(self.params[name][ids], backward)

    def dense(self, name, x):
        weight = self.params[f"{name}.w_0"]

        def backward(d):
            self.grads |= {f"{name}.w_0": x.T @ d, f"{name}.b_0": d.sum(0)}
            self.flow(x, d @ weight.T)

        y = x @ weight
        y += self.params[f"{name}.b_0"]
        return self.note(y, backward)

    def tanh(self, x):
        y = np.tanh(x)
        return self.note(y, lambda d: self.flow(x, d * (1 - y * y)))

    def times(self, x, y):
        def backward(d):
            self.flow(x, d * y)
            self.flow(y, d * x if x.shape == y.shape else (d * x).sum(1, keepdims=True))

        return self.note(x * y, backward)

    def beside(self, parts):
        edges = np.cumsum([part.shape[1] for part in parts])

        def backward(d):
            for part, edge in zip(parts, edges, strict=True):
                self.flow(part, d[:, edge - part.shape[1] : edge])

        return self.note(np.concatenate(parts, 1), backward)

    def repeated(self, x, offsets):
        """The row of each text, once for each of its words."""
        return self.note(np.repeat(x, np.diff(offsets), 0), lambda d: self.flow(x, np.add.reduceat(d, offsets[:-1])))

    def sums(self, x, offsets, by):
        """The sum over the words of each text, times a factor."""
        return self.note(
            np.add.reduceat(x, offsets[:-1]) * by, lambda d: self.flow(x, np.repeat(d * by, np.diff(offsets), 0))
        )

    def shares(self, x, offsets):
        """A softmax over the words of each text."""
        lengths = np.diff(offsets)
        y = np.exp(x - np.repeat(np.maximum.reduceat(x, offsets[:-1]), lengths, 0))
        y /= np.repeat(np.add.reduceat(y, offsets[:-1]), lengths, 0)
        return self.note(
            y, lambda d: self.flow(x, y * (d - np.repeat(np.add.reduceat(d * y, offsets[:-1]), lengths, 0)))
        )

    def taken(self, x, rows):
        def backward(d):
            d_x = np.zeros_like(x)
            d_x[rows] = d
            self.flow(x, d_x)

        return self.note(x[rows], backward)

    def largest(self, x, offsets):
        largest = np.maximum.reduceat(x, offsets[:-1])

        def backward(d):
            rows = np.arange(len(x))[:, None]
            places = np.where(x == np.repeat(largest, np.diff(offsets), 0), rows, len(x))
            d_x = np.zeros_like(x)
            np.put_along_axis(d_x, np.minimum.reduceat(places, offsets[:-1]), d, 0)
            self.flow(x, d_x)

        return self.note(largest, backward)

    def windows(self, x, offsets, size):
        lengths = np.diff(offsets)
        first, last = np.repeat(offsets[:-1], lengths)[:, None], np.repeat(offsets[1:], lengths)[:, None]
        rows = np.arange(len(x))[:, None] + np.arange(size) - size // 2
        outside = (rows < first) | (rows >= last)
        found = x[np.where(outside, 0, rows)]
        found[outside] = 0

        def backward(d):
            d, d_x = d.reshape(found.shape), np.zeros_like(x)
            for column in range(size):
                inside = ~outside[:, column]
                d_x[rows[inside, column]] += d[inside, column]
            self.flow(x, d_x)

        return self.note(found.reshape(len(x), -1), backward)

    def lstm(self, name, x, offsets, is_reverse):
        """Gates lie in the order candidate, input, forget, output."""
        steps, weight = Steps(offsets, is_reverse), self.params[f"{name}.w_0"]
        width = len(weight)
        gates = x[steps.rows]
        gates += self.params[f"{name}.b_0"][0]
        hidden, cells, squashed = (np.empty((len(x), width), np.float32) for _ in range(3))
        parts = [slice(i * width, (i + 1) * width) for i in range(4)]
        for now, before in steps.slices():
            z = gates[now]
            if before:
                z += hidden[before] @ weight
            np.tanh(z[:, parts[0]], out=z[:, parts[0]])
            z[:, width:] = 1 / (1 + np.exp(-z[:, width:]))
            cells[now] = z[:, parts[0]] * z[:, parts[1]]
            if before:
                cells[now] += z[:, parts[2]] * cells[before]
            np.tanh(cells[now], out=squashed[now])
            hidden[now] = z[:, parts[3]] * squashed[now]

        def backward(d):
            d_hidden, d_gates = d[steps.rows], np.empty_like(gates)
            d_cells = np.zeros_like(cells)
            for now, before in reversed(list(steps.slices())):
                candidate, taken, kept, shown = (gates[now][:, part] for part in parts)
                d_h, d_z = d_hidden[now], d_gates[now]
                d_c = d_h * shown * (1 - squashed[now] ** 2) + d_cells[now]
                d_z[:, parts[0]] = d_c * taken * (1 - candidate**2)
                d_z[:, parts[1]] = d_c * candidate * taken * (1 - taken)
                d_z[:, parts[3]] = d_h * squashed[now] * shown * (1 - shown)
                if before:
                    d_z[:, parts[2]] = d_c * cells[before] * kept * (1 - kept)
                    d_cells[before] = d_c * kept
                    d_hidden[before] += d_z @ weight.T
                else:
                    d_z[:, parts[2]] = 0
            self.grads |= {
                f"{name}.w_0": hidden[steps.before()].T @ d_gates[steps.bounds[1] :],
                f"{name}.b_0": d_gates.sum(0)[None],
            }
            self.flow(x, d_gates[steps.places])

        return self.note(hidden[steps.places], backward)

    def gru(self, name, x, offsets):
        """Gates lie in the order update, reset, candidate."""
        steps, weight = Steps(offsets, False), self.params[f"{name}.w_0"]
        width = len(weight)
        flat, both = weight.reshape(-1), slice(0, 2 * width)
        for_gates, for_candidate = flat[: 2 * width * width].reshape(width, -1), flat[2 * width * width :]
        for_candidate = for_candidate.reshape(width, width)
        gates = x[steps.rows]
        gates += self.params[f"{name}.b_0"][0]
        hidden, kept = (np.zeros((len(x), width), np.float32) for _ in range(2))
        for now, before in steps.slices():
            z = gates[now]
            if before:
                z[:, both] += hidden[before] @ for_gates
            z[:, both] = 1 / (1 + np.exp(-z[:, both]))
            if before:
                kept[now] = z[:, width : 2 * width] * hidden[before]
                z[:, 2 * width :] += kept[now] @ for_candidate
            z[:, 2 * width :] = np.tanh(z[:, 2 * width :])
            hidden[now] = z[:, :width] * z[:, 2 * width :]
            if before:
                hidden[now] += (1 - z[:, :width]) * hidden[before]

        def backward(d):
            d_hidden, d_gates = d[steps.rows], np.empty_like(gates)
            for now, before in reversed(list(steps.slices())):
                update, reset, candidate = (gates[now][:, i * width : (i + 1) * width] for i in range(3))
                d_h, d_z = d_hidden[now], d_gates[now]
                d_z[:, 2 * width :] = d_h * update * (1 - candidate**2)
                earlier = hidden[before] if before else 0
                d_z[:, :width] = d_h * (candidate - earlier) * update * (1 - update)
                if before:
                    d_kept = d_z[:, 2 * width :] @ for_candidate.T
                    d_z[:, width : 2 * width] = d_kept * earlier * reset * (1 - reset)
                    d_hidden[before] += d_h * (1 - update) + d_kept * reset + d_z[:, both] @ for_gates.T
                else:
                    d_z[:, width : 2 * width] = 0
            earlier = hidden[steps.before()].T @ d_gates[steps.bounds[1] :, both], kept.T @ d_gates[:, 2 * width :]
            d_weight = np.concatenate([part.reshape(-1) for part in earlier]).reshape(weight.shape)
            self.grads |= {f"{name}.w_0": d_weight, f"{name}.b_0": d_gates.sum(0)[None]}
            self.flow(x, d_gates[steps.places])

        return self.note(hidden[steps.places], backward)

    def classified(self, name, x, labels):
        """The mean cross entropy of a softmax."""
        score = self.dense(name, x)
        shares = np.exp(score - score.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        rows = np.arange(len(labels)), labels[:, 0]
        loss = -np.log(shares[rows]).mean()
        shares[rows] -= 1
        shares /= len(labels)
        self.flow(score, shares)
        return loss

    def field(self, name, scores, offsets, tags):
        """The mean negative log-likelihood of a random field; all texts advance together, in float64."""
        weight = self.params[name].astype(np.float64)
        start, end, between = weight[0], weight[1], np.exp(weight[2:])
        steps = Steps(offsets, False)
        rows, own = scores[steps.rows].astype(np.float64), tags[steps.rows]
        own_exps, texts = np.exp(rows - rows.max(1, keepdims=True)), len(offsets) - 1
        forward, backward = np.empty_like(rows), np.empty_like(rows)
        for now, before in steps.slices():
            forward[now] = own_exps[now] * (forward[before] @ between if before else np.exp(start))
            forward[now] /= forward[now].sum(1, keepdims=True)
        last = steps.places[offsets[1:] - 1]
        at_last = np.zeros(len(rows), bool)
        at_last[last] = True
        backward[at_last] = np.exp(end)
        going_on = np.empty_like(rows)
        for now, before in reversed(list(steps.slices())):
            going_on[now] = own_exps[now] * backward[now]
            if before:
                backward[before] = going_on[now] @ between.T
                backward[before] /= backward[before].sum(1, keepdims=True)
        shares = forward * backward
        shares /= shares.sum(1, keepdims=True)
        before, after = steps.before(), np.arange(steps.bounds[1], len(rows))
        # The normalizers give the sum over all paths: that of each step, less what the step before was divided by.
        first = slice(0, steps.bounds[1])
        totals = np.log((own_exps[first] * np.exp(start)).sum(1)).sum()
        totals += np.log((own_exps[after] * (forward[before] @ between)).sum(1)).sum()
        totals += np.log((forward[last] * np.exp(end)).sum(1)).sum() + rows.max(1).sum()
        path = rows[np.arange(len(rows)), own].sum() + start[own[first]].sum() + end[own[last]].sum()
        path += weight[2:][own[before], own[after]].sum()
        d = shares
        d[np.arange(len(rows)), own] -= 1
        d /= texts
        pairs = (forward[before] @ between * going_on[after]).sum(1, keepdims=True) * texts
        d_weight = np.empty_like(weight)
        d_weight[0], d_weight[1] = d[first].sum(0), d[last].sum(0)
        d_weight[2:] = between * (forward[before].T @ (going_on[after] / pairs))
        np.subtract.at(d_weight[2:], (own[before], own[after]), 1 / texts)
        self.grads[name] = d_weight.astype(np.float32)
        self.flow(scores, d[steps.places].astype(np.float32))
        return (totals - path) / texts
