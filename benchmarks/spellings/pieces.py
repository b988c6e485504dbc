"""Pieces of public programs in several spellings: losses, means, lookups, images, masks, and updates by hand."""

import numpy as np

import minigraph as fluid
from minigraph import layers

from .formulas import LOSS, of_logits
from .tasks import (
    BATCH,
    CLASSES,
    HIDDEN,
    VIEWS_STAY,
    Apart,
    Task,
    attr,
    classified,
    differs_by,
    hidden,
    labels,
    numbers,
    parameter,
)

# Means, and factors and addends


def _mean(function):
    return lambda x, y: function(layers.tanh(layers.mul(x, parameter("w", HIDDEN, HIDDEN))))


MEAN_OF_SQUARES = Task(
    LOSS.feed,
    {
        "mean": _mean(lambda z: layers.mean(layers.square(z))),
        "rows, then all": _mean(lambda z: layers.mean(layers.reduce_mean(layers.square(z), dim=1))),
        "rows, kept": _mean(lambda z: layers.reduce_mean(layers.reduce_mean(z * z, dim=-1, keep_dim=True))),
        "sums": _mean(
            lambda z: layers.reduce_sum(layers.reduce_sum(layers.pow(z, 2.0), dim=1), dim=0) / float(BATCH * HIDDEN)
        ),
        "sums of rows": _mean(lambda z: layers.mean(layers.reduce_sum(z * z, dim=1) * (1 / HIDDEN))),
    },
)
AFFINE = Task(
    LOSS.feed,
    {
        "scale": hidden(lambda z: layers.tanh(layers.scale(z, 0.5, bias=0.25))),
        "operators": hidden(lambda z: layers.tanh(z * 0.5 + 0.25)),
        "bias first": hidden(lambda z: layers.tanh(layers.scale(z, 0.5, bias=0.5, bias_after_scale=False))),
        "many": hidden(lambda z: layers.tanh((z * 2.0 + 2.0) / 4.0 - 0.25)),
        "difference": hidden(lambda z: layers.tanh(0.25 - z * -0.5)),
    },
)

# A penalty on a weight


def _penalized(penalty):
    def loss(x, y):
        w = parameter("w", HIDDEN, HIDDEN)
        return layers.elementwise_add(classified(layers.tanh(layers.mul(x, w)), y), penalty(w))

    return loss


PENALTY = Task(
    LOSS.feed,
    {
        "square": _penalized(lambda w: layers.scale(layers.reduce_sum(layers.square(w)), 1e-4)),
        "product": _penalized(lambda w: layers.reduce_sum(w * w) * 1e-4),
        "pow": _penalized(lambda w: 1e-4 * layers.reduce_sum(layers.pow(w, 2.0))),
        "operators and quotient": _penalized(lambda w: layers.reduce_sum(layers.square(w)) / 1e4),
        "sum of sums": _penalized(lambda w: layers.reduce_sum(layers.reduce_sum(w * w, dim=1)) * 1e-4),
    },
)

# Losses with weights of classes, and of rows

_SMOOTH = 0.1


def _by_weights(weights):
    return of_logits(lambda z, y: layers.softmax_with_cross_entropy(z, weights(y), soft_label=True))


def _smooth(y):
    return layers.label_smooth(layers.one_hot(y, CLASSES), epsilon=_SMOOTH)


SMOOTH_LABELS = Task(
    LOSS.feed,
    {
        "scale": _by_weights(lambda y: layers.scale(layers.one_hot(y, CLASSES), 1 - _SMOOTH, bias=_SMOOTH / CLASSES)),
        "operators": _by_weights(lambda y: layers.one_hot(y, CLASSES) * (1 - _SMOOTH) + _SMOOTH / CLASSES),
        "label_smooth": _by_weights(_smooth),
        "cross_entropy": of_logits(lambda z, y: layers.cross_entropy(layers.softmax(z), _smooth(y), soft_label=True)),
    },
    apart={
        "label_smooth": Apart("has one operator for the scale", differs_by(["label_smooth"], ["scale"])),
        "cross_entropy": Apart(
            "has a softmax and a loss",
            differs_by(
                ["label_smooth", "softmax", "cross_entropy", "cross_entropy_grad", "softmax_grad"],
                ["scale", "softmax_with_cross_entropy", "softmax_with_cross_entropy_grad"],
            ),
        ),
    },
)


