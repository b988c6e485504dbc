"""Normalizations of channels and of rows in several spellings."""

from minigraph import layers

from .tasks import VIEWS_STAY, Apart, Task, attr, classified, differs_by, has_more_state, labels, numbers, parameter

SAMPLES, CHANNELS, SIDE, GROUPS = 8, 16, 10, 4
SHAPE = [SAMPLES, CHANNELS, SIDE, SIDE]


def _images(normalize):
    def loss(x, y):
        normal = layers.relu(normalize(layers.elementwise_mul(x, parameter("each", CHANNELS), axis=1)))
        return classified(layers.reduce_mean(normal, dim=[2, 3]), y, CHANNELS)

    return loss


def _feed():
    return {"x": numbers(*SHAPE), "y": labels(SAMPLES)}


def _by_layer(layer, **options):
    own = {"param_attr": attr("g", CHANNELS), "bias_attr": attr("b", CHANNELS)}
    return _images(lambda x: layer(x, **own, **options))


def _stretched(x):
    g, b = parameter("g", CHANNELS), parameter("b", CHANNELS)
    return layers.elementwise_add(layers.elementwise_mul(x, g, axis=1), b, axis=1)


def _stretched_whole(x):
    g, b = (layers.reshape(parameter(name, CHANNELS), [1, CHANNELS, 1, 1]) for name in "gb")
    return x * g + b


def _over(x, dims):
    apart = x - layers.reduce_mean(x, dim=dims, keep_dim=True)
    return apart * layers.rsqrt(layers.reduce_mean(layers.square(apart), dim=dims, keep_dim=True) + 1e-5)


def _over_twice(x, dims):
    mean = layers.reduce_mean(x, dim=dims, keep_dim=True)
    return (x - mean) / layers.sqrt(layers.reduce_mean(layers.square(x - mean), dim=dims, keep_dim=True) + 1e-5)


def _by_moments(x, dims):
    mean = layers.reduce_mean(x, dim=dims, keep_dim=True)
    variance = layers.reduce_mean(layers.square(x), dim=dims, keep_dim=True) - layers.square(mean)
    return (x - mean) / layers.sqrt(variance + 1e-5)


def _along_channels(x):
    apart = layers.elementwise_sub(x, layers.reduce_mean(x, dim=[0, 2, 3]), axis=1)
    deviation = layers.sqrt(layers.reduce_mean(apart * apart, dim=[0, 2, 3]) + 1e-5)
    return layers.elementwise_div(apart, deviation, axis=1)


def _rows(x, count, normalize=None):
    normalize = normalize or (lambda rows: _over(rows, [1]))
    return layers.reshape(normalize(layers.reshape(x, [SAMPLES * count, -1])), SHAPE)


def _normalized_rows(rows):
    return layers.layer_norm(rows, scale=False, shift=False)


def _five_dimensions(x):
    parts = layers.reshape(x, [SAMPLES, GROUPS, CHANNELS // GROUPS, SIDE, SIDE])
    return layers.reshape(_over(parts, [2, 3, 4]), SHAPE)


BATCH_NORM = Task(
    _feed,
    {
        "along channels": _images(lambda x: _stretched(_along_channels(x))),
        "kept dimensions": _images(lambda x: _stretched(_over(x, [0, 2, 3]))),
        "difference twice": _images(lambda x: _stretched(_over_twice(x, [0, 2, 3]))),
        "moments": _images(lambda x: _stretched(_by_moments(x, [0, 2, 3]))),
        "reshaped parameters": _images(lambda x: _stretched_whole(_over(x, [0, 2, 3]))),
        "batch_norm": _by_layer(layers.batch_norm),
    },
    apart={
        "reshaped parameters": VIEWS_STAY,
        "batch_norm": Apart("keeps running statistics, which are state", has_more_state),
    },
)
GROUP_NORM = Task(
    _feed,
    {
        "group_norm": _by_layer(layers.group_norm, groups=GROUPS),
        "rows": _images(lambda x: _stretched(_rows(x, GROUPS))),
        "five dimensions": _images(lambda x: _stretched(_five_dimensions(x))),
        "layer_norm": _images(lambda x: _stretched(_rows(x, GROUPS, _normalized_rows))),
        "reshaped parameters": _images(lambda x: _stretched_whole(_rows(x, GROUPS))),
    },
    apart={"reshaped parameters": VIEWS_STAY},
)
INSTANCE_NORM = Task(
    _feed,
    {
        "instance_norm": _by_layer(layers.instance_norm),
        "kept dimensions": _images(lambda x: _stretched(_over(x, [2, 3]))),
        "reshaped parameters": _images(lambda x: _stretched_whole(_over(x, [2, 3]))),
        "rows": _images(lambda x: _stretched(_rows(x, CHANNELS))),
    },
    apart={
        "reshaped parameters": VIEWS_STAY,
        "rows": Apart(
            "is a group normalization, with the same loop",
            differs_by(["group_norm", "group_norm_grad"], ["instance_norm", "instance_norm_grad"]),
        ),
    },
)
