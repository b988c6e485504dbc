"""A cell of named states: one decoder trains it in a `DynamicRNN`, another one searches with it in a `While`.

The computation of the states is written once, as the updater of a `StateCell`. The decoder decides where the states of
the step before are read, and where the new ones are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Block, Variable, VarKind
from minigraph.layer_helper import LayerHelper, check_variable
from minigraph.layers.activation import log
from minigraph.layers.array import array_read, array_write
from minigraph.layers.beam_search import beam_search, beam_search_decode
from minigraph.layers.branches import Switch
from minigraph.layers.compare import is_empty, less_than
from minigraph.layers.dynamic_rnn import DynamicRNN
from minigraph.layers.elementwise import elementwise_add
from minigraph.layers.loops import While
from minigraph.layers.nn import embedding, fc
from minigraph.layers.sequences import lod_reset, sequence_expand
from minigraph.layers.tensor import fill_constant, fill_constant_batch_size_like, increment, reshape, topk, zeros
from minigraph.support.public import public
from minigraph.types import as_dtype
from minigraph.unique_name import generate

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]


@public
class InitState:
    """The first value of a state.

    Parameters
    ----------
    init : Variable, optional
        The value, one row for each sequence.
    shape, value, dtype
        Without `init`: a constant of this shape, with as many rows as `init_boot`.
    init_boot : Variable, optional
    need_reorder : bool
        Whether a `TrainingDecoder` is to put the rows in the order of the lengths of its step input.

    Raises
    ------
    ProgramError
        If neither `init` nor `init_boot` is given.
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:
        if init is None:
            if init_boot is None or shape is None:
                raise ProgramError("an InitState needs init, or init_boot and shape")
            init = fill_constant_batch_size_like(init_boot, shape, dtype, value)
        self.value = check_variable(init, "InitState: init")
        self.need_reorder = need_reorder


class _Memory:
    """A state of a `TrainingDecoder`: a memory of its `DynamicRNN`."""

    def __init__(self, network: DynamicRNN, init: InitState) -> None:
        self._network = network
        self.read = self._network.memory(init=init.value, need_reorder=init.need_reorder)

    def update(self, state: Variable) -> None:
        self._network.update_memory(self.read, state)


class _Array:
    """A state of a `BeamSearchDecoder`: an array of the values after each step, with a counter of its own."""

    def __init__(self, outer: Block, init: InitState) -> None:
        name = generate("array_state_array")
        self._array = outer.create_var(name=name, type=VarKind.LOD_TENSOR_ARRAY, dtype=init.value.dtype)
        self._counter = outer.create_var(name=generate("array_state_counter"), dtype="int64", stop_gradient=True)
        attrs = {"shape": [1], "dtype": as_dtype("int64"), "value": 0.0, "force_cpu": True}
        outer.append_op("fill_constant", {}, {"Out": self._counter}, attrs)
        outer.append_op("write_to_array", {"X": init.value, "I": self._counter}, {"Out": self._array})
        self.read = array_read(self._array, self._counter)

    def update(self, state: Variable) -> None:
        increment(self._counter, 1.0)
        array_write(state, self._counter, self._array)


