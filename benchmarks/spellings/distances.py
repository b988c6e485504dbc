"""Losses of overlaps, distances and distributions, and gates and norms, in several spellings."""

from minigraph import layers, nets

from .formulas import LOSS
from .tasks import BATCH, HIDDEN, VIEWS_STAY, Apart, Task, differs_by, has_as_many_steps, hidden, numbers, parameter


def _row_sums(x):
    return layers.reduce_sum(x, dim=1)


def _column(x):
    return layers.reduce_sum(x, dim=1, keep_dim=True)


# Overlap of a prediction and a mask


def _overlapping(loss):
    return lambda x, t: layers.mean(loss(layers.sigmoid(layers.mul(x, parameter("w", HIDDEN, HIDDEN))), t))


def _scaled_dice(p, t):
    overlap = layers.scale(_row_sums(layers.elementwise_mul(p, t)), 2.0)
    return layers.scale(overlap / layers.scale(_row_sums(p) + _row_sums(t), bias=1e-5), -1.0, bias=1.0)


DICE = Task(
    lambda: {"x": numbers(BATCH, HIDDEN), "t": (numbers(BATCH, HIDDEN, seed=4) > 0).astype("float32")},
    {
        "operators": _overlapping(lambda p, t: 1.0 - 2.0 * _row_sums(p * t) / (_row_sums(p) + _row_sums(t) + 1e-5)),
        "scale": _overlapping(_scaled_dice),
        "mask first": _overlapping(lambda p, t: 1.0 - _row_sums(t * p) * 2.0 / (_row_sums(p) + _row_sums(t) + 1e-5)),
        "kept dimension": _overlapping(lambda p, t: 1.0 - 2.0 * _column(p * t) / (_column(p) + _column(t) + 1e-5)),
        "one sum": _overlapping(lambda p, t: 1.0 - 2.0 * _row_sums(p * t) / (_row_sums(p + t) + 1e-5)),
    },
    apart={
        "kept dimension": VIEWS_STAY,
        "one sum": Apart("adds before it sums rows", differs_by([], ["reduce_sum"])),
    },
)

# Distances of a triplet


def _triplet(distance, above=layers.relu):
    def loss(x, t, n):
        anchor, near, far = (layers.mul(each, parameter("w", HIDDEN, HIDDEN)) for each in (x, t, n))
        return layers.mean(above(distance(anchor, near) - distance(anchor, far) + 1.0))

    return loss


def _at_least_0(x):
    return layers.elementwise_max(x, layers.fill_constant([1], "float32", 0.0))


TRIPLET = Task(
    lambda: {name: numbers(BATCH, HIDDEN, seed=i) for i, name in enumerate("xtn")},
    {
        "square": _triplet(lambda a, b: _column(layers.square(a - b))),
        "product": _triplet(lambda a, b: _column((a - b) * (a - b))),
        "pow": _triplet(lambda a, b: _column(layers.pow(a - b, 2.0))),
        "square_error_cost": _triplet(lambda a, b: _column(layers.square_error_cost(a, b))),
        "maximum": _triplet(lambda a, b: _column(layers.square(a - b)), _at_least_0),
    },
    apart={
        "maximum": Apart(
            "shares the gradient of equal numbers",
            differs_by(["fill_constant", "elementwise_max", "elementwise_max_grad"], ["relu", "relu_grad"]),
        )
    },
)

# Divergence of a distribution from another


def _diverging(divergence):
    def loss(x, t):
        p, q = (
            layers.softmax(layers.mul(each, parameter(name, HIDDEN, HIDDEN))) for each, name in ((x, "w"), (t, "v"))
        )
        return divergence(p, q)

    return loss


DIVERGENCE = Task(
    lambda: {"x": numbers(BATCH, HIDDEN), "t": numbers(BATCH, HIDDEN, seed=4)},
    {
        "mean of sums": _diverging(lambda p, q: layers.mean(_row_sums(p * (layers.log(p) - layers.log(q))))),
        "sum": _diverging(lambda p, q: layers.reduce_sum(p * (layers.log(p) - layers.log(q))) / float(BATCH)),
        "operands exchanged": _diverging(
            lambda p, q: layers.mean(_column(layers.elementwise_mul(layers.log(p) - layers.log(q), p)))
        ),
        "less": _diverging(lambda p, q: layers.mean(_row_sums(p * (layers.log(p) + -1.0 * layers.log(q))))),
        "logarithm of a quotient": _diverging(lambda p, q: layers.mean(_row_sums(p * layers.log(p / q)))),
    },
    apart={
        "sum": Apart("has no mean", differs_by(["reduce_sum", "reduce_sum_grad"], ["mean", "mean_grad"])),
        "logarithm of a quotient": Apart("is another formula", has_as_many_steps),
    },
)

# Gated linear units


def _halves(cut):
    def function(z):
        value, gate = cut(layers.mul(z, parameter("gates", HIDDEN, 2 * HIDDEN)))
        return value * layers.sigmoid(gate)

    return hidden(function)


GATED = Task(
    LOSS.feed,
    {
        "split": _halves(lambda z: layers.split(z, 2, dim=1)),
        "slice": _halves(lambda z: [layers.slice(z, [1], [i * HIDDEN], [(i + 1) * HIDDEN]) for i in range(2)]),
        "subscripts": _halves(lambda z: (z[:, :HIDDEN], z[:, HIDDEN:])),
        "glu": hidden(lambda z: nets.glu(layers.mul(z, parameter("gates", HIDDEN, 2 * HIDDEN)), dim=1)),
    },
)

# Norms by the root of the mean of squares


def _by_root(square, divide):
    def function(z):
        mean = layers.reduce_mean(square(z), dim=-1, keep_dim=True)
        return divide(z, mean + 1e-6) * parameter("g", HIDDEN)

    return hidden(function)


ROOT_MEAN_SQUARE = Task(
    LOSS.feed,
    {
        "rsqrt": _by_root(layers.square, lambda z, m: z * layers.rsqrt(m)),
        "product": _by_root(lambda z: z * z, lambda z, m: z * layers.rsqrt(m)),
        "root first": _by_root(layers.square, lambda z, m: layers.rsqrt(m) * z),
        "pow": _by_root(lambda z: layers.pow(z, 2.0), lambda z, m: z * layers.pow(m, -0.5)),
        "sqrt": _by_root(layers.square, lambda z, m: z / layers.sqrt(m)),
    },
    apart={
        "sqrt": Apart(
            "divides",
            differs_by(
                ["sqrt", "sqrt_grad", "elementwise_div_grad"],
                ["rsqrt", "rsqrt_grad", "elementwise_mul_grad"],
            ),
        )
    },
)
