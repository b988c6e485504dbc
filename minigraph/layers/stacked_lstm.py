"""Layers of long short-term memories with all weights in one parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minigraph.errors import WrongTypeError
from minigraph.initializer import Initializer
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer
from minigraph.layers.activation import sigmoid, tanh
from minigraph.layers.elementwise import elementwise_add
from minigraph.layers.indexing import reverse
from minigraph.layers.nn import dropout, matmul
from minigraph.layers.reshaping import split, stack
from minigraph.layers.static_rnn import StaticRNN
from minigraph.layers.tensor import concat, reshape
from minigraph.support.arguments import INTEGERS
from minigraph.types import require

__all__ = ["lstm"]


@layer
def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Initializer | None = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """Layers of long short-term memories along sequences of one length, with the weights in cuDNN's order.

    Parameters
    ----------
    input : Variable, float[time, batch, size]
    init_h, init_c : Variable, float[layers * directions, batch, hidden_size]
        Hidden states and cells before the first step.
    max_len : int
        Maximum number of steps.
    hidden_size, num_layers : int
    dropout_prob : float
        Of the outputs of all layers but the last, which are divided by ``1 - dropout_prob``.
    is_bidirec : bool
        Run other layers from the last step to the first, and put both outputs side by side.
    is_test : bool
        Drop nothing.
    default_initializer : Initializer, optional
        Start values of the parameter.
    seed : int
        Seed of the dropout; -1 for another one in each run.

    Returns
    -------
    tuple of Variable
        The outputs of the last layer, float[time, batch, directions * hidden_size], and the last hidden states and
        cells of all layers, float[layers * directions, batch, hidden_size].

    Notes
    -----
    The parameter holds the matrices of each layer and direction, for the input and for the hidden state, the gates
    one below the other: input, forget, candidate, output. Behind all matrices come the biases for the two. In fluid
    this layer runs on GPUs only.

    References
    ----------
    S. Hochreiter and J. Schmidhuber, Long short-term memory, Neural Computation 9, 1997.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x, start = fluid.data("x", [7, None, 4]), fluid.data("start", [2, None, 3])
    ...     out, hidden, cell = fluid.layers.lstm(x, start, start, 7, 3, num_layers=2)
    >>> out.shape, hidden.shape, cell.shape
    ((7, -1, 3), (2, -1, 3), (2, -1, 3))
    """
    x = check_floating(input, "lstm: input")
    starts = [check_floating(init_h, "lstm: init_h"), check_floating(init_c, "lstm: init_c")]
    for what, number in (("max_len", max_len), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if not isinstance(number, INTEGERS) or isinstance(number, bool) or number < 1:
            raise WrongTypeError(f"lstm: {what} must be a positive int, got {number!r:.60}")
    assert x.shape is not None
    require(len(x.shape) == 3 and x.shape[2] > 0, f"lstm: input must be [time, batch, size], got {x}")
    require(x.shape[0] <= max_len, f"lstm: input has {x.shape[0]} steps, more than max_len={max_len}")
    directions = 1 + bool(is_bidirec)
    helper = LayerHelper("cudnn_lstm", name)
    weights = _weights(helper, x, hidden_size, num_layers, directions, default_initializer)
    states = [split(start, num_layers * directions, 0) if num_layers * directions > 1 else [start] for start in starts]
    first = iter([[reshape(state, [-1, hidden_size]) for state in pair] for pair in zip(*states, strict=True)])
    last = []
    for i in range(num_layers):
        if i and dropout_prob and not is_test:
            drawn = None if seed == -1 else seed
            x = dropout(x, dropout_prob, seed=drawn, dropout_implementation="upscale_in_train")
        outputs = []
        for is_backward in (False, True)[:directions]:
            out, *ends = _along(x, next(first), next(weights), is_backward)
            outputs.append(out)
            last.append(ends)
        x = concat(outputs, 2) if is_bidirec else outputs[0]
    hidden, cell = (stack(list(kind), 0) for kind in zip(*last, strict=True))
    return x, hidden, cell


def _weights(
    helper: LayerHelper, x: Variable, hidden: int, layers: int, directions: int, initializer: Initializer | None
) -> Iterator[tuple[Variable, Variable, Variable]]:
    """Matrices for the input and for the hidden state, and the bias, of each layer and direction."""
    assert x.shape is not None
    sizes = [x.shape[2]] * directions + [directions * hidden] * directions * (layers - 1)
    gates = 4 * hidden
    sections = [gates * size for each in sizes for size in (each, hidden)] + [gates] * 2 * len(sizes)
    parameter = helper.parameter(None, [sum(sections)], x.dtype, default_initializer=initializer)
    assert parameter is not None
    parts = split(parameter, sections, 0)
    matrices, biases = parts[: 2 * len(sizes)], parts[2 * len(sizes) :]
    for i, size in enumerate(sizes):
        of_input, of_hidden = matrices[2 * i : 2 * i + 2]
        bias = elementwise_add(biases[2 * i], biases[2 * i + 1])
        yield reshape(of_input, [gates, size]), reshape(of_hidden, [gates, hidden]), bias


def _along(
    x: Variable, start: Sequence[Variable], weights: Sequence[Variable], is_backward: bool
) -> tuple[Variable, Variable, Variable]:
    """The outputs of a layer in one direction, the last hidden state and the last cell."""
    (hidden, cell), (of_input, of_hidden, bias) = start, weights
    # Values that need no earlier step are computed for all steps at once.
    given = elementwise_add(matmul(x, of_input, transpose_y=True), bias)
    if is_backward:
        given = reverse(given, [0])
    network = StaticRNN()
    with network.step():
        now = network.step_input(given)
        h, c = network.memory(init=hidden), network.memory(init=cell)
        i, f, candidate, o = split(elementwise_add(now, matmul(h, of_hidden, transpose_y=True)), 4, 1)
        new_c = elementwise_add(sigmoid(f) * c, sigmoid(i) * tanh(candidate))
        new_h = sigmoid(o) * tanh(new_c)
        network.update_memory(h, new_h)
        network.update_memory(c, new_c)
        network.output(new_h, new_c)
    outputs, cells = network()
    return reverse(outputs, [0]) if is_backward else outputs, outputs[-1], cells[-1]
