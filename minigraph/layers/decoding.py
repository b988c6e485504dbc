"""Decoding: write sequences step by step, where each step reads what the one before chose.

A `Decoder` says what a step does, and `dynamic_decode` repeats it until all sequences have ended: in a `While` of the
program, or in a loop of Python in the imperative mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable, VarKind
from minigraph.ir.default_programs import is_imperative
from minigraph.layer_helper import LayerHelper, constant, layer
from minigraph.layers.array import array_read, array_write, tensor_array_to_tensor
from minigraph.layers.compare import less_equal, logical_and, logical_not, logical_or
from minigraph.layers.elementwise import elementwise_add, elementwise_mul
from minigraph.layers.loops import While
from minigraph.layers.reduce import reduce_all
from minigraph.layers.reshaping import stack
from minigraph.layers.rnn import swap_batch_and_time
from minigraph.layers.series import zeros_like
from minigraph.layers.sub_block import truth_of
from minigraph.layers.tensor import assign, cast, fill_constant, increment
from minigraph.support.nest import map_structure
from minigraph.support.public import public, refuse_unknown_names
from minigraph.types import DType

__all__ = ["Decoder", "dynamic_decode"]


@public
class Decoder:
    """Base of decoders: what `dynamic_decode` repeats. Inputs, states and outputs are structures of variables."""

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Inputs and states of the first step, and the boolean of each sequence whether it has ended by then."""
        raise NotImplementedError(f"{type(self).__name__} does not define initialize")

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """Outputs, states and inputs of the next step, and which sequences have ended; `time` is int64[1]."""
        raise NotImplementedError(f"{type(self).__name__} does not define step")

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Outputs and states to return, from the outputs of all steps, [time, batch, ...]; may be left out."""
        raise NotImplementedError(f"{type(self).__name__} does not define finalize")


@layer
def dynamic_decode(
    decoder: Decoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Repeat the step of a decoder until all sequences have ended.

    Parameters
    ----------
    decoder : Decoder
    inits : structure of Variable, optional
        For ``decoder.initialize``.
    max_step_num : int, optional
        Number of the last step, counted from 0, if the sequences have not ended before.
    output_time_major : bool
        Return outputs as [time, batch, ...], not [batch, time, ...].
    impute_finished : bool
        Keep the states of a sequence that has ended.
    is_test : bool
        Keep nothing for a gradient.
    return_length : bool
        Return the lengths, too.
    **kwargs
        For ``decoder.step``.

    Returns
    -------
    tuple
        The outputs of all steps and the last states, as ``decoder.finalize`` returns them, and with `return_length` the
        number of steps of each sequence, int64[batch] or int64[batch, beams].

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x, lengths = fluid.data("x", [None, 7, 4]), fluid.data("lengths", [None], "int64")
    ...     cell, start = layers.GRUCell(5), layers.zeros([2, 5], "float32")
    ...     decoder = layers.BasicDecoder(cell, layers.TrainingHelper(x, lengths))
    ...     outputs, state = dynamic_decode(decoder, start)
    >>> len(outputs.cell_outputs.shape), state.shape
    (3, (2, 5))
    """
    if not isinstance(decoder, Decoder):
        raise WrongTypeError(f"dynamic_decode: decoder must be a Decoder, got {type(decoder).__name__}")
    first = decoder.initialize(inits)
    step = partial(_step, decoder, impute_finished, kwargs)
    if is_imperative():
        outputs, now = _decode_at_once(step, first, max_step_num)
    else:
        outputs, now = _decode_in_while(step, first, max_step_num, is_test)
    states = now.states
    with suppress(NotImplementedError):
        outputs, states = decoder.finalize(outputs, states, now.lengths)
    if not output_time_major:
        outputs = map_structure(swap_batch_and_time, outputs)
    return (outputs, states, now.lengths) if return_length else (outputs, states)


class _Now(NamedTuple):
    """Everything that a step reads of the one before."""

    inputs: Any
    states: Any
    finished: Variable
    lengths: Variable


_Step = Callable[[Variable, _Now], tuple[Any, _Now]]
"""Function from the number and the inputs of a step to its outputs and the inputs of the next one."""


