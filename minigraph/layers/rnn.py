"""Recurrent networks made of a cell, a step with parameters of its own, run along sequences by `StaticRNN`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from minigraph import unique_name
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, layer
from minigraph.layers.activation import sigmoid, tanh
from minigraph.layers.elementwise import elementwise_add, elementwise_mul
from minigraph.layers.indexing import reverse
from minigraph.layers.nn import matmul
from minigraph.layers.reshaping import split
from minigraph.layers.series import sequence_mask
from minigraph.layers.static_rnn import StaticRNN
from minigraph.layers.tensor import concat, fill_constant, fill_constant_batch_size_like, shape, transpose
from minigraph.param_attr import as_param_attr
from minigraph.support.arguments import INTEGERS
from minigraph.support.nest import difference, flatten, map_structure, pack
from minigraph.support.public import public, refuse_unknown_names
from minigraph.support.undo import note

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "rnn"]

Activation = Callable[[Variable], Variable]


@public
class RNNCell:
    """Base of cells: what takes the input and the states of a step to its output and the states after it.

    A cell defines `call` and, unless it is always given its first states, `state_shape`.
    """

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Output and new states, structured like `states`."""
        raise NotImplementedError(f"{type(self).__name__} does not define call")

    def __call__(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        return self.call(inputs, states, **kwargs)

    @property
    def state_shape(self) -> Any:
        """The shape of a state without the batch, or a structure of such shapes."""
        raise NotImplementedError(f"{type(self).__name__} does not define state_shape")

    @property
    def state_dtype(self) -> Any:
        """The element type of all states, or a structure of them."""
        raise NotImplementedError(f"{type(self).__name__} does not define state_dtype")

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = "float32",
        init_value: float = 0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """States filled with `init_value`, for as many sequences as `batch_ref` has in the dimension `batch_dim_idx`.

        Parameters
        ----------
        batch_ref : Variable or structure of them
        shape : list of int or structure of such lists, optional
            Shapes, in which the batch comes first or is left out. Default: `state_shape`.
        dtype : str or structure, optional
            If None, `state_dtype`.
        """
        reference = flatten(batch_ref)[0]
        shapes = self.state_shape if shape is None else shape
        dtypes = flatten(self.state_dtype if dtype is None else dtype)
        leaves = _shapes(shapes)
        # One element type for all states.
        if len(dtypes) == 1:
            dtypes = dtypes * len(leaves)
        states = [
            fill_constant_batch_size_like(
                reference, each if each[0] == -1 else [-1, *each], kind, init_value, input_dim_idx=batch_dim_idx
            )
            for each, kind in zip(leaves, dtypes, strict=True)
        ]
        return _packed_states(shapes, states)


def _is_shape(structure: Any) -> bool:
    return isinstance(structure, list | tuple) and all(isinstance(each, INTEGERS) for each in structure)


def _shapes(structure: Any) -> list[list[int]]:
    if isinstance(structure, INTEGERS):
        return [[int(structure)]]
    if _is_shape(structure):
        return [list(structure)]
    items = [structure[key] for key in sorted(structure)] if isinstance(structure, Mapping) else structure
    return [found for item in items for found in _shapes(item)]


def _packed_states(shapes: Any, states: list[Variable]) -> Any:
    """`states` in the structure that `shapes` has around them."""
    if isinstance(shapes, INTEGERS) or _is_shape(shapes):
        return states.pop(0)
    if isinstance(shapes, Mapping):
        return {key: _packed_states(shapes[key], states) for key in sorted(shapes)}
    return type(shapes)(_packed_states(item, states) for item in shapes)


class _LearnedCell(RNNCell):
    """Base of cells with parameters, which the first step makes."""

    def _take(
        self, kind: str, name: str, hidden_size: int, param_attr: Any, bias_attr: Any, dtype: Any,
        gate_activation: Activation | None, activation: Activation | None,
    ) -> None:  # fmt: skip
        if hidden_size < 1:
            raise WrongTypeError(f"hidden_size must be a positive int, got {hidden_size!r}")
        self._helper = LayerHelper(name, unique_name.generate(f"{name}/{kind}"))
        self.hidden_size, self._dtype = hidden_size, dtype
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._gate_activation, self._activation = gate_activation or sigmoid, activation or tanh
        self.parameters: tuple[Variable, ...] = ()

    @property
    def full_name(self) -> str:
        """Name that the names of the parameters begin with."""
        return self._helper.name

    def _width(self, inputs: Variable) -> int:
        """Number of columns of input and state together."""
        columns = check_floating(inputs, f"{self._helper.name}: inputs").shape
        if columns is None or len(columns) != 2 or columns[1] < 0:
            raise ProgramError(f"{self._helper.name}: inputs must be a matrix of known width, got {inputs}")
        return columns[1] + self.hidden_size

    def _parameter(self, shape: Sequence[int], suffix: str = "", is_bias: bool = False) -> Variable:
        """A weight or bias; where the attribute has a name, `suffix` tells those of one cell apart."""
        attr = as_param_attr(self._bias_attr if is_bias else self._param_attr)
        # Without a suffix weight and bias of gates and candidate would be one parameter.
        if attr is not None and attr.name is not None and suffix:
            name, attr = attr.name + suffix, deepcopy(attr)
            attr.name = name
        return self._helper.required(attr or False, shape, self._dtype, self._helper.name, is_bias=is_bias)


@public
class GRUCell(_LearnedCell):
    """A gated recurrent unit, ``u * hidden + (1 - u) * c``.

    Parameters
    ----------
    hidden_size : int
    param_attr, bias_attr : ParamAttr, optional
    gate_activation, activation : callable, optional
        Of the gates and of the candidate. Default: `layers.sigmoid` and `layers.tanh`.
    dtype : str
    name : str

    Notes
    -----
    With ``r, u = gate_activation([x, hidden] W_g + b_g)`` the candidate is
    ``c = activation([x, r * hidden] W_c + b_c)``.

    References
    ----------
    K. Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation,
    EMNLP 2014.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: Any = "float32",
        name: str = "GRUCell",
    ) -> None:
        self._take("BasicGRUUnit", name, hidden_size, param_attr, bias_attr, dtype, gate_activation, activation)

    def call(self, inputs: Variable, states: Variable, **kwargs: Any) -> tuple[Variable, Variable]:
        """The new state, float[batch, hidden_size], as output and as state."""
        size, hidden = self.hidden_size, check_floating(states, "GRUCell: states")
        if not self.parameters:
            width = self._width(inputs)
            note(setattr, self, "parameters", ())
            self.parameters = (
                self._parameter([width, 2 * size], "_gate"),
                self._parameter([width, size], "_candidate"),
                self._parameter([2 * size], "_gate", is_bias=True),
                self._parameter([size], "_candidate", is_bias=True),
            )
        gate_weight, weight, gate_bias, bias = self.parameters
        gates = elementwise_add(matmul(concat([inputs, hidden], 1), gate_weight), gate_bias)
        reset, update = split(self._gate_activation(gates), 2, dim=1)
        candidate = matmul(concat([inputs, reset * hidden], 1), weight)
        candidate = self._activation(elementwise_add(candidate, bias))
        new_hidden = update * hidden + (1 - update) * candidate
        return new_hidden, new_hidden

    @property
    def state_shape(self) -> list[int]:
        return [self.hidden_size]


@public
class LSTMCell(_LearnedCell):
    """A long short-term memory, whose states are ``[hidden, cell]``.

    Parameters
    ----------
    hidden_size : int
    param_attr, bias_attr : ParamAttr, optional
    gate_activation, activation : callable, optional
        Of the gates, and of the input and the cell. Default: `layers.sigmoid` and `layers.tanh`.
    forget_bias : float
        Added to what goes into the forget gate.
    dtype : str
    name : str

    Notes
    -----
    With ``i, j, f, o = [x, hidden] W + b`` the new cell is ``cell * sigmoid(f + forget_bias) + sigmoid(i) * tanh(j)``
    and the new hidden state ``tanh(cell) * sigmoid(o)``.

    References
    ----------
    S. Hochreiter and J. Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
        name: str = "LSTMCell",
    ) -> None:
        self._take("BasicLSTMUnit", name, hidden_size, param_attr, bias_attr, dtype, gate_activation, activation)
        # A variable of the program, as in fluid.
        self._forget_bias = fill_constant([1], dtype, forget_bias)
        self._forget_bias.stop_gradient = False

    def call(self, inputs: Variable, states: Sequence[Variable], **kwargs: Any) -> tuple[Variable, list[Variable]]:
        """The new hidden state, float[batch, hidden_size], and ``[hidden, cell]``."""
        if not isinstance(states, list | tuple) or len(states) != 2:
            raise WrongTypeError(f"LSTMCell: states must be [hidden, cell], got {states!r:.80}")
        size = self.hidden_size
        hidden, cell = (check_floating(state, "LSTMCell: states") for state in states)
        if not self.parameters:
            width = self._width(inputs)
            note(setattr, self, "parameters", ())
            self.parameters = self._parameter([width, 4 * size]), self._parameter([4 * size], is_bias=True)
        weight, bias = self.parameters
        gates = elementwise_add(matmul(concat([inputs, hidden], 1), weight), bias)
        i, j, f, o = split(gates, 4, dim=-1)
        kept = elementwise_mul(cell, self._gate_activation(elementwise_add(f, self._forget_bias)))
        new_cell = elementwise_add(kept, elementwise_mul(self._gate_activation(i), self._activation(j)))
        new_hidden = self._activation(new_cell) * self._gate_activation(o)
        return new_hidden, [new_hidden, new_cell]

    @property
    def state_shape(self) -> list[list[int]]:
        return [[self.hidden_size], [self.hidden_size]]


