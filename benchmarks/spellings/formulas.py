"""Losses, normalizations and other formulas in several spellings."""

import numpy as np

from minigraph import layers, one_hot

from .tasks import BATCH, CLASSES, HIDDEN, VIEWS_STAY, Apart, Task, attr, differs_by, hidden, labels, numbers, parameter

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
        "log_softmax, squeezed": of_logits(
            lambda z, y: -1.0 * layers.reduce_sum(layers.log(layers.softmax(z)) * layers.one_hot(y, CLASSES), dim=1)
        ),
        "log_softmax, all added": of_logits(
            lambda z, y: layers.log(layers.softmax(z)) * layers.one_hot(y, CLASSES),
            lambda each: -1.0 * layers.reduce_sum(each) / float(BATCH),
        ),
        "log_softmax of a vector of labels": of_logits(
            lambda z, y: -1.0 * layers.reduce_sum(
                layers.log(layers.softmax(z)) * one_hot(layers.reshape(y, [-1]), CLASSES), dim=1
            )
        ),
        "logarithm of the share": of_logits(
            lambda z, y: -1.0 * layers.log(_of_label(layers.softmax(z), y))
        ),
        "minus each": of_logits(
            lambda z, y: layers.reduce_sum(-layers.log(layers.softmax(z)) * layers.one_hot(y, CLASSES), dim=1)
        ),
        "gather_nd": of_logits(lambda z, y: -1.0 * layers.gather_nd(layers.log(layers.softmax(z)), _places(y))),
        "gather_nd, stacked": of_logits(
            lambda z, y: layers.gather_nd(layers.log(layers.softmax(z)), _stacked_places(y)),
            lambda each: -1.0 * layers.reduce_mean(each),
        ),
        "gather_nd of the shares": of_logits(
            lambda z, y: -1.0 * layers.log(layers.gather_nd(layers.softmax(z), _places(y)))
        ),
        "reshaped": of_logits(
            lambda z, y: layers.reshape(layers.cross_entropy(layers.softmax(z), y), [-1])
        ),
        "log of a sum": of_logits(lambda z, y: _log_of_sum(z) - _of_label(z, y)),
        "log of a sum, less the maximum": of_logits(lambda z, y: _log_of_sum_above_top(z) - _of_label(z, y)),
        "log of a sum, less the maximum, stopped": of_logits(
            lambda z, y: _log_of_sum_above_top(z, is_stopped=True) - _of_label(z, y)
        ),
    },
)  # fmt: skip


def _picked(log_p, y):
    return layers.scale(_of_label(log_p, y), -1.0)


def _of_label(z, y):
    return layers.reduce_sum(z * layers.one_hot(y, CLASSES), dim=1, keep_dim=True)


def _places(y):
    """Numbers of row and column of each label."""
    return layers.concat([layers.assign(np.arange(BATCH).reshape(BATCH, 1)), y], axis=1)


def _stacked_places(y):
    return layers.stack([layers.range(0, BATCH, 1, "int64"), layers.reshape(y, [-1])], axis=1)


def _log_of_sum(z):
    return layers.log(layers.reduce_sum(layers.exp(z), dim=1, keep_dim=True))


def _log_of_sum_above_top(z, is_stopped=False):
    top = layers.reduce_max(z, dim=1, keep_dim=True)
    top.stop_gradient = is_stopped
    return top + _log_of_sum(z - top)


# Normalizations


def _share(powers):
    return powers / layers.reduce_sum(powers, dim=-1, keep_dim=True)


def _share_by_rows(z):
    powers = layers.exp(layers.elementwise_sub(z, layers.reduce_max(z, dim=1), axis=0))
    return layers.elementwise_div(powers, layers.reduce_sum(powers, dim=1), axis=0)


SOFTMAX = Task(
    LOSS.feed,
    {
        "softmax": hidden(layers.softmax),
        "by exponentials": hidden(lambda z: _share(layers.exp(z))),
        "less the maximum": hidden(lambda z: _share(layers.exp(z - layers.reduce_max(z, dim=-1, keep_dim=True)))),
        "without the dimension": hidden(_share_by_rows),
    },
)


def _below_top(form):
    def function(z):
        top = layers.reduce_max(z, dim=-1, keep_dim=True)
        return form(z, z - top, top)

    return hidden(function)


LOG_SOFTMAX = Task(
    LOSS.feed,
    {
        "log of a sum": hidden(lambda z: z - _log_of_sum(z)),
        "less the maximum": _below_top(lambda z, less, top: less - _log_of_sum(less)),
        "maximum beside the sum": _below_top(lambda z, less, top: z - (top + _log_of_sum(less))),
        "log_softmax": hidden(layers.log_softmax),
    },
    apart={
        "log_softmax": Apart(
            "has a softmax and a logarithm",
            differs_by(["softmax", "log", "log_grad", "softmax_grad"], ["log_softmax", "log_softmax_grad"]),
        )
    },
)


def _normalized_rows(square, divide):
    def function(z):
        apart = z - layers.reduce_mean(z, dim=-1, keep_dim=True)
        variance = layers.reduce_mean(square(apart), dim=-1, keep_dim=True)
        return divide(apart, variance + 1e-5) * parameter("g", HIDDEN) + parameter("b", HIDDEN)

    return hidden(function)


def _normalized_by_columns(z):
    apart = layers.elementwise_sub(z, layers.reduce_mean(z, dim=1), axis=0)
    variance = layers.scale(layers.reduce_sum(apart * apart, dim=1), 1 / HIDDEN)
    normal = layers.elementwise_div(apart, layers.sqrt(variance + 1e-5), axis=0)
    return parameter("b", HIDDEN) + parameter("g", HIDDEN) * normal


