"""The same work spelled in several ways, for a test of their plans and for a benchmark.

`TASKS` has for each task its spellings: functions that append layers to the default program and return the loss.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

import numpy as np

import minigraph as fluid
from minigraph import layers
from minigraph.lowering.costs import VIEWS

STEPS, BATCH, INPUTS, HIDDEN, CLASSES = 50, 32, 32, 64, 10


@dataclass(frozen=True)
class Apart:
    """Why a spelling has other steps than the rest, and what shows it, given the task and the spelling."""

    reason: str
    holds: Callable


@dataclass(frozen=True)
class Task:
    """One piece of work: what is fed, and its spellings by name; the first one is what the others are compared with."""

    feed: Callable[[], dict]
    spellings: dict[str, Callable]
    optimizer: Callable | None = lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0))
    apart: dict[str, Apart] = field(default_factory=dict)
    """Spellings that have other steps."""


def build(task, spelling):
    """Main and startup program, and the loss, of a spelling."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        feeds = {name: fluid.data(name, array.shape, str(array.dtype)) for name, array in task.feed().items()}
        loss = task.spellings[spelling](**feeds)
        if task.optimizer is not None:
            task.optimizer().minimize(loss)
    return main, startup, loss


def step(task, spelling, jit):
    """A function that runs a spelling once, from the same parameters as every other spelling."""
    main, startup, loss = build(task, spelling)
    exe, scope, feed = fluid.Executor(fluid.CPUPlace(), jit=jit), fluid.Scope(), task.feed()
    exe.run(startup, scope=scope)
    return lambda: exe.run(main, feed=feed, fetch_list=[loss], scope=scope)


def plan(task, spelling):
    """Kernels and shapes of the steps that a run of a spelling makes, in order."""
    main, startup, loss = build(task, spelling)
    exe, scope = fluid.Executor(fluid.CPUPlace(), jit=False), fluid.Scope()
    exe.run(startup, scope=scope)
    exe.run(main, feed=task.feed(), fetch_list=[loss], scope=scope)
    found = exe.plans[-1]
    steps = [step for step in found.steps.steps if step not in found.buffers.flat.free]
    return [(step.op.type, *(value.tensor_type.shape for value in step.writes)) for step in steps]


def work(steps):
    """Kernels and sizes of the steps that are no views, in whatever order."""
    return Counter((type, *map(prod, shapes)) for type, *shapes in steps if type not in VIEWS)


def only_views_differ(task, spelling):
    return work(plan(task, spelling)) == work(plan(task, next(iter(task.spellings))))


def has_more_state(task, spelling):
    counts = [
        sum(var.persistable for var in build(task, name)[0].list_vars())
        for name in (spelling, next(iter(task.spellings)))
    ]
    return counts[0] > counts[1]


VIEWS_STAY = Apart("reshapes stay, which are views", only_views_differ)


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32")


def labels(batch):
    return np.random.RandomState(1).randint(0, CLASSES, (batch, 1)).astype("int64")


def parameter(name, *shape):
    """The parameter of this name, which starts with the same numbers in every spelling."""
    return layers.create_parameter(list(shape), "float32", attr=attr(name, *shape))


def attr(name, *shape):
    start = np.random.RandomState(sum(map(ord, name))).uniform(-0.1, 0.1, shape).astype("float32")
    return fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(start))


def classified(h, y, columns=HIDDEN):
    logits = layers.fc(h, CLASSES, param_attr=attr("top", columns, CLASSES), bias_attr=attr("c", CLASSES))
    return layers.mean(layers.softmax_with_cross_entropy(logits, y))


# A network of fully connected layers

SIZES = (784, 128, 64)


def perceptron(layer):
    def loss(x, y):
        for i, (rows, columns) in enumerate(pairwise(SIZES)):
            x = layer(x, i, rows, columns)
        return classified(x, y, SIZES[-1])

    return loss


def by_fc(x, i, rows, columns):
    return layers.fc(x, columns, param_attr=attr(f"w{i}", rows, columns), bias_attr=attr(f"b{i}", columns), act="relu")


