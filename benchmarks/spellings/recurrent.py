"""Recurrent networks in several spellings."""

import numpy as np

import minigraph as fluid
from minigraph import layers

from .tasks import (
    BATCH,
    CLASSES,
    HIDDEN,
    MANY_MATRICES,
    ONE_MATRIX,
    Apart,
    Task,
    attr,
    classified,
    labels,
    numbers,
    only_copies_differ,
    parameter,
    start_of,
)

STEPS, INPUTS = 50, 32

# A tanh network

CELLS = {
    "mul": lambda x, h: _tanh_cell(layers.mul, x, h),
    "matmul": lambda x, h: _tanh_cell(layers.matmul, x, h),
    "fc": lambda x, h: layers.tanh(
        layers.elementwise_add(
            layers.fc(x, HIDDEN, param_attr=attr("w", INPUTS, HIDDEN), bias_attr=False),
            layers.fc(h, HIDDEN, param_attr=attr("u", HIDDEN, HIDDEN), bias_attr=attr("b", HIDDEN)),
        )
    ),
    "fc of both": lambda x, h: layers.fc(
        [x, h], HIDDEN, param_attr=[attr("w", INPUTS, HIDDEN), attr("u", HIDDEN, HIDDEN)], bias_attr=attr("b", HIDDEN),
        act="tanh",
    ),
}  # fmt: skip
CELLS["bias last"] = lambda x, h: layers.tanh(
    layers.mul(x, parameter("w", INPUTS, HIDDEN))
    + layers.mul(h, parameter("u", HIDDEN, HIDDEN))
    + parameter("b", HIDDEN)
)
CELLS["bias first"] = lambda x, h: layers.tanh(
    layers.mul(x, parameter("w", INPUTS, HIDDEN))
    + parameter("b", HIDDEN)
    + layers.mul(h, parameter("u", HIDDEN, HIDDEN))
)
CELLS["transposed"] = lambda x, h: _tanh_cell(lambda x, w: layers.matmul(x, w, transpose_y=True), x, h, _transposed)
CELLS["concat"] = lambda x, h: layers.tanh(
    layers.matmul(layers.concat([x, h], 1), _both(HIDDEN)) + parameter("b", HIDDEN)
)
ENTRIES = {
    "split": lambda x: layers.split(layers.reshape(x, [STEPS * BATCH, INPUTS]), STEPS, 0),
    "unstack": lambda x: layers.unstack(x, 0),
    "subscripts": lambda x: [x[t] for t in range(STEPS)],
    "slice and squeeze": lambda x: [layers.squeeze(layers.slice(x, [0], [t], [t + 1]), [0]) for t in range(STEPS)],
    "gathered rows": lambda x: [
        layers.squeeze(layers.gather(x, layers.fill_constant([1], "int32", t)), [0]) for t in range(STEPS)
    ],
    "strided slices": lambda x: [
        layers.squeeze(layers.strided_slice(x, [0], [t], [t + 1], [1]), [0]) for t in range(STEPS)
    ],
}


def _tanh_cell(multiply, x, h, weight=parameter):
    w, u, b = weight("w", INPUTS, HIDDEN), weight("u", HIDDEN, HIDDEN), parameter("b", HIDDEN)
    return layers.tanh(layers.elementwise_add(multiply(x, w), layers.elementwise_add(multiply(h, u), b)))


def _transposed(name, rows, columns):
    """The weight, with a row for each column of the result."""
    start = start_of(name, rows, columns).T
    return layers.create_parameter([columns, rows], "float32", attr=attr(name, start=start))


def _both(columns):
    """The weights of input and state as one matrix."""
    start = [start_of("w", INPUTS, columns), start_of("u", HIDDEN, columns)]
    return layers.create_parameter([INPUTS + HIDDEN, columns], "float32", attr=attr("wu", start=np.concatenate(start)))


def unrolled(cell, entries):
    def loss(x, h, y):
        for entry in ENTRIES[entries](x):
            h = CELLS[cell](entry, h)
        return classified(h, y)

    return loss


def static(cell):
    def loss(x, h, y):
        network = layers.StaticRNN()
        with network.step():
            entry, state = network.step_input(x), network.memory(h)
            updated = CELLS[cell](entry, state)
            network.update_memory(state, updated)
            network.step_output(updated)
        return classified(network()[STEPS - 1], y)

    return loss