def _rewarded(loss, mean=layers.mean):
    def network(x, y):
        z = layers.fc(x, CLASSES, param_attr=attr("top", HIDDEN, CLASSES), bias_attr=attr("c", CLASSES))
        return mean(layers.elementwise_mul(loss(z, y), layers.slice(x, [1], [0], [1])))

    return network


def _of_shares(z, y):
    return layers.cross_entropy(layers.softmax(z), y)


REWARDS = Task(
    LOSS.feed,
    {
        "softmax_with_cross_entropy": _rewarded(layers.softmax_with_cross_entropy),
        "cross_entropy": _rewarded(_of_shares),
        "sum": _rewarded(_of_shares, lambda each: layers.reduce_sum(each) / float(BATCH)),
        "log": _rewarded(
            lambda z, y: -1.0 * layers.reduce_sum(
                layers.log(layers.softmax(z)) * layers.one_hot(y, CLASSES), dim=1, keep_dim=True
            )
        ),
    },
    apart=dict.fromkeys(("cross_entropy", "sum", "log"), Apart("has a softmax and a loss", differs_by(
        ["softmax", "cross_entropy2", "cross_entropy_grad2", "softmax_grad"],
        ["softmax_with_cross_entropy", "softmax_with_cross_entropy_grad"],
    ))),
)  # fmt: skip

# A lookup

ROWS = 50


def _looked_up(lookup):
    return lambda x, y: classified(layers.tanh(lookup(x)), y)


def _other_lookup(*types):
    return Apart("finds the rows in another way", differs_by(types, ["lookup_table", "lookup_table_grad"]))


LOOKUP = Task(
    lambda: {"x": np.random.RandomState(2).randint(0, ROWS, (BATCH, 1)).astype("int64"), "y": labels(BATCH)},
    {
        "embedding": _looked_up(lambda x: layers.embedding(x, [ROWS, HIDDEN], param_attr=attr("e", ROWS, HIDDEN))),
        "embedding of a vector": _looked_up(
            lambda x: fluid.embedding(layers.reshape(x, [-1]), [ROWS, HIDDEN], param_attr=attr("e", ROWS, HIDDEN))
        ),
        "gather": _looked_up(
            lambda x: layers.gather(parameter("e", ROWS, HIDDEN), layers.reshape(x, [-1]), overwrite=False)
        ),
        "gather_nd": _looked_up(lambda x: layers.gather_nd(parameter("e", ROWS, HIDDEN), x)),
        "one_hot": _looked_up(lambda x: layers.matmul(layers.one_hot(x, ROWS), parameter("e", ROWS, HIDDEN))),
    },
    apart={
        "embedding of a vector": _other_lookup("lookup_table_v2", "lookup_table_v2_grad"),
        "gather": _other_lookup("gather", "gather_grad"),
        "gather_nd": _other_lookup("gather_nd", "gather_nd_grad"),
        "one_hot": _other_lookup("one_hot", "mul", "mul_grad"),
    },
)

# Images: filters of one element, and what is learned of each channel

IMAGES, CHANNELS, SIDE, FILTERS = 8, 32, 14, 16


def _images(layer, channels):
    def loss(x, y):
        x = layers.elementwise_mul(x, parameter("each", CHANNELS), axis=1)
        rows = layers.reshape(layer(x), [0, channels, SIDE * SIDE])
        return classified(layers.reduce_mean(rows, dim=2), y, channels)

    return loss


def _filters():
    return layers.reshape(parameter("k", FILTERS, CHANNELS, 1, 1), [FILTERS, CHANNELS])


def _conv(x, **options):
    return layers.conv2d(x, FILTERS, 1, param_attr=attr("k", FILTERS, CHANNELS, 1, 1), bias_attr=False, **options)


