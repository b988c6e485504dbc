"""A decoder that follows one sequence, and helpers that choose the inputs of its steps."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import check_variable, constant
from minigraph.layers.activation import softmax
from minigraph.layers.compare import equal, less_equal
from minigraph.layers.decoding import Decoder
from minigraph.layers.indexing import slice
from minigraph.layers.nn import check_integers
from minigraph.layers.random import sampling_id
from minigraph.layers.reshaping import pad, squeeze
from minigraph.layers.search import argmax
from minigraph.layers.tensor import cast, fill_constant, fill_constant_batch_size_like
from minigraph.support.nest import map_structure
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["BasicDecoder", "DecodeHelper", "GreedyEmbeddingHelper", "SampleEmbeddingHelper", "TrainingHelper"]


@public
class DecodeHelper:
    """Base of what chooses the inputs of the steps of a `BasicDecoder`."""

    def initialize(self) -> tuple[Any, Variable]:
        """The inputs of the first step, and which sequences have ended by then."""
        raise NotImplementedError(f"{type(self).__name__} does not define initialize")

    def sample(self, time: Variable, outputs: Any, states: Any) -> Variable:
        """The tokens of this step, from its outputs."""
        raise NotImplementedError(f"{type(self).__name__} does not define sample")

    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """Flags of the sequences that have ended, and the inputs and states of the next step."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_inputs")


@public
class TrainingHelper(DecodeHelper):
    """Read the right tokens, whatever the cell would have chosen.

    Parameters
    ----------
    inputs : Variable, [batch, time, ...], or structure of them
        With `time_major`, [time, batch, ...].
    sequence_length : Variable, int[batch]
    time_major : bool

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program()):
    ...     helper = TrainingHelper(fluid.data("x", [None, 7, 4]), fluid.data("lengths", [None], "int64"))
    ...     helper.initialize()[0].shape
    (-1, 4)
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.inputs, self.time_major = inputs, time_major
        self.sequence_length = check_integers(sequence_length, "TrainingHelper: sequence_length")
        self._time = 0 if time_major else 1
        # One step more, which the last step reads as its next input.
        self.inputs_ = map_structure(self._with_one_more, inputs)

    def _with_one_more(self, x: Variable) -> Variable:
        padding = [0, 0] * len(check_variable(x, "TrainingHelper: inputs").shape or ())
        padding[2 * self._time + 1] = 1
        return pad(x, padding)

    def initialize(self) -> tuple[Any, Variable]:
        finished = equal(self.sequence_length, fill_constant([1], self.sequence_length.dtype, 0))
        return map_structure(lambda x: x[0] if self.time_major else x[:, 0], self.inputs), finished

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        return argmax(outputs, axis=-1)

    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        following = cast(time, "int32") + 1
        finished = less_equal(cast(self.sequence_length, "int32"), following)

        def at_next(x: Variable) -> Variable:
            return squeeze(slice(x, [self._time], [following], [following + 1]), [self._time])

        return finished, map_structure(at_next, self.inputs_), states


@public
class GreedyEmbeddingHelper(DecodeHelper):
    """Read the most probable token of the step before.

    Parameters
    ----------
    embedding_fn : callable
        From tokens, int64[batch], to inputs of the cell.
    start_tokens : Variable, int64[batch]
    end_token : int
    """

    def __init__(self, embedding_fn: Callable[[Variable], Any], start_tokens: Variable, end_token: int) -> None:
        if not callable(embedding_fn):
            raise WrongTypeError(f"{type(self).__name__}: embedding_fn must be callable, got {embedding_fn!r:.60}")
        self.embedding_fn = embedding_fn
        self.start_tokens = check_integers(start_tokens, f"{type(self).__name__}: start_tokens")
        self.end_token = fill_constant([1], "int64", end_token)

    def initialize(self) -> tuple[Any, Variable]:
        finished = fill_constant_batch_size_like(self.start_tokens, [-1], "bool", False)
        return self.embedding_fn(self.start_tokens), finished

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        return argmax(outputs, axis=-1)

    def next_inputs(self, time: Variable, outputs: Any, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        return equal(sample_ids, self.end_token), self.embedding_fn(sample_ids), states


@public
class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Read a token that is drawn from the probabilities of the step before.

    Parameters
    ----------
    embedding_fn, start_tokens, end_token
        As of `GreedyEmbeddingHelper`.
    softmax_temperature : float, optional
        Divisor of the scores: below 1 draws the probable tokens more often, above 1 less often.
    seed : int, optional
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Any],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        temperature = softmax_temperature
        self.softmax_temperature = None if temperature is None else fill_constant([1], "float32", temperature)
        self.seed = seed

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        scores = outputs if self.softmax_temperature is None else outputs / self.softmax_temperature
        return sampling_id(constant(softmax(scores)), seed=self.seed or 0, dtype=self.start_tokens.dtype)


@public
class BasicDecoder(Decoder):
    """Follow one sequence: the cell, then what the helper chooses.

    Parameters
    ----------
    cell : RNNCell or callable
    helper : DecodeHelper
    output_fn : callable, optional
        Applied to the outputs of the cell.

    Notes
    -----
    `dynamic_decode` returns ``BasicDecoder.OutputWrapper(cell_outputs, sample_ids)``, the tokens as int64[batch, time].
    """

    OutputWrapper = namedtuple("OutputWrapper", ("cell_outputs", "sample_ids"))

    def __init__(
        self, cell: Callable[..., Any], helper: DecodeHelper, output_fn: Callable[[Any], Any] | None = None
    ) -> None:
        self.cell, self.helper, self.output_fn = cell, helper, output_fn

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        inputs, finished = self.helper.initialize()
        return inputs, initial_cell_states, finished

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        tokens = constant(self.helper.sample(time=time, outputs=outputs, states=states))
        finished, inputs, states = self.helper.next_inputs(time=time, outputs=outputs, states=states, sample_ids=tokens)
        return self.OutputWrapper(outputs, tokens), states, inputs, finished


refuse_unknown_names(__name__, others="minigraph.layers")