def _normalized_by_two_means(z):
    def mean():
        return layers.reduce_mean(z, dim=-1, keep_dim=True)

    variance = layers.reduce_mean(layers.square(z - mean()), dim=-1, keep_dim=True)
    return (z - mean()) / layers.sqrt(variance + 1e-5) * parameter("g", HIDDEN) + parameter("b", HIDDEN)


def _normalized_factor_first(z):
    apart = z - layers.reduce_mean(z, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(apart * apart, dim=-1, keep_dim=True)
    return apart * (layers.rsqrt(variance + 1e-5) * parameter("g", HIDDEN)) + parameter("b", HIDDEN)


def _normalized_factor_divided(z):
    apart = z - layers.reduce_mean(z, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(layers.square(apart), dim=-1, keep_dim=True)
    return parameter("g", HIDDEN) * apart / layers.sqrt(variance + 1e-5) + parameter("b", HIDDEN)


def _normalized_factor_between(z):
    apart = z - layers.reduce_mean(z, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(layers.square(apart), dim=-1, keep_dim=True)
    return parameter("g", HIDDEN) * apart * layers.rsqrt(variance + 1e-5) + parameter("b", HIDDEN)


def _normalized_by_moments(z):
    mean = layers.reduce_mean(z, dim=-1, keep_dim=True)
    variance = layers.reduce_mean(z * z, dim=-1, keep_dim=True) - mean * mean
    return (z - mean) / layers.sqrt(variance + 1e-5) * parameter("g", HIDDEN) + parameter("b", HIDDEN)


LAYER_NORM = Task(
    LOSS.feed,
    {
        "layer_norm": hidden(lambda z: layers.layer_norm(z, param_attr=attr("g", HIDDEN), bias_attr=attr("b", HIDDEN))),
        "sqrt": _normalized_rows(layers.square, lambda x, v: x / layers.sqrt(v)),
        "rsqrt": _normalized_rows(layers.square, lambda x, v: x * layers.rsqrt(v)),
        "without the dimension, parameters first": hidden(_normalized_by_columns),
        "difference and mean twice": hidden(_normalized_by_two_means),
        "product and pow": _normalized_rows(lambda x: x * x, lambda x, v: x * layers.pow(v, -0.5)),
        "powers": _normalized_rows(lambda x: x**2, lambda x, v: x / v**0.5),
        "quotient of one": _normalized_rows(layers.square, lambda x, v: x * (1.0 / layers.sqrt(v))),
        "factor first": hidden(_normalized_factor_first),
        "factor before the division": hidden(_normalized_factor_divided),
        "factor before the root": hidden(_normalized_factor_between),
        "scale and shift outside": hidden(
            lambda z: layers.layer_norm(z, scale=False, shift=False) * parameter("g", HIDDEN) + parameter("b", HIDDEN)
        ),
        "moments": hidden(_normalized_by_moments),
    },
)


def _biased(form):
    return hidden(lambda z: layers.tanh(layers.elementwise_add(z, form(parameter("b", HIDDEN), z))))


BIAS = Task(
    LOSS.feed,
    {
        "broadcast": _biased(lambda b, z: b),
        "expand": _biased(lambda b, z: layers.expand(layers.reshape(b, [1, HIDDEN]), [BATCH, 1])),
        "expand_as": _biased(lambda b, z: layers.expand_as(layers.unsqueeze(b, [0]), z)),
        "row": _biased(lambda b, z: layers.reshape(b, [1, HIDDEN])),
        "first operand": hidden(lambda z: layers.tanh(layers.elementwise_add(parameter("b", HIDDEN), z))),
    },
    apart={name: VIEWS_STAY for name in ("expand", "expand_as", "row")},
)

# A factor


def _number(value):
    return layers.fill_constant([1], "float32", value)


FACTOR_ONCE = Task(
    LOSS.feed,
    {
        "scale": hidden(lambda z: layers.tanh(layers.scale(z, 0.5))),
        "scales": hidden(lambda z: layers.tanh(layers.scale(layers.scale(z, 2.0), 0.25))),
        "operator": hidden(lambda z: layers.tanh(z / 2.0)),
        "product": hidden(lambda z: layers.tanh(layers.elementwise_mul(z, _number(0.5)))),
        "quotient": hidden(lambda z: layers.tanh(layers.elementwise_div(z, _number(2.0)))),
    },
)

# A reshape


def _reshaped(shape):
    def function(z):
        return layers.reshape(layers.tanh(layers.reshape(z, shape())), [BATCH, HIDDEN])

    return hidden(function)


ROWS = BATCH // 8
RESHAPE = Task(
    LOSS.feed,
    {
        "numbers": _reshaped(lambda: [8, ROWS, HIDDEN]),
        "rest": _reshaped(lambda: [8, -1, HIDDEN]),
        "tensor": _reshaped(lambda: layers.assign(np.array([8, ROWS, HIDDEN], "int32"))),
        "tensor among numbers": _reshaped(lambda: [8, layers.fill_constant([1], "int32", ROWS), HIDDEN]),
    },
)

# A cubic inside of a tanh


def _cubic(power):
    return hidden(lambda z: 0.5 * z * (1.0 + layers.tanh(0.8 * (z + 0.044715 * power(z)))))


CUBIC = Task(
    LOSS.feed,
    {
        "pow": _cubic(lambda z: layers.pow(z, 3.0)),
        "square and product": _cubic(lambda z: layers.square(z) * z),
        "elementwise_mul": _cubic(lambda z: layers.elementwise_mul(layers.square(z), z)),
        "pow and product": _cubic(lambda z: layers.pow(z, 2.0) * z),
    },
)