def by_product(multiply):
    def layer(x, i, rows, columns):
        product = multiply(x, parameter(f"w{i}", rows, columns))
        return layers.relu(layers.elementwise_add(product, parameter(f"b{i}", columns)))

    return layer


def by_reshape(x, i, rows, columns):
    x = layers.reshape(x, [8, BATCH // 8, rows])
    return layers.reshape(by_product(layers.matmul)(x, i, rows, columns), [BATCH, columns])


def by_sum(x, i, rows, columns):
    product = layers.mul(x, parameter(f"w{i}", rows, columns))
    return layers.relu(product + parameter(f"b{i}", columns))


MLP = Task(
    lambda: {"x": numbers(BATCH, SIZES[0]), "y": labels(BATCH)},
    {
        "fc": perceptron(by_fc),
        "mul": perceptron(by_product(layers.mul)),
        "matmul": perceptron(by_product(layers.matmul)),
        "matmul of three dimensions": perceptron(by_reshape),
        "operators": perceptron(by_sum),
    },
    apart={"matmul of three dimensions": VIEWS_STAY},
)

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
ENTRIES = {
    "split": lambda x: layers.split(layers.reshape(x, [STEPS * BATCH, INPUTS]), STEPS, 0),
    "unstack": lambda x: layers.unstack(x, 0),
    "subscripts": lambda x: [x[t] for t in range(STEPS)],
    "slice and squeeze": lambda x: [layers.squeeze(layers.slice(x, [0], [t], [t + 1]), [0]) for t in range(STEPS)],
}


def _tanh_cell(multiply, x, h):
    w, u, b = parameter("w", INPUTS, HIDDEN), parameter("u", HIDDEN, HIDDEN), parameter("b", HIDDEN)
    return layers.tanh(layers.elementwise_add(multiply(x, w), layers.elementwise_add(multiply(h, u), b)))


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
        "fc on unstack": unrolled("fc", "unstack"),
        "bias last": unrolled("bias last", "unstack"),
        "bias first": unrolled("bias first", "unstack"),
        "fc of both on split": unrolled("fc of both", "split"),
        "StaticRNN": static("mul"),
        "rnn": by_rnn("matmul"),
        "imperative mode, traced": traced,
    },
)

# Losses


def of_logits(loss, mean=layers.mean):
    def network(x, y):
        logits = layers.fc(x, CLASSES, param_attr=attr("top", HIDDEN, CLASSES), bias_attr=attr("c", CLASSES))
        return mean(loss(logits, y))

    return network


LOSS = Task(
    lambda: {"x": numbers(BATCH, HIDDEN), "y": labels(BATCH)},
    {
        "softmax and cross_entropy": of_logits(lambda z, y: layers.cross_entropy(layers.softmax(z), y)),
        "softmax by fc": lambda x, y: layers.mean(layers.cross_entropy(
            layers.fc(
                x, CLASSES, param_attr=attr("top", HIDDEN, CLASSES), bias_attr=attr("c", CLASSES), act="softmax"
            ), y
        )),
        "reduce_mean": of_logits(lambda z, y: layers.cross_entropy(layers.softmax(z), y), layers.reduce_mean),
        "reduce_sum and scale": of_logits(
            lambda z, y: layers.cross_entropy(layers.softmax(z), y),
            lambda each: layers.scale(layers.reduce_sum(each), 1 / BATCH),
        ),
        "softmax_with_cross_entropy": of_logits(layers.softmax_with_cross_entropy),
        "log_softmax": of_logits(lambda z, y: _picked(layers.log(layers.softmax(z)), y)),
        "log_softmax by hand": of_logits(
            lambda z, y: _picked(z - layers.log(layers.reduce_sum(layers.exp(z), dim=1, keep_dim=True)), y)
        ),
    },
)  # fmt: skip


def _picked(log_p, y):
    return layers.scale(layers.reduce_sum(log_p * layers.one_hot(y, CLASSES), dim=1, keep_dim=True), -1.0)


# A long short-term memory of 20 steps

TIMES = 20


def _gates_by_split(z):
    return layers.split(z, 4, dim=1)


def _gates_by_slices(z):
    return [layers.slice(z, [1], [i * HIDDEN], [(i + 1) * HIDDEN]) for i in range(4)]


