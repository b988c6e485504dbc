"""Functions on elements in several spellings."""

from minigraph import layers

from .formulas import LOSS
from .tasks import Apart, Task, has_as_many_steps, hidden

SWISH = Task(
    LOSS.feed,
    {
        "product": hidden(lambda z: z * layers.sigmoid(z)),
        "product, sigmoid first": hidden(lambda z: layers.elementwise_mul(layers.sigmoid(z), z)),
        "quotient": hidden(lambda z: z / (1.0 + layers.exp(-z))),
        "swish": hidden(layers.swish),
    },
    apart={
        "quotient": Apart("keeps another value for the gradient", has_as_many_steps),
        "swish": Apart("is an operator of its own, with a loop from the same formulas", has_as_many_steps),
    },
)
_ROOT = 2**0.5
GELU = Task(
    LOSS.feed,
    {
        "quotient": hidden(lambda z: 0.5 * z * (1.0 + layers.erf(z / _ROOT))),
        "product": hidden(lambda z: 0.5 * z * (1.0 + layers.erf(z * (1 / _ROOT)))),
        "scale": hidden(
            lambda z: layers.elementwise_mul(layers.scale(z, 0.5), layers.scale(layers.erf(z / _ROOT), bias=1.0))
        ),
        "share": hidden(lambda z: z * (0.5 * (1.0 + layers.erf(z / _ROOT)))),
        "gelu": hidden(layers.gelu),
    },
    apart={
        "share": Apart("scales another operand", has_as_many_steps),
        "gelu": Apart("is an operator of its own, with a loop from the same formulas", has_as_many_steps),
    },
)
INVERSE_ROOT = Task(
    LOSS.feed,
    {
        "rsqrt": hidden(lambda z: layers.rsqrt(layers.square(z) + 1.0)),
        "pow": hidden(lambda z: layers.pow(layers.square(z) + 1.0, -0.5)),
        "operator": hidden(lambda z: (layers.square(z) + 1.0) ** -0.5),
        "reciprocal of sqrt": hidden(lambda z: layers.reciprocal(layers.sqrt(layers.square(z) + 1.0))),
        "quotient": hidden(lambda z: 1.0 / layers.sqrt(layers.pow(z, 2.0) + 1.0)),
    },
)
DIFFERENCE = Task(
    LOSS.feed,
    {
        "operator": hidden(lambda z: layers.tanh(z) - layers.sigmoid(z)),
        "scale": hidden(lambda z: layers.tanh(z) + layers.scale(layers.sigmoid(z), -1.0)),
        "negative operand": hidden(lambda z: layers.elementwise_add(-layers.sigmoid(z), layers.tanh(z))),
        "sums": hidden(lambda z: layers.sums([layers.tanh(z), -layers.sigmoid(z)])),
    },
)