def _multiplied(x):
    filters = layers.expand(layers.unsqueeze(_filters(), [0]), [IMAGES, 1, 1])
    return layers.matmul(filters, layers.reshape(x, [0, CHANNELS, SIDE * SIDE]))


def _multiplied_last(x):
    places = layers.reshape(layers.transpose(x, [0, 2, 3, 1]), [IMAGES * SIDE * SIDE, CHANNELS])
    product = layers.reshape(layers.matmul(places, _filters(), transpose_y=True), [IMAGES, SIDE, SIDE, FILTERS])
    return layers.transpose(product, [0, 3, 1, 2])


_IMAGES = lambda: {"x": numbers(IMAGES, CHANNELS, SIDE, SIDE), "y": labels(IMAGES)}  # noqa: E731
POINTWISE = Task(
    _IMAGES,
    {
        "conv2d": _images(_conv, FILTERS),
        "SAME": _images(lambda x: _conv(x, padding="SAME"), FILTERS),
        "matmul": _images(_multiplied, FILTERS),
        "matmul, channels last": _images(_multiplied_last, FILTERS),
    },
    apart={
        "matmul": Apart(
            "repeats the filters, and multiplies",
            differs_by(["expand", "matmul", "matmul_grad", "expand_grad"], ["conv2d", "conv2d_grad"]),
        ),
        "matmul, channels last": Apart(
            "copies the images", differs_by(["matmul", "matmul_grad"], ["conv2d", "conv2d_grad"])
        ),
    },
)


def _excited(squeeze, weigh):
    def layer(x):
        inner = layers.fc(squeeze(x), 8, act="relu", param_attr=attr("s", CHANNELS, 8), bias_attr=False)
        return weigh(x, layers.fc(inner, CHANNELS, act="sigmoid", param_attr=attr("t", 8, CHANNELS), bias_attr=False))

    return _images(layer, CHANNELS)


def _by_axis(x, share):
    return layers.elementwise_mul(x, share, axis=0)


EXCITATION = Task(
    _IMAGES,
    {
        "pool2d": _excited(lambda x: layers.pool2d(x, pool_type="avg", global_pooling=True), _by_axis),
        "adaptive_pool2d": _excited(lambda x: layers.adaptive_pool2d(x, [1, 1], pool_type="avg"), _by_axis),
        "reduce_mean": _excited(lambda x: layers.reduce_mean(x, dim=[2, 3]), _by_axis),
        "unsqueeze": _excited(
            lambda x: layers.reduce_mean(x, dim=[2, 3], keep_dim=True), lambda x, e: x * layers.unsqueeze(e, [2, 3])
        ),
        "reshape": _excited(
            lambda x: layers.reduce_mean(layers.reshape(x, [0, CHANNELS, -1]), dim=2),
            lambda x, e: x * layers.reshape(e, [0, CHANNELS, 1, 1]),
        ),
    },
    apart=dict.fromkeys(("reduce_mean", "unsqueeze", "reshape"), VIEWS_STAY),
)

# A mask on an attention

LENGTH = 16


def _masked(attend):
    def loss(x, m, y):
        q, k, v = (layers.matmul(x, parameter(name, HIDDEN, HIDDEN)) for name in "qkv")
        shares = attend(layers.matmul(q, k, transpose_y=True, alpha=HIDDEN**-0.5), m)
        return classified(layers.reduce_mean(layers.matmul(shares, v), dim=1), y)

    return loss


def _mask_feed():
    lengths = np.random.RandomState(3).randint(4, LENGTH + 1, (IMAGES, 1))
    mask = (np.arange(LENGTH) < lengths).astype("float32")
    return {"x": numbers(IMAGES, LENGTH, HIDDEN), "m": mask, "y": labels(IMAGES)}


def _multiplied_mask(s, m):
    powers = layers.exp(s) * layers.unsqueeze(m, [1])
    return powers / layers.reduce_sum(powers, dim=2, keep_dim=True)