@layer
def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Run a cell along sequences.

    Parameters
    ----------
    cell : RNNCell
    inputs : Variable, float[batch, time, ...], or structure of them
        With `time_major`, float[time, batch, ...].
    initial_states : Variable or structure of them, optional
        Default: ``cell.get_initial_states``, zeros.
    sequence_length : Variable, int64[batch], optional
        Steps after which the states of a sequence stay as they are; its outputs are still computed.
    time_major : bool
    is_reverse : bool
        Begin with the last step; the outputs stand where their inputs do.
    **kwargs
        For the cell.

    Returns
    -------
    tuple
        Outputs of all steps, [batch, time, ...] or [time, batch, ...], and the states after the last step.

    Raises
    ------
    ProgramError
        If the states that the cell returns are structured otherwise than those it takes.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", [None, 5, 3])
    ...     outputs, (hidden, cell) = rnn(LSTMCell(4), x)
    >>> outputs.shape, hidden.shape, cell.shape
    ((-1, 5, 4), (-1, 4), (-1, 4))
    """
    if not isinstance(cell, RNNCell):
        raise WrongTypeError(f"rnn: cell must be an RNNCell, got {type(cell).__name__}")
    for each in flatten(inputs):
        check_floating(each, "rnn: inputs")
    if initial_states is None:
        initial_states = cell.get_initial_states(inputs, batch_dim_idx=1 if time_major else 0)
    for state in flatten(initial_states):
        given = check_variable(state, "rnn: initial_states")
        note(setattr, given, "stop_gradient", given.stop_gradient)
        # As in fluid: first states of zeros are constants, but the states that follow them are not.
        given.stop_gradient = False
    # The operator runs along the first dimension.
    if not time_major:
        inputs = map_structure(swap_batch_and_time, inputs)
    mask = None
    if sequence_length is not None:
        longest = shape(flatten(inputs)[0])[0]
        mask = transpose(sequence_mask(sequence_length, longest, flatten(initial_states)[0].dtype), [1, 0])
    if is_reverse:
        inputs = map_structure(lambda x: reverse(x, [0]), inputs)
        mask = None if mask is None else reverse(mask, [0])
    outputs, states, collected = _run_steps(cell, inputs, initial_states, mask, kwargs)
    count = len(flatten(outputs))
    results = pack(outputs, collected[:count])
    last = pack(states, [sequence[-1] for sequence in collected[count:]])
    if is_reverse:
        results = map_structure(lambda x: reverse(x, [0]), results)
    return results if time_major else map_structure(swap_batch_and_time, results), last


def _run_steps(
    cell: RNNCell, inputs: Any, initial_states: Any, mask: Variable | None, kwargs: Mapping[str, Any]
) -> tuple[Any, Any, list[Variable]]:
    """Outputs and states of a step, for their structures, and the sequences of all of them."""
    network = StaticRNN()
    with network.step():
        entries = map_structure(network.step_input, inputs)
        states = map_structure(network.memory, initial_states)
        outputs, new_states = cell.call(entries, states, **kwargs)
        different = difference(states, new_states)
        if different:
            raise ProgramError(f"rnn: the states that the cell takes and returns differ: {different}")
        if mask is not None:
            present = network.step_input(mask)
            new_states = map_structure(lambda old, new: kept_where_over(old, new, present), states, new_states)
        map_structure(network.update_memory, states, new_states)
        map_structure(network.step_output, outputs)
        # All states are collected, because the operator has no output for the last one alone.
        map_structure(network.step_output, new_states)
    return outputs, new_states, list(network.outputs)


def kept_where_over(old: Variable, new: Variable, present: Variable) -> Variable:
    """`new` for the sequences that are not over, `old` for the others."""
    # `present` is 1 or 0 for each sequence, so one of the two terms is 0.
    return elementwise_mul(new, present, axis=0) - elementwise_mul(old, present - 1, axis=0)


def swap_batch_and_time(x: Variable) -> Variable:
    assert x.shape is not None
    return transpose(x, [1, 0, *range(2, len(x.shape))])


refuse_unknown_names(__name__, others="minigraph.layers")
