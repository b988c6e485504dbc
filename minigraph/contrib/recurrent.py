"""Recurrent networks of several layers, for both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from minigraph.dygraph import Layer
from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating, layer
from minigraph.layers.indexing import reverse
from minigraph.layers.nn import dropout
from minigraph.layers.rnn import GRUCell, LSTMCell, kept_where_over
from minigraph.layers.series import sequence_mask
from minigraph.layers.static_rnn import StaticRNN
from minigraph.layers.tensor import concat, reshape, shape, transpose
from minigraph.param_attr import as_param_attr
from minigraph.support.public import public

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]

Activation = Callable[[Variable], Variable]


class _Unit(Layer):
    """Base of layers that take one step of a cell, whose parameters are theirs once the first step has made them."""

    _names: tuple[str, ...]

    def __init__(self, name_scope: str, dtype: Any, cell: GRUCell | LSTMCell) -> None:
        super().__init__(name_scope, dtype)
        self._cell, self._full_name = cell, cell.full_name

    def _step(self, input: Variable, states: Any) -> Any:
        _, states = self._cell(input, states)
        for name, param in zip(self._names, self._cell.parameters, strict=True):
            if name not in self._parameters:
                setattr(self, name, param)
        return states


@public
class BasicGRUUnit(_Unit):
    """A step of a gated recurrent unit, ``unit(input, pre_hidden)``; see `minigraph.layers.GRUCell`.

    Parameters
    ----------
    name_scope : str
        Prefix of the names of the parameters.
    hidden_size : int
    """

    _names = ("_gate_weight", "_candidate_weight", "_gate_bias", "_candidate_bias")

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: Any = "float32",
    ) -> None:
        cell = GRUCell(hidden_size, param_attr, bias_attr, gate_activation, activation, dtype, name_scope)
        super().__init__(name_scope, dtype, cell)

    def forward(self, input: Variable, pre_hidden: Variable) -> Variable:
        """The new state, float[batch, hidden_size]."""
        state: Variable = self._step(input, pre_hidden)
        return state


@public
class BasicLSTMUnit(_Unit):
    """A step of a long short-term memory, ``unit(input, pre_hidden, pre_cell)``; see `minigraph.layers.LSTMCell`.

    Parameters
    ----------
    name_scope : str
        Prefix of the names of the parameters.
    hidden_size : int
    forget_bias : float
    """

    _names = ("_weight", "_bias")

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
    ) -> None:
        gates, inner = gate_activation, activation
        cell = LSTMCell(hidden_size, param_attr, bias_attr, gates, inner, forget_bias, dtype, name_scope)
        super().__init__(name_scope, dtype, cell)

    def forward(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> tuple[Variable, Variable]:
        """The new hidden state and the new cell, float[batch, hidden_size]."""
        hidden, cell = self._step(input, [pre_hidden, pre_cell])
        return hidden, cell


@layer
def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    dtype: Any = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """Layers of gated recurrent units along sequences; arguments and results as of `basic_lstm`, without cells.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     outputs, last = basic_gru(fluid.data("x", [None, 5, 4]), None, 3, num_layers=2, bidirectional=True)
    >>> outputs.shape, last.shape
    ((-1, 5, 6), (4, -1, 3))
    """

    def make(scope: str, weight: Any, bias: Any) -> Callable[..., list[Variable]]:
        unit = BasicGRUUnit(scope, hidden_size, weight, bias, gate_activation, activation, dtype)
        return lambda x, hidden: [unit(x, hidden)]

    stack = _Stack(hidden_size, num_layers, bidirectional, dropout_prob, "downgrade_in_infer")
    stack.make_units(make, param_attr, bias_attr, name)
    outputs, (hidden,) = stack.run(input, [init_hidden], sequence_length, batch_first)
    return outputs, hidden


@layer
def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    forget_bias: float = 1.0,
    dtype: Any = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """Layers of long short-term memories along sequences.

    Parameters
    ----------
    input : Variable, float[batch, time, size]
        With ``batch_first=False``, float[time, batch, size].
    init_hidden, init_cell : Variable, float[layers * directions, batch, hidden_size], optional
        Default: zeros.
    hidden_size, num_layers : int
    sequence_length : Variable, int64[batch], optional
        Steps after which the states of a sequence stay as they are.
    dropout_prob : float
        Of the output of each layer.
    bidirectional : bool
        Run other layers from the last step to the first, and put both outputs side by side.
    param_attr, bias_attr : ParamAttr, optional
        Names get suffixes for the direction and the number of the layer.
    gate_activation, activation : callable, optional
    forget_bias : float
    name : str
        Prefix of the names of the layers.

    Returns
    -------
    tuple of Variable
        The outputs of the last layer, float[batch, time, directions * hidden_size], and the last hidden states and
        cells of all layers, float[layers * directions, batch, hidden_size].

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     outputs, hidden, cell = basic_lstm(fluid.data("x", [None, 5, 4]), None, None, 3)
    >>> outputs.shape, hidden.shape, cell.shape
    ((-1, 5, 3), (1, -1, 3), (1, -1, 3))
    """

    def make(scope: str, weight: Any, bias: Any) -> Callable[..., list[Variable]]:
        unit = BasicLSTMUnit(scope, hidden_size, weight, bias, gate_activation, activation, forget_bias, dtype)
        return lambda x, hidden, cell: list(unit(x, hidden, cell))

    stack = _Stack(hidden_size, num_layers, bidirectional, dropout_prob, "upscale_in_train")
    stack.make_units(make, param_attr, bias_attr, name)
    outputs, (hidden, cell) = stack.run(input, [init_hidden, init_cell], sequence_length, batch_first)
    return outputs, hidden, cell


class _Stack:
    """Layers of units, which take an input and their states to their new states, of which the first is the output."""

    def __init__(
        self, hidden_size: int, num_layers: int, bidirectional: bool, dropout_prob: float, dropout_implementation: str
    ) -> None:
        if not isinstance(num_layers, int) or num_layers < 1:
            raise WrongTypeError(f"num_layers must be a positive int, got {num_layers!r}")
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.directions = ["fw", "bw"][: 1 + bool(bidirectional)]
        self.dropout = dropout_prob, dropout_implementation
        self.units: list[list[Callable[..., list[Variable]]]] = []

    def make_units(self, make: Callable[..., Any], param_attr: Any, bias_attr: Any, name: str) -> None:
        for direction in self.directions:
            scope = f"{name}_reverse_layers_" if direction == "bw" else f"{name}_layers_"
            units = []
            for i in range(self.num_layers):
                attrs = _suffixed(param_attr, f"_{direction}_w_{i}"), _suffixed(bias_attr, f"_{direction}_b_{i}")
                units.append(make(f"{scope}{i}", *attrs))
            self.units.append(units)

    def run(
        self, x: Variable, first: Sequence[Variable | None], sequence_length: Variable | None, batch_first: bool
    ) -> tuple[Variable, list[Variable]]:
        """The outputs of the last layer, and the last states, by kind."""
        check_floating(x, "input")
        if batch_first:
            x = transpose(x, [1, 0, 2])
        mask = None
        if sequence_length is not None:
            mask = transpose(sequence_mask(sequence_length, shape(x)[0], "float32"), [1, 0])
        sizes = [self.num_layers, len(self.directions), -1, self.hidden_size]
        given = [None if state is None else reshape(state, sizes) for state in first]
        outputs, last = self._along(x, mask, given, 0)
        if len(self.directions) == 2:
            back, back_last = self._along(reverse(x, [0]), None if mask is None else reverse(mask, [0]), given, 1)
            outputs = concat([outputs, reverse(back, [0])], 2)
            sizes = [2 * self.num_layers, -1, self.hidden_size]
            last = [reshape(concat(pair, 1), sizes) for pair in zip(last, back_last, strict=True)]
        return transpose(outputs, [1, 0, 2]) if batch_first else outputs, last

    def _along(
        self, x: Variable, mask: Variable | None, given: Sequence[Variable | None], direction: int
    ) -> tuple[Variable, list[Variable]]:
        """Run the units of one direction along the first dimension of `x`."""
        network, size = StaticRNN(), self.hidden_size
        starts = [[state if state is None else state[i, direction] for state in given] for i in range(self.num_layers)]
        with network.step():
            now = network.step_input(x)
            present = None if mask is None else network.step_input(mask)
            for i, unit in enumerate(self.units[direction]):
                states = [
                    network.memory(batch_ref=x, shape=[-1, size], ref_batch_dim_idx=1)
                    if start is None
                    else network.memory(init=start)
                    for start in starts[i]
                ]
                new = unit(now, *states)
                if present is not None:
                    new = [kept_where_over(*each, present) for each in zip(states, new, strict=True)]
                for before, after in zip(states, new, strict=True):
                    network.update_memory(before, after)
                network.output(*new)
                now = self._dropped(new[0])
            network.step_output(now)
        results, kinds = network(), len(given)
        ends = [sequence[-1] for sequence in results[:-1]]
        last = [reshape(concat(ends[kind::kinds], 0), [self.num_layers, -1, size]) for kind in range(kinds)]
        return results[-1], last

    def _dropped(self, x: Variable) -> Variable:
        probability, implementation = self.dropout
        return dropout(x, probability, dropout_implementation=implementation) if probability else x


def _suffixed(attr: Any, suffix: str) -> Any:
    """The attributes of one of several parameters, whose names differ by a suffix."""
    found = as_param_attr(attr)
    if found is None or found.name is None:
        return attr
    name, found = found.name + suffix, deepcopy(found)
    found.name = name
    return found