def memory_cell(multiply, gates):
    def cell(x, state):
        h, c = state
        w, u, b = parameter("w", INPUTS, 4 * HIDDEN), parameter("u", HIDDEN, 4 * HIDDEN), parameter("b", 4 * HIDDEN)
        z = layers.elementwise_add(layers.elementwise_add(multiply(x, w), multiply(h, u)), b)
        i, j, f, o = gates(z)
        c = c * layers.sigmoid(f) + layers.sigmoid(i) * layers.tanh(j)
        return layers.tanh(c) * layers.sigmoid(o), c

    return cell


def _fc_cell(x, state):
    h, c = state
    attrs = [attr("w", INPUTS, 4 * HIDDEN), attr("u", HIDDEN, 4 * HIDDEN)]
    z = layers.fc([x, h], 4 * HIDDEN, param_attr=attrs, bias_attr=attr("b", 4 * HIDDEN))
    i, j, f, o = _gates_by_split(z)
    c = c * layers.sigmoid(f) + layers.sigmoid(i) * layers.tanh(j)
    return layers.tanh(c) * layers.sigmoid(o), c


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
        "gates by slices": memory_unrolled(memory_cell(layers.matmul, _gates_by_slices), layers.unstack),
        "StaticRNN": memory_static(memory_cell(layers.mul, _gates_by_split)),
        "rnn": lambda x, h, y: classified(layers.rnn(MemoryCell(), x, [h, h], time_major=True)[1][0], y),
    },
)

# Attention

WIDTH, HEADS, LENGTH = 64, 4, 16


