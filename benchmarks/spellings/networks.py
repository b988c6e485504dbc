"""Networks without a recurrence in several spellings, and their updates."""

from itertools import pairwise

import numpy as np

import minigraph as fluid
from minigraph import layers

from .tasks import (
    BATCH,
    HIDDEN,
    VIEWS_STAY,
    Apart,
    Task,
    attr,
    classified,
    differs_by,
    has_more_state,
    labels,
    numbers,
    parameter,
    start_of,
)

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

# A convolution of each channel by itself

CHANNELS = 16


def _kernel(i=slice(None)):
    name = "k" if isinstance(i, slice) else f"k{i}"
    return attr(name, start=start_of("k", CHANNELS, 1, 3, 3)[i].reshape(-1, 1, 3, 3))


def _each_channel(convolve):
    def loss(x, y):
        found = layers.relu(convolve(layers.elementwise_mul(x, parameter("each", CHANNELS), axis=1)))
        return classified(layers.reduce_mean(found, dim=[2, 3]), y, CHANNELS)

    return loss


def _by_groups(x, padding=1, **options):
    return layers.conv2d(
        x, CHANNELS, 3, padding=padding, groups=CHANNELS, param_attr=_kernel(), bias_attr=False, **options
    )


def _one_by_one(cut):
    def convolve(x):
        parts = [
            layers.conv2d(part, 1, 3, padding=1, param_attr=_kernel(i), bias_attr=False)
            for i, part in enumerate(cut(x))
        ]
        return layers.concat(parts, axis=1)

    return convolve


MORE_FILTERS = Apart(
    "has a parameter for each channel, which are joined, and their gradients cut", differs_by(["concat", "split"])
)

DEPTHWISE = Task(
    lambda: {"x": numbers(8, CHANNELS, 12, 12), "y": labels(8)},
    {
        "groups": _each_channel(_by_groups),
        "SAME": _each_channel(lambda x: _by_groups(x, "SAME")),
        "without cuDNN": _each_channel(lambda x: _by_groups(x, use_cudnn=False)),
        "split": _each_channel(_one_by_one(lambda x: layers.split(x, CHANNELS, dim=1))),
        "slices": _each_channel(_one_by_one(lambda x: [layers.slice(x, [1], [i], [i + 1]) for i in range(CHANNELS)])),
    },
    apart={
        "without cuDNN": Apart(
            "has an operator of another name",
            differs_by(["depthwise_conv2d", "depthwise_conv2d_grad"], ["conv2d", "conv2d_grad"]),
        ),
        "split": MORE_FILTERS,
        "slices": MORE_FILTERS,
    },
)

# A convolution of each part of the channels, with bias and activation

PARTS = 4


def _in_groups(x, act="tanh"):
    return layers.conv2d(
        x, CHANNELS, 3, padding=1, groups=PARTS, param_attr=_part("k", CHANNELS // PARTS, 3, 3), bias_attr=_part("b"),
        act=act,
    )  # fmt: skip


def _part(name, *shape, i=None):
    """A parameter with an element, or a filter, for each channel, or part `i` of it."""
    start = start_of(name, CHANNELS, *shape)
    return attr(name, start=start) if i is None else attr(f"{name}{i}", start=np.split(start, PARTS)[i])


def _part_by_part(cut, act="tanh", finish=lambda x: x):
    def convolve(x):
        parts = [
            layers.conv2d(
                part, CHANNELS // PARTS, 3, padding=1, param_attr=_part("k", CHANNELS // PARTS, 3, 3, i=i),
                bias_attr=_part("b", i=i), act=act,
            )
            for i, part in enumerate(cut(x))
        ]  # fmt: skip
        return finish(layers.concat(parts, axis=1))

    return convolve


def _channels(x):
    size = CHANNELS // PARTS
    return [layers.slice(x, [1], [i * size], [(i + 1) * size]) for i in range(PARTS)]


def _cut(x):
    return layers.split(x, PARTS, dim=1)


GROUPED = Task(
    DEPTHWISE.feed,
    {
        "groups": _each_channel(_in_groups),
        "activation apart": _each_channel(lambda x: layers.tanh(_in_groups(x, None))),
        "split": _each_channel(_part_by_part(_cut)),
        "split, activation last": _each_channel(_part_by_part(_cut, None, layers.tanh)),
        "slices": _each_channel(_part_by_part(_channels)),
    },
    apart=dict.fromkeys(
        ("split", "split, activation last", "slices"),
        Apart("has parameters for each part, which are joined, and their gradients cut", differs_by(
            ["concat", "concat", "split"]
        )),
    ),
)  # fmt: skip

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