def looped(step, count):
    """The last state of a `While` with tensor arrays, in which `step` makes new states from an entry and states."""

    def last(x, *first):
        entries, states = layers.create_array("float32"), [layers.create_array("float32") for _ in first]
        for t, entry in enumerate(layers.unstack(x)):
            layers.array_write(entry, _integer(t), entries)
        i, n = _integer(0), _integer(count)
        for state, array in zip(first, states, strict=True):
            layers.array_write(state, i, array)
        condition = layers.less_than(i, n)
        with layers.While(condition).block():
            new = step(layers.array_read(entries, i), *[layers.array_read(array, i) for array in states])
            layers.increment(i, 1)
            for state, array in zip(new, states, strict=True):
                layers.array_write(state, i, array)
            layers.less_than(i, n, cond=condition)
        return layers.array_read(states[0], n)

    return last


def while_looped(step, count):
    """The last state of a `while_loop` that takes a row of the input in each run."""

    def last(x, *first):
        def body(i, *states):
            return [i + 1, *step(layers.squeeze(layers.slice(x, [0], [i], [i + 1]), [0]), *states)]

        states = [layers.assign(state) for state in first]
        for state in states:
            state.stop_gradient = False
        return layers.while_loop(lambda i, *states: i < count, body, [_integer(0), *states])[1]

    return last


def _integer(value):
    return layers.fill_constant([1], "int64", value)


def _one_state(loop, cell, count):
    last = loop(lambda x, h: [cell(x, h)], count)
    return lambda x, h, y: classified(last(x, h), y)


class Cell(layers.RNNCell):
    def __init__(self, cell):
        self.cell = cell

    def call(self, inputs, states):
        updated = CELLS[self.cell](inputs, states)
        return updated, updated


def by_rnn(cell):
    return lambda x, h, y: classified(layers.rnn(Cell(cell), x, h, time_major=True)[1], y)


class Imperative(fluid.dygraph.Layer):
    """The network in the imperative mode, up to the logits."""

    def __init__(self):
        super().__init__()
        shapes = {
            "w": (INPUTS, HIDDEN), "u": (HIDDEN, HIDDEN), "b": (HIDDEN,), "top": (HIDDEN, CLASSES), "c": (CLASSES,),
        }  # fmt: skip
        for name, shape in shapes.items():
            setattr(self, name, self.create_parameter(list(shape), attr=attr(name, *shape), is_bias=len(shape) == 1))

    def forward(self, x, h):
        for entry in layers.unstack(x):
            h = layers.tanh(layers.matmul(entry, self.w) + (layers.matmul(h, self.u) + self.b))
        return layers.matmul(h, self.top) + self.c


def traced(x, h, y):
    """The operators that the imperative mode has traced, in the default program."""
    feed = RNN.feed()
    with fluid.dygraph.guard():
        arrays = [fluid.dygraph.to_variable(feed[name]) for name in ("x", "h")]
        _, network = fluid.dygraph.TracedLayer.trace(Imperative(), arrays)
    names = dict(zip(network.feed_names, ("x", "h"), strict=True))
    block, target = network.program.global_block(), fluid.default_main_program().global_block()
    for each in block.all_parameters():
        parameter(each.name, *each.shape)
    for op in block.ops:
        for name in op.output_arg_names:
            target.create_var(name)
        inputs = {slot: [names.get(name, name) for name in given] for slot, given in op.inputs.items()}
        target.append_op(op.type, inputs, dict(op.outputs), dict(op.attrs))
    logits = target.var(network.fetch_names[0])
    return layers.mean(layers.softmax_with_cross_entropy(logits, y))