def _heads(x):
    return layers.transpose(layers.reshape(x, [0, LENGTH, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])


def _attention_by_three(x, y, scores, project=None):
    project = project or (lambda x, name: layers.fc(
        x, WIDTH, num_flatten_dims=2, param_attr=attr(name, WIDTH, WIDTH), bias_attr=False
    ))  # fmt: skip
    q, k, v = (project(x, name) for name in ("q", "k", "v"))
    return _attended(scores(q, k), v, y)


def _attended(scores, v, y):
    mixed = layers.transpose(layers.matmul(layers.softmax(scores), _heads(v)), [0, 2, 1, 3])
    pooled = layers.reduce_mean(layers.reshape(mixed, [0, LENGTH, WIDTH]), dim=1)
    return classified(pooled, y, WIDTH)


FACTOR = (WIDTH // HEADS) ** -0.5


def _scores_by_alpha(q, k):
    return layers.matmul(_heads(q), _heads(k), transpose_y=True, alpha=FACTOR)


def _scores_by_scale(q, k):
    return layers.matmul(layers.scale(_heads(q), FACTOR), _heads(k), transpose_y=True)


def _scores_scaled(q, k):
    return layers.scale(layers.matmul(_heads(q), _heads(k), transpose_y=True), FACTOR)


def _scores_transposed(q, k):
    keys = layers.transpose(layers.reshape(k, [0, LENGTH, HEADS, WIDTH // HEADS]), [0, 2, 3, 1])
    return layers.matmul(_heads(q), keys, alpha=FACTOR)


def _attention_by_one(x, y):
    whole = layers.concat([parameter(name, WIDTH, WIDTH) for name in ("q", "k", "v")], axis=1)
    q, k, v = layers.split(layers.matmul(x, whole), 3, dim=2)
    return _attended(_scores_by_alpha(q, k), v, y)


ATTENTION = Task(
    lambda: {"x": numbers(8, LENGTH, WIDTH), "y": labels(8)},
    {
        "three projections": lambda x, y: _attention_by_three(x, y, _scores_by_alpha),
        "by matmul": lambda x, y: _attention_by_three(
            x, y, _scores_by_alpha, lambda x, name: layers.matmul(x, parameter(name, WIDTH, WIDTH))
        ),
        "scaled queries": lambda x, y: _attention_by_three(x, y, _scores_by_scale),
        "scaled scores": lambda x, y: _attention_by_three(x, y, _scores_scaled),
        "keys transposed before": lambda x, y: _attention_by_three(x, y, _scores_transposed),
        "one projection": _attention_by_one,
    },
)

# A convolution with bias and relu


def convolution(layer):
    def loss(x, y):
        pooled = layers.pool2d(layer(x), 2, "avg", global_pooling=True)
        return classified(layers.reshape(pooled, [0, 16]), y, 16)

    return loss


def _conv(x, **options):
    return layers.conv2d(x, 16, 3, param_attr=attr("k", 16, 3, 3, 3), **options)


def _normalized(x):
    ones = fluid.ParamAttr("ones", initializer=fluid.initializer.Constant(1.0))
    return layers.batch_norm(_conv(x, bias_attr=False), "relu", True, epsilon=0.0, param_attr=ones,
                             bias_attr=attr("b", 16))  # fmt: skip


CONVOLUTION = Task(
    lambda: {"x": numbers(8, 3, 24, 24), "y": labels(8)},
    {
        "act": convolution(lambda x: _conv(x, bias_attr=attr("b", 16), act="relu")),
        "relu": convolution(lambda x: layers.relu(_conv(x, bias_attr=attr("b", 16)))),
        "add": convolution(
            lambda x: layers.relu(layers.elementwise_add(_conv(x, bias_attr=False), parameter("b", 16), axis=1))
        ),
        "add of four dimensions": convolution(
            lambda x: layers.relu(
                layers.elementwise_add(_conv(x, bias_attr=False), layers.reshape(parameter("b", 16), [1, 16, 1, 1]))
            )
        ),
        "batch_norm": convolution(_normalized),
    },
    apart={
        "add of four dimensions": VIEWS_STAY,
        "batch_norm": Apart("reads statistics, which are state", has_more_state),
    },
)

# A sum of several products

TERMS = 4


def summed(add):
    def loss(x, y):
        terms = [layers.mul(x, parameter(f"term{i}", HIDDEN, HIDDEN)) for i in range(TERMS)]
        return classified(layers.tanh(add(*terms)), y)

    return loss


SUM = Task(
    lambda: {"x": numbers(BATCH, HIDDEN), "y": labels(BATCH)},
    {
        "operators": summed(lambda a, b, c, d: a + b + c + d),
        "operators, right to left": summed(lambda a, b, c, d: a + (b + (c + d))),
        "elementwise_add in a tree": summed(
            lambda a, b, c, d: layers.elementwise_add(layers.elementwise_add(a, b), layers.elementwise_add(c, d))
        ),
        "sums": summed(lambda *terms: layers.sums(list(terms))),
        "sum of sums": summed(lambda a, b, c, d: layers.sums([layers.sums([a, b]), layers.sums([c, d])])),
    },
)

# Updates with L2 decay and a clip


def _updated(make, decay, clip):
    """A network whose updates get decay and clip in one of several ways."""

    def optimizer():
        options = {}
        if decay == "optimizer":
            options["regularization"] = fluid.regularizer.L2Decay(1e-4)
        if clip == "optimizer":
            options["grad_clip"] = fluid.clip.GradientClipByGlobalNorm(1.0)
        return make(**options)

    def loss(x, y):
        found = perceptron(by_fc)(x, y)
        for each in fluid.default_main_program().all_parameters():
            if decay == "parameter":
                each.regularizer = fluid.regularizer.L2Decay(1e-4)
        if clip == "program":
            fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
        made = optimizer()
        if decay == "steps":
            made.apply_gradients(made.backward(found))
        else:
            made.minimize(found)
        return found

    return loss


def updates(make):
    return Task(MLP.feed, {
        "by the optimizer": _updated(make, "optimizer", "optimizer"),
        "decay by parameters": _updated(make, "parameter", "optimizer"),
        "clip by the program": _updated(make, "optimizer", "program"),
        "both outside": _updated(make, "parameter", "program"),
    }, optimizer=None)  # fmt: skip


TASKS = {
    "MLP": MLP,
    "tanh RNN": RNN,
    "LSTM": LSTM,
    "attention": ATTENTION,
    "convolution": CONVOLUTION,
    "loss": LOSS,
    "sum": SUM,
    "Adam": updates(lambda **options: fluid.optimizer.Adam(0.01, **options)),
    "Momentum": updates(lambda **options: fluid.optimizer.Momentum(0.01, 0.9, **options)),
}