MASK = Task(
    _mask_feed,
    {
        "scale": _masked(lambda s, m: layers.softmax(s + layers.unsqueeze(layers.scale(m, 1e4, bias=-1e4), [1]))),
        "operators": _masked(lambda s, m: layers.softmax(s + layers.unsqueeze((m - 1.0) * 1e4, [1]))),
        "unsqueezed first": _masked(lambda s, m: layers.softmax(s + (layers.unsqueeze(m, [1]) * 1e4 - 1e4))),
        "expanded": _masked(
            lambda s, m: layers.softmax(s + layers.expand(layers.unsqueeze((m - 1.0) * 1e4, [1]), [1, LENGTH, 1]))
        ),
        "product": _masked(_multiplied_mask),
    },
    apart={
        **dict.fromkeys(
            ("operators", "expanded"),
            Apart("scales after the addend: one step for both would round otherwise", differs_by(["scale"])),
        ),
        "unsqueezed first": VIEWS_STAY,
        "product": Apart(
            "is no softmax",
            differs_by(
                [
                    "fused_elementwise",
                    "fused_elementwise",
                    "reduce_sum",
                    "elementwise_div",
                    "elementwise_div_grad",
                    "reduce_sum_grad",
                ],
                ["scale", "elementwise_add", "softmax", "softmax_grad"],
            ),
        ),
    },
)

# A sum beside a layer


def _beside(add):
    def function(z):
        inner = layers.relu(layers.mul(z, parameter("r", HIDDEN, HIDDEN)))
        return add(z, layers.mul(inner, parameter("s", HIDDEN, HIDDEN)))

    return hidden(function)


RESIDUAL = Task(
    LOSS.feed,
    {
        "operator": _beside(lambda z, h: layers.relu(z + h)),
        "act": _beside(lambda z, h: layers.elementwise_add(h, z, act="relu")),
        "sums": _beside(lambda z, h: layers.relu(layers.sums([z, h]))),
        "difference": _beside(lambda z, h: layers.relu(z - layers.scale(h, -1.0))),
    },
    apart={"difference": Apart("joins the sign with a gradient", differs_by(["fused_elementwise"], ["relu_grad"]))},
)

# Decay of weights, and their averages


def _updated(update):
    def loss(x, y):
        found = classified(layers.tanh(layers.mul(x, parameter("w", HIDDEN, HIDDEN))), y)
        update(found)
        return found

    return loss


def _decayed(decay):
    def update(loss):
        optimizer = fluid.optimizer.SGD(0.1)
        optimizer.apply_gradients([(p, decay(p, g)) for p, g in optimizer.backward(loss)])

    return _updated(update)


def _by_regularizer(loss):
    fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(1e-3)).minimize(loss)


DECAY = Task(
    LOSS.feed,
    {
        "regularizer": _updated(_by_regularizer),
        "sums": _decayed(lambda p, g: layers.sums([g, layers.scale(p, 1e-3)])),
        "operators": _decayed(lambda p, g: g + 1e-3 * p),
        "elementwise_add": _decayed(lambda p, g: layers.elementwise_add(layers.scale(p, 1e-3), g)),
    },
    optimizer=None,
)


def _averaged(average):
    def update(loss):
        fluid.optimizer.SGD(0.1).minimize(loss)
        for p in fluid.default_main_program().all_parameters():
            average(p, layers.create_global_var(p.shape, 0.0, "float32", persistable=True, name=f"{p.name}_average"))

    return _updated(update)


AVERAGE = Task(
    LOSS.feed,
    {
        "operators": _averaged(lambda p, a: layers.assign(a * 0.99 + p * 0.01, a)),
        "scale": _averaged(
            lambda p, a: layers.assign(layers.elementwise_add(layers.scale(a, 0.99), layers.scale(p, 0.01)), a)
        ),
        "sums": _averaged(lambda p, a: layers.assign(layers.sums([0.99 * a, 0.01 * p]), a)),
        "difference": _averaged(lambda p, a: layers.assign(a - (a - p) * 0.01, a)),
    },
    apart={
        "difference": Apart("is a gradient descent, whose rate is in a variable", differs_by(["fill_constant"])),
    },
    optimizer=None,
)