RNN = Task(
    lambda: {"x": numbers(STEPS, BATCH, INPUTS), "h": numbers(BATCH, HIDDEN, seed=2), "y": labels(BATCH)},
    {
        "mul on split": unrolled("mul", "split"),
        "mul on unstack": unrolled("mul", "unstack"),
        "matmul on unstack": unrolled("matmul", "unstack"),
        "matmul on subscripts": unrolled("matmul", "subscripts"),
        "matmul on slice and squeeze": unrolled("matmul", "slice and squeeze"),
        "matmul on gathered rows": unrolled("matmul", "gathered rows"),
        "matmul on strided slices": unrolled("matmul", "strided slices"),
        "fc on unstack": unrolled("fc", "unstack"),
        "bias last": unrolled("bias last", "unstack"),
        "bias first": unrolled("bias first", "unstack"),
        "fc of both on split": unrolled("fc of both", "split"),
        "transposed weights": unrolled("transposed", "unstack"),
        "concat": unrolled("concat", "unstack"),
        "StaticRNN": static("mul"),
        "While": _one_state(looped, CELLS["mul"], STEPS),
        "while_loop": _one_state(while_looped, CELLS["matmul"], STEPS),
        "rnn": by_rnn("matmul"),
        "imperative mode, traced": traced,
    },
    apart={
        "concat": ONE_MATRIX,
        "transposed weights": Apart(
            "copies the transpose of the weights, and not for the gradients", only_copies_differ
        ),
    },
)

# A long short-term memory of 20 steps

TIMES = 20


def _gates_by_split(z):
    return layers.split(z, 4, dim=1)