@public
class StateCell:
    """Named inputs and states, and a function that computes the new states of a step.

    Parameters
    ----------
    inputs : dict of Variable or None by name
        The inputs of a step, which `compute_state` sets.
    states : dict of InitState by name
    out_state : str
        The state that a `BeamSearchDecoder` computes scores from.
    name : str, optional

    Raises
    ------
    ProgramError
        If a state is no `InitState`, or `out_state` is none of them.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     text, words = fluid.data("text", [None, 8]), fluid.data("words", [None, 4], lod_level=1)
    ...     cell = StateCell(inputs={"x": None}, states={"h": InitState(text, need_reorder=True)}, out_state="h")
    ...     @cell.state_updater
    ...     def updater(cell):
    ...         cell.set_state("h", fluid.layers.fc([cell.get_state("h"), cell.get_input("x")], 8, act="tanh"))
    ...     decoder = TrainingDecoder(cell)
    ...     with decoder.block():
    ...         cell.compute_state(inputs={"x": decoder.step_input(words)})
    ...         cell.update_states()
    ...         decoder.output(cell.out_state())
    >>> decoder().shape
    (-1, 8)
    """

    def __init__(
        self,
        inputs: dict[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        LayerHelper("state_cell", name)  # takes a name, as in fluid
        for key, state in states.items():
            if not isinstance(state, InitState):
                raise ProgramError(f"StateCell: the state {key} must be an InitState, got {type(state).__name__}")
        if out_state not in states:
            raise ProgramError(f"StateCell: out_state must be one of {sorted(states)}, got {out_state!r}")
        self._inputs, self._out_state = inputs, out_state
        self._states: dict[str, Any] = dict(states)
        self._held: dict[str, _Memory | _Array] = {}
        self._updater: Callable[[StateCell], Any] | None = None
        self._decoder: _Decoder | None = None

    def _enter(self, decoder: _Decoder) -> None:
        if self._decoder is not None:
            raise ProgramError("this StateCell has a decoder already", hint="Make a StateCell for each decoder.")
        self._decoder = decoder

    def _read_states(self) -> None:
        """Read the states of the step before, once the first of them is needed, as in fluid."""
        if self._decoder is not None and not self._held:
            for name, init in self._states.items():
                self._held[name] = self._decoder._hold(init)
                self._states[name] = self._held[name].read

    def get_state(self, state_name: str) -> Variable:
        """The state of this name: of the step before, until `set_state`."""
        self._read_states()
        return _named(self._states, state_name, "state")

    def get_input(self, input_name: str) -> Variable:
        """The input of this name, as `compute_state` was given it."""
        return _named(self._inputs, input_name, "input")

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Let the state of this name be `state_value`."""
        self._states[state_name] = state_value

    def state_updater(self, updater: Callable[[StateCell], Any]) -> Callable[[StateCell], Any]:
        """Decorator for the function that computes the new states, from `get_state`, `get_input` to `set_state`."""
        self._updater = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Set the inputs of the step, and compute its states."""
        self._read_states()
        for name, value in inputs.items():
            if name not in self._inputs:
                raise ProgramError(f"StateCell has no input {name}, only {sorted(self._inputs)}")
            self._inputs[name] = value
        if self._updater is None:
            raise ProgramError("StateCell has no updater", hint="Decorate a function with cell.state_updater.")
        self._updater(self)

    def update_states(self) -> None:
        """Let the next step see the states of this one."""
        for name, held in self._held.items():
            held.update(self._states[name])

    def out_state(self) -> Variable:
        """The state that scores are computed from."""
        return _named(self._states, self._out_state, "state")


def _named(values: Mapping[str, Any], name: str, what: str) -> Variable:
    value = values.get(name)
    if not isinstance(value, Variable):
        hint = "Give its value with compute_state." if what == "input" else "Read it inside the block of a decoder."
        raise ProgramError(f"StateCell: the {what} {name} has no value; there are {sorted(values)}", hint=hint)
    return value


class _Decoder:
    """Base of the decoders: a block of operators that is written once, and the state cell that it uses."""

    BEFORE, IN, AFTER = 0, 1, 2

    def __init__(self, state_cell: StateCell) -> None:
        self._status = self.BEFORE
        self._state_cell = state_cell
        state_cell._enter(self)

    def _hold(self, init: InitState) -> _Memory | _Array:
        """Keep a state from step to step."""
        raise NotImplementedError

    @contextmanager
    def _inside(self) -> Iterator[None]:
        if self._status != self.BEFORE:
            raise ProgramError(f"a {type(self).__name__} has one block", hint="Make another decoder.")
        self._status = self.IN
        yield
        self._status = self.AFTER

    def _require(self, status: int, what: str) -> None:
        if self._status != status:
            where = "inside" if status == self.IN else "after"
            raise ProgramError(f"{type(self).__name__}: {what} belongs {where} the block")

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._require(self.IN, "state_cell")
        return self._state_cell


@public
class TrainingDecoder(_Decoder):
    """Run a `StateCell` along sequences that are known: a `DynamicRNN` whose memories are the states.

    Parameters
    ----------
    state_cell : StateCell
    name : str, optional
    """

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        LayerHelper("training_decoder", name)
        self.dynamic_rnn = DynamicRNN()
        super().__init__(state_cell)

    def _hold(self, init: InitState) -> _Memory:
        return _Memory(self.dynamic_rnn, init)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators made inside are one step."""
        with self._inside(), self.dynamic_rnn.block():
            yield

    def step_input(self, x: Variable) -> Variable:
        """The rows of `x` that a step sees; see `DynamicRNN.step_input`."""
        self._require(self.IN, "step_input")
        return self.dynamic_rnn.step_input(x)

    def static_input(self, x: Variable) -> Variable:
        """The whole of `x`; see `DynamicRNN.static_input`."""
        self._require(self.IN, "static_input")
        return self.dynamic_rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Collect these of each step."""
        self._require(self.IN, "output")
        self.dynamic_rnn.output(*outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Variable | list[Variable]:
        """The collected sequences, a list of them if there are several."""
        self._require(self.AFTER, "the call")
        return self.dynamic_rnn(*args, **kwargs)


@public
class BeamSearchDecoder(_Decoder):
    """Search for the best sequences of tokens that a `StateCell` and a layer of scores after it give.

    Parameters
    ----------
    state_cell : StateCell
    init_ids, init_scores : Variable, int64[batch, 1] and float32[batch, 1], two levels of lengths
        The first token of each sequence, and its score.
    target_dict_dim, word_dim : int
        Size of the embedding of the tokens.
    input_var_dict : dict of Variable by name, optional
        Inputs of the cell that do not depend on the tokens; the other inputs are the embedding of the last token.
    topk_size : int
        Number of tokens that continue each sequence before the best are taken.
    sparse_emb : bool
        Whether the gradient of the embedding has selected rows.
    max_len : int
        Maximum number of steps.
    beam_size : int
    end_id : int
        The token that ends a sequence in the results; the search itself takes token 1 for it, as in fluid.
    name : str, optional

    Examples
    --------
    ``decoder.decode()``, then ``ids, scores = decoder()``: as `minigraph.layers.beam_search_decode` returns them.
    """

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] | None = None,
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        self._helper = LayerHelper("beam_search_decoder", name)
        self._counter = zeros([1], "int64")
        self._max_len = fill_constant([1], "int64", max_len)
        self._cond = less_than(self._counter, fill_constant([1], "int64", max_len))
        self._while_op = While(self._cond)
        super().__init__(state_cell)
        self._zero_idx = fill_constant([1], "int64", 0, force_cpu=True)
        self._beam_size, self._end_id = beam_size, end_id
        self._init_ids, self._init_scores = init_ids, init_scores
        self._target_dict_dim, self._word_dim, self._sparse_emb = target_dict_dim, word_dim, sparse_emb
        self._topk_size, self._input_var_dict = topk_size, dict(input_var_dict or {})
        self._arrays: dict[str, Variable] = {}
        self._updates: list[tuple[Variable, Variable]] = []
        self._ids_array: Any = None
        self._scores_array: Any = None

    def _hold(self, init: InitState) -> _Array:
        return _Array(self._parent_block(), init)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators made inside are one step."""
        with self._inside(), self._while_op.block():
            yield
            with Switch() as switch, switch.case(self._cond):
                increment(self._counter, 1.0)
                for value, array in self._updates:
                    array_write(value, self._counter, array)
                less_than(self._counter, self._max_len, cond=self._cond)

    def early_stop(self) -> None:
        """Let this step be the last."""
        fill_constant([1], "bool", 0, force_cpu=True, out=self._cond)

    def decode(self) -> None:
        """Write the step of the search; a subclass may write another one."""
        with self.block():
            ids = self.read_array(self._init_ids, is_ids=True)
            scores = self.read_array(self._init_scores, is_scores=True)
            size = [self._target_dict_dim, self._word_dim]
            last = embedding(ids, size, dtype="float32", is_sparse=self._sparse_emb)
            given = {name: self.read_array(init) for name, init in self._input_var_dict.items()}
            inputs = {name: sequence_expand(value, scores) for name, value in given.items()}
            cell = self.state_cell
            for name in list(cell._states):
                cell.set_state(name, sequence_expand(cell.get_state(name), scores))
            cell.compute_state({name: last for name in cell._inputs} | inputs)
            selected = self._selected(ids, scores, lod_reset(cell.out_state(), y=scores))
            with Switch() as switch:
                with switch.case(is_empty(selected[0])):
                    self.early_stop()
                with switch.default():
                    cell.update_states()
                    self.update_array(ids, selected[0])
                    self.update_array(scores, selected[1])
                    for name, value in given.items():
                        self.update_array(value, inputs[name])

    def _selected(self, ids: Variable, scores: Variable, state: Variable) -> tuple[Variable, ...]:
        """The tokens that continue the best sequences, and the scores of these."""
        probabilities = fc(state, self._target_dict_dim, act="softmax")
        best, indices = topk(probabilities, self._topk_size)
        total = elementwise_add(log(best), reshape(scores, [-1]), axis=0)
        return beam_search(ids, scores, indices, total, self._beam_size, end_id=1, level=0)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """The value after the step before, at first `init`; `update_array` writes the next.

        Parameters
        ----------
        init : Variable
        is_ids, is_scores : bool
            Whether these are the tokens, or their scores.
        """
        self._require(self.IN, "read_array")
        if is_ids and is_scores:
            raise ProgramError("BeamSearchDecoder.read_array: an array has either ids or scores")
        outer, name = self._parent_block(), generate("beam_search_decoder_array")
        dtype = check_variable(init, "BeamSearchDecoder.read_array: init").dtype
        array = outer.create_var(name=name, type=VarKind.LOD_TENSOR_ARRAY, dtype=dtype)
        outer.append_op("write_to_array", {"X": init, "I": self._zero_idx}, {"Out": array})
        if is_ids:
            self._ids_array = array
        elif is_scores:
            self._scores_array = array
        value = array_read(array, self._counter)
        self._arrays[value.name] = array
        return value

    def update_array(self, array: Variable, value: Variable) -> None:
        """Let the next step read `value` where this one read `array`, which `read_array` returned."""
        self._require(self.IN, "update_array")
        check_variable(value, "BeamSearchDecoder.update_array: value")
        if not isinstance(array, Variable) or array.name not in self._arrays:
            raise WrongTypeError(
                f"BeamSearchDecoder.update_array: {array} is no array", hint="Pass what read_array returned."
            )
        self._updates.append((value, self._arrays[array.name]))

    def __call__(self) -> tuple[Variable, Variable]:
        """The sequences that were found and their scores; see `minigraph.layers.beam_search_decode`."""
        self._require(self.AFTER, "the call")
        return beam_search_decode(self._ids_array, self._scores_array, self._beam_size, self._end_id)

    def _parent_block(self) -> Block:
        program = self._helper.main_program
        return program.block(program.current_block().parent_idx)
