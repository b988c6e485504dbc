"""A loss of single elements, gates and activations in several spellings."""

from minigraph import layers

from .formulas import LOSS
from .tasks import BATCH, HIDDEN, Apart, Task, differs_by, has_as_many_steps, hidden, numbers, parameter


def _against(loss):
    return lambda x, t: loss(layers.mul(x, parameter("w", HIDDEN, HIDDEN)), t)


def _targets():
    return {"x": numbers(BATCH, HIDDEN), "t": numbers(BATCH, HIDDEN, seed=4)}


SQUARED_ERROR = Task(
    _targets,
    {
        "square_error_cost": _against(lambda z, t: layers.mean(layers.square_error_cost(z, t))),
        "mse_loss": _against(lambda z, t: layers.mse_loss(z, t)),
        "square": _against(lambda z, t: layers.reduce_mean(layers.square(z - t))),
        "product": _against(lambda z, t: layers.mean((z - t) * (z - t))),
        "pow": _against(lambda z, t: layers.reduce_sum(layers.pow(z - t, 2.0)) / float(BATCH * HIDDEN)),
    },
)


def _gated(mix):
    def function(z):
        gate = layers.sigmoid(layers.mul(z, parameter("u", HIDDEN, HIDDEN)))
        return mix(gate, layers.tanh(layers.mul(z, parameter("v", HIDDEN, HIDDEN))), z)

    return hidden(function)


GATE = Task(
    LOSS.feed,
    {
        "shares": _gated(lambda g, a, b: g * a + (1.0 - g) * b),
        "scale": _gated(
            lambda g, a, b: layers.elementwise_add(
                layers.elementwise_mul(g, a), layers.elementwise_mul(layers.scale(g, -1.0, bias=1.0), b)
            )
        ),
        "difference": _gated(lambda g, a, b: b + g * (a - b)),
        "less": _gated(lambda g, a, b: g * a + b - g * b),
    },
    apart={
        "difference": Apart("is another formula", differs_by(["sigmoid_grad"], ["fused_elementwise"] * 2)),
        "less": Apart("is another formula", differs_by([], ["fused_elementwise"])),
    },
)
TEMPERATURE = Task(
    LOSS.feed,
    {
        "quotient": hidden(lambda z: layers.softmax(z / 2.0)),
        "scale": hidden(lambda z: layers.softmax(layers.scale(z, 0.5))),
        "by exponentials": hidden(
            lambda z: (lambda e: e / layers.reduce_sum(e, dim=1, keep_dim=True))(layers.exp(z / 2.0))
        ),
        "factor": hidden(
            lambda z: layers.softmax(layers.elementwise_mul(z, layers.fill_constant([1], "float32", 0.5)))
        ),
    },
)
HARD_SWISH = Task(
    LOSS.feed,
    {
        "relu6": hidden(lambda z: z * layers.relu6(z + 3.0) / 6.0),
        "scale": hidden(
            lambda z: layers.scale(layers.elementwise_mul(z, layers.relu6(layers.scale(z, bias=3.0))), 1 / 6)
        ),
        "clip": hidden(lambda z: z * layers.clip(z + 3.0, 0.0, 6.0) / 6.0),
        "hard_sigmoid": hidden(lambda z: z * layers.hard_sigmoid(z, slope=1 / 6, offset=0.5)),
        "hard_swish": hidden(layers.hard_swish),
    },
    apart={
        "clip": Apart("has another gradient at the ends", has_as_many_steps),
        "hard_swish": Apart("is an operator of its own, with a loop from the same formulas", has_as_many_steps),
    },
)