def _gates_by_slices(z):
    return [layers.slice(z, [1], [i * HIDDEN], [(i + 1) * HIDDEN]) for i in range(z.shape[1] // HIDDEN)]


def _gates_by_unstack(z):
    count = z.shape[1] // HIDDEN
    return layers.unstack(layers.reshape(z, [BATCH, count, HIDDEN]), 1, count)


def _remembered(i, j, f, o, c):
    """New state and memory of a long short-term memory."""
    c = c * layers.sigmoid(f) + layers.sigmoid(i) * layers.tanh(j)
    return layers.tanh(c) * layers.sigmoid(o), c


def memory_cell(multiply, gates):
    def cell(x, state):
        h, c = state
        w, u, b = parameter("w", INPUTS, 4 * HIDDEN), parameter("u", HIDDEN, 4 * HIDDEN), parameter("b", 4 * HIDDEN)
        z = layers.elementwise_add(layers.elementwise_add(multiply(x, w), multiply(h, u)), b)
        return _remembered(*gates(z), c)

    return cell


def _fc_cell(x, state):
    h, c = state
    attrs = [attr("w", INPUTS, 4 * HIDDEN), attr("u", HIDDEN, 4 * HIDDEN)]
    z = layers.fc([x, h], 4 * HIDDEN, param_attr=attrs, bias_attr=attr("b", 4 * HIDDEN))
    return _remembered(*_gates_by_split(z), c)


def _joined_cell(x, state):
    h, c = state
    z = layers.matmul(layers.concat([x, h], 1), _both(4 * HIDDEN)) + parameter("b", 4 * HIDDEN)
    return _remembered(*_gates_by_split(z), c)


def _gate_by_gate(x, state):
    h, c = state
    return _remembered(*[x @ w + h @ u + b for w, u, b in zip(*map(_of_gates, "wub", [4] * 3), strict=True)], c)


def _of_gates(name, count):
    """For each gate its columns of a matrix, or elements of a vector, that other spellings have as one."""
    whole = start_of(name, *{"w": [INPUTS], "u": [HIDDEN], "b": []}[name[0]], count * HIDDEN)
    parts = np.split(whole, count, -1)
    return [
        layers.create_parameter(list(part.shape), "float32", attr=attr(f"{name}{i}", start=part))
        for i, part in enumerate(parts)
    ]


def memory_unrolled(cell, entries):
    def loss(x, h, y):
        state = h, h
        for entry in entries(x):
            state = cell(entry, state)
        return classified(state[0], y)

    return loss


def memory_static(cell):
    def loss(x, h, y):
        network = layers.StaticRNN()
        with network.step():
            entry, old = network.step_input(x), (network.memory(h), network.memory(h))
            new = cell(entry, old)
            for before, after in zip(old, new, strict=True):
                network.update_memory(before, after)
            network.step_output(new[0])
        return classified(network()[TIMES - 1], y)

    return loss


def _memory_looped(loop):
    cell = memory_cell(layers.mul, _gates_by_split)
    last = loop(lambda x, h, c: cell(x, (h, c)), TIMES)
    return lambda x, h, y: classified(last(x, h, h), y)


class MemoryCell(layers.RNNCell):
    def call(self, inputs, states):
        h, c = memory_cell(layers.matmul, _gates_by_split)(inputs, states)
        return h, [h, c]


LSTM = Task(
    lambda: {"x": numbers(TIMES, BATCH, INPUTS), "h": numbers(BATCH, HIDDEN, seed=2), "y": labels(BATCH)},
    {
        "mul on unstack": memory_unrolled(memory_cell(layers.mul, _gates_by_split), layers.unstack),
        "matmul on subscripts": memory_unrolled(
            memory_cell(layers.matmul, _gates_by_split), lambda x: [x[t] for t in range(TIMES)]
        ),
        "fc of both": memory_unrolled(_fc_cell, layers.unstack),
        "concat": memory_unrolled(_joined_cell, layers.unstack),
        "gates by slices": memory_unrolled(memory_cell(layers.matmul, _gates_by_slices), layers.unstack),
        "gates by unstack": memory_unrolled(memory_cell(layers.matmul, _gates_by_unstack), layers.unstack),
        "a matrix for each gate": memory_unrolled(_gate_by_gate, layers.unstack),
        "StaticRNN": memory_static(memory_cell(layers.mul, _gates_by_split)),
        "While": _memory_looped(looped),
        "while_loop": _memory_looped(while_looped),
        "rnn": lambda x, h, y: classified(layers.rnn(MemoryCell(), x, [h, h], time_major=True)[1][0], y),
    },
    apart={"concat": ONE_MATRIX, "a matrix for each gate": MANY_MATRICES},
)

# A network of gated recurrent units, of as many steps


def _renewed(gates, x, h):
    """New state of a gated recurrent unit, from three gates of the input and three of the state."""
    (x_z, x_r, x_n), (h_z, h_r, h_n) = gates
    z, r = layers.sigmoid(x_z + h_z), layers.sigmoid(x_r + h_r)
    return z * h + (1 - z) * layers.tanh(x_n + r * h_n)


def gated_cell(multiply, cut):
    def cell(x, h):
        w, u, b = parameter("w", INPUTS, 3 * HIDDEN), parameter("u", HIDDEN, 3 * HIDDEN), parameter("b", 3 * HIDDEN)
        return _renewed([cut(layers.elementwise_add(multiply(x, w), b)), cut(multiply(h, u))], x, h)

    return cell


def _gated_by_fc(x, h):
    of_x = layers.fc(x, 3 * HIDDEN, param_attr=attr("w", INPUTS, 3 * HIDDEN), bias_attr=attr("b", 3 * HIDDEN))
    of_h = layers.fc(h, 3 * HIDDEN, param_attr=attr("u", HIDDEN, 3 * HIDDEN), bias_attr=False)
    return _renewed([layers.split(each, 3, dim=1) for each in (of_x, of_h)], x, h)


def _gated_gate_by_gate(x, h):
    w, u, b = map(_of_gates, "wub", [3] * 3)
    return _renewed([[x @ w[i] + b[i] for i in range(3)], [h @ u[i] for i in range(3)]], x, h)


def _split_in_three(z):
    return layers.split(z, 3, dim=1)


def gated_unrolled(cell):
    def loss(x, h, y):
        for entry in layers.unstack(x, 0):
            h = cell(entry, h)
        return classified(h, y)

    return loss


def gated_static(cell):
    def loss(x, h, y):
        network = layers.StaticRNN()
        with network.step():
            entry, old = network.step_input(x), network.memory(h)
            new = cell(entry, old)
            network.update_memory(old, new)
            network.step_output(new)
        return classified(network()[TIMES - 1], y)

    return loss


GRU = Task(
    LSTM.feed,
    {
        "gates by split": gated_unrolled(gated_cell(layers.mul, _split_in_three)),
        "gates by slices": gated_unrolled(gated_cell(layers.matmul, _gates_by_slices)),
        "gates by unstack": gated_unrolled(gated_cell(layers.matmul, _gates_by_unstack)),
        "fc": gated_unrolled(_gated_by_fc),
        "StaticRNN": gated_static(gated_cell(layers.matmul, _split_in_three)),
        "While": _one_state(looped, gated_cell(layers.mul, _split_in_three), TIMES),
        "while_loop": _one_state(while_looped, gated_cell(layers.mul, _split_in_three), TIMES),
        "a matrix for each gate": gated_unrolled(_gated_gate_by_gate),
    },
    apart={"a matrix for each gate": MANY_MATRICES},
)