def _step(
    decoder: Decoder, impute_finished: bool, kwargs: Mapping[str, Any], time: Variable, now: _Now
) -> tuple[Any, _Now]:
    outputs, states, inputs, finished = decoder.step(time, now.inputs, now.states, **kwargs)
    finished = logical_or(finished, now.finished)
    lengths = elementwise_add(now.lengths, cast(logical_not(now.finished), "int64"))
    if impute_finished:
        states = map_structure(lambda old, new: _old_where(now.finished, old, new), now.states, states)
    return outputs, _Now(inputs, states, finished, lengths)


def _before(inputs: Any, states: Any, finished: Variable) -> _Now:
    return _Now(inputs, states, constant(finished), constant(cast(zeros_like(finished), "int64")))


def _decode_at_once(step: _Step, first: tuple[Any, Any, Variable], last: int | None) -> tuple[Any, _Now]:
    now = _before(*first)
    collected: list[Any] = []
    while truth_of(logical_not(reduce_all(now.finished)), "dynamic_decode: the condition"):
        outputs, now = step(fill_constant([1], "int64", len(collected)), now)
        collected.append(outputs)
        if last is not None and len(collected) > last:
            break
    if not collected:
        raise ProgramError("dynamic_decode: all sequences have ended before the first step")
    return map_structure(lambda *each: stack(list(each), 0), *collected), now


def _decode_in_while(
    step: _Step, first: tuple[Any, Any, Variable], max_step_num: int | None, is_test: bool
) -> tuple[Any, _Now]:
    """Repeat a step in a loop of the program.

    Inputs and states of all steps are elements of arrays, from which a gradient reads them again; with `is_test` each
    step writes over the variables of the one before.
    """
    time = fill_constant([1], "int64", 0)
    condition = logical_not(reduce_all(first[2]))
    last = None if max_step_num is None else fill_constant([1], "int64", max_step_num)
    now = _before(*first)
    carried = now if is_test else now._replace(inputs=_arrays(now.inputs, time), states=_arrays(now.states, time))
    with While(condition, is_test).block():
        if not is_test:
            now = now._replace(inputs=_elements(carried.inputs, time), states=_elements(carried.states, time))
        outputs, following = step(time, now)
        arrays = map_structure(_array_outside, outputs)
        map_structure(lambda x, array: array_write(x, time, array), outputs, arrays)
        increment(time, 1.0)
        keep = assign if is_test else lambda x, array: array_write(x, time, array)
        map_structure(keep, following.inputs, carried.inputs)
        map_structure(keep, following.states, carried.states)
        assign(following.finished, now.finished)
        assign(following.lengths, now.lengths)
        if last is None:
            logical_not(reduce_all(now.finished), out=condition)
        else:
            logical_and(logical_not(reduce_all(now.finished)), less_equal(time, last), out=condition)
    stacked = map_structure(lambda array: tensor_array_to_tensor(array, axis=0, use_stack=True)[0], arrays)
    return stacked, carried if is_test else carried._replace(states=_elements(carried.states, time))


def _arrays(structure: Any, time: Variable) -> Any:
    return map_structure(lambda x: array_write(x, time), structure)


def _elements(arrays: Any, time: Variable) -> Any:
    return map_structure(lambda array: array_read(array, time), arrays)


def _old_where(finished: Variable, old: Variable, new: Variable) -> Variable:
    """`old` for the sequences that have ended, `new` for the others."""
    kind = old.dtype
    if kind is DType.BOOL:
        old, new = cast(old, "float32"), cast(new, "float32")
    mask = constant(cast(finished, old.dtype))
    kept = elementwise_mul(old, mask, axis=0) - elementwise_mul(new, mask - 1, axis=0)
    return cast(kept, kind) if kind is DType.BOOL else kept


def _array_outside(x: Variable) -> Variable:
    """An array for values like `x`, in the block around the one that is being written."""
    helper = LayerHelper("array")
    outside = helper.block.parent_block
    assert outside is not None
    return outside.create_var(name=f"{helper.name}.out", dtype=x.dtype, type=VarKind.LOD_TENSOR_ARRAY)


refuse_unknown_names(__name__, others="minigraph.layers")
