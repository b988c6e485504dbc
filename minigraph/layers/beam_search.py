"""Beam search: keep the best unfinished sequences of each sample, and extend each of them step by step."""

from __future__ import annotations

import builtins
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable, VarKind
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, constant, emit, layer
from minigraph.layers.activation import log, softmax
from minigraph.layers.compare import equal, logical_not, logical_or
from minigraph.layers.decoding import Decoder
from minigraph.layers.elementwise import elementwise_add, elementwise_floordiv, elementwise_mod, elementwise_mul
from minigraph.layers.indexing import gather_nd
from minigraph.layers.reshaping import expand, stack, unsqueeze
from minigraph.layers.series import range, zeros_like
from minigraph.layers.tensor import (
    assign,
    cast,
    fill_constant,
    fill_constant_batch_size_like,
    reshape,
    shape,
    topk,
    transpose,
)
from minigraph.support.arguments import INTEGERS
from minigraph.support.nest import flatten, map_structure
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["BeamSearchDecoder", "beam_search", "beam_search_decode", "gather_tree"]


@layer
def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """The sequences that a beam search has found, from the tokens and the parents that it chose in each step.

    Parameters
    ----------
    ids : Variable, int32 or int64[time, batch, beams]
    parents : Variable, like `ids`
        The beam of the step before that each token continues.

    Returns
    -------
    Variable
        Like `ids`; each beam holds the whole sequence that ends in its last token.

    Examples
    --------
    >>> import numpy as np
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     ids = fluid.dygraph.to_variable(np.array([[[2, 2]], [[6, 1]]]))
    ...     parents = fluid.dygraph.to_variable(np.array([[[0, 0]], [[1, 0]]]))
    ...     gather_tree(ids, parents).numpy().tolist()
    [[[2, 2]], [[6, 1]]]
    """
    return constant(emit("gather_tree", Ids=check_variable(ids, "gather_tree: ids"), Parents=parents))


@layer
def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """A step of a beam search over tensors of sequences: the `beam_size` best continuations of each source.

    Parameters
    ----------
    pre_ids, pre_scores : Variable, int64[rows, 1] and float32[rows, 1]
        The last tokens of the beams, and their scores.
    ids : Variable, int64[rows, candidates], or None
        Tokens to continue them by. Default: the numbers of the columns of `scores`.
    scores : Variable, float32[rows, candidates] with sequences
        The score of each beam with each token, or with ``is_accumulated=False`` the probability of the token.
    end_id : int
        The token that ends a sequence.
    level : int
        Which level of the lengths of `scores` says what rows belong to a source.
    return_parent_idx : bool
        Return the row that each continues, too, int32[selected].

    Returns
    -------
    tuple of Variable
        The tokens selected and their scores, [selected, 1], with two levels of lengths, as `beam_search_decode` reads
        them from arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     last, total = fluid.data("last", [None, 1], "int64", 2), fluid.data("total", [None, 1], lod_level=2)
    ...     scores = fluid.data("scores", [None, 3], lod_level=2)
    ...     best, _ = beam_search(last, total, None, scores, beam_size=2, end_id=0)
    ...     levels, place = [[1], [1]], fluid.CPUPlace()
    ...     rows = (np.array([[1]]), np.zeros((1, 1), "float32"), np.array([[0.1, 0.5, 0.4]], "float32"))
    ...     feed = zip(("last", "total", "scores"), rows)
    ...     feed = {name: fluid.create_lod_tensor(each, levels, place) for name, each in feed}
    ...     (found,) = fluid.Executor().run(feed=feed, fetch_list=[best], return_numpy=False)
    >>> np.array(found).tolist(), found.recursive_sequence_lengths()
    ([[1], [2]], [[1], [2]])
    """
    helper = LayerHelper("beam_search", name)
    inputs = {"pre_ids": check_variable(pre_ids, "beam_search: pre_ids"), "pre_scores": pre_scores, "scores": scores}
    if ids is not None:
        inputs["ids"] = ids
    slots = ("selected_scores", "selected_ids", "parent_idx")
    outputs = {slot: helper.temporary(stop_gradient=True) for slot in slots}
    attrs = {"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated}
    helper.append("beam_search", inputs, outputs, attrs)
    results = outputs["selected_ids"], outputs["selected_scores"], outputs["parent_idx"]
    return results if return_parent_idx else results[:2]


@layer
def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sequences that a beam search has found, best first, and the score of each after each token.

    Parameters
    ----------
    ids, scores : Variable
        Arrays of what `beam_search` selected in each step.
    beam_size, end_id : int
        As of `beam_search`.

    Returns
    -------
    tuple of Variable
        Tokens, int64[tokens], and scores with two levels of lengths: the sequences of each source, `beam_size`, and the
        tokens of each sequence.
    """
    helper = LayerHelper("beam_search_decode", name)
    for array in (ids, scores):
        if check_variable(array, "beam_search_decode").kind is not VarKind.LOD_TENSOR_ARRAY:
            raise WrongTypeError(f"beam_search_decode: ids and scores must be arrays, got {array}")
    outputs = {slot: helper.temporary(stop_gradient=True) for slot in ("SentenceIds", "SentenceScores")}
    attrs = {"beam_size": beam_size, "end_id": end_id}
    helper.append("beam_search_decode", {"Ids": ids, "Scores": scores}, outputs, attrs)
    return outputs["SentenceIds"], outputs["SentenceScores"]


@public
class BeamSearchDecoder(Decoder):
    """Follow the `beam_size` sequences whose tokens are most probable together.

    Parameters
    ----------
    cell : RNNCell or callable
        From inputs and states of ``batch * beam_size`` sequences to its output and the states after it.
    start_token, end_token : int
    beam_size : int
    embedding_fn : callable, optional
        From token numbers, int64[batch, beam_size], to the inputs of the cell.
    output_fn : callable, optional
        From the cell's output, [batch, beam_size, ...], to a score for each word.

    Notes
    -----
    `dynamic_decode` returns the tokens, int64[batch, time, beam_size], best first. Other tensors of one row for each
    sequence that the cell reads, such as what an encoder wrote, go through `tile_beam_merge_with_batch`.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     encoded = fluid.data("encoded", [None, 8])
    ...     decoder = BeamSearchDecoder(
    ...         layers.GRUCell(8), start_token=0, end_token=1, beam_size=4,
    ...         embedding_fn=lambda ids: fluid.embedding(ids, [10, 8]),
    ...         output_fn=lambda x: layers.fc(x, 10, num_flatten_dims=2),
    ...     )
    ...     ids, _ = layers.dynamic_decode(decoder, encoded, max_step_num=5)
    >>> str(ids.dtype), len(ids.shape)
    ('int64', 3)
    """

    OutputWrapper = namedtuple("OutputWrapper", ("scores", "predicted_ids", "parent_ids"))
    StateWrapper = namedtuple("StateWrapper", ("cell_states", "log_probs", "finished", "lengths"))

    def __init__(
        self,
        cell: Callable[..., Any],
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Any] | None = None,
        output_fn: Callable[[Any], Variable] | None = None,
    ) -> None:
        if not isinstance(beam_size, INTEGERS) or beam_size < 1:
            raise WrongTypeError(f"BeamSearchDecoder: beam_size must be a positive int, got {beam_size!r}")
        self.cell, self.embedding_fn, self.output_fn = cell, embedding_fn, output_fn
        self.start_token, self.end_token, self.beam_size = start_token, end_token, beam_size
        self.kinf = 1e9
        """Distance of the logarithm of a probability that is never chosen."""

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """`x`, [batch, ...], with each row `beam_size` times, [batch * beam_size, ...]."""
        repeated = _for_each_beam(check_variable(x, "tile_beam_merge_with_batch: x"), beam_size)
        rank = len(repeated.shape or ())
        # Last, so that the sizes of all other dimensions can be copied by 0, known or not.
        beams_last = transpose(repeated, [*builtins.range(2, rank), 0, 1])
        merged = reshape(beams_last, [0] * (rank - 2) + [-1])
        return transpose(merged, [rank - 2, *builtins.range(rank - 2)])

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """The start token for each beam; of the beams only the first has the probability 1, the others 0."""
        state = flatten(initial_cell_states)[0]
        self.batch_size = constant(shape(check_variable(state, "BeamSearchDecoder: initial states"))[0])
        start = fill_constant([1], "int64", self.start_token)
        self.end_token_tensor = fill_constant([1], "int64", self.end_token)
        cell_states = map_structure(lambda x: _for_each_beam(x, self.beam_size), initial_cell_states)
        inputs = expand(unsqueeze(expand(start, [self.batch_size]), [1]), [1, self.beam_size])
        first = np.array([[0.0] + [-self.kinf] * (self.beam_size - 1)], "float32")
        log_probs = expand(assign(first), [self.batch_size, 1])
        finished = fill_constant_batch_size_like(state, [-1, self.beam_size], "bool", False)
        lengths = zeros_like(inputs)
        return self._embedded(inputs), self.StateWrapper(cell_states, log_probs, finished, lengths), finished

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any, Any, Variable]:
        """Continue each beam by each word, and keep the `beam_size` best of all for each sequence."""
        merged = map_structure(_merged, inputs), map_structure(_merged, states.cell_states)
        outputs, cell_states = self.cell(*merged, **kwargs)
        outputs, cell_states = (map_structure(self._split, each) for each in (outputs, cell_states))
        logits = check_floating(outputs if self.output_fn is None else self.output_fn(outputs), "BeamSearchDecoder")
        output, next_states = self._choose(logits, cell_states, states)
        output.predicted_ids.stop_gradient = True
        return output, next_states, self._embedded(output.predicted_ids), next_states.finished

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """The sequences of tokens, and the states as they are."""
        return gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states

    def _choose(self, logits: Variable, cell_states: Any, states: Any) -> tuple[Any, Any]:
        """The best continuations, and the states after them; `logits` is [batch, beam_size, words]."""
        words = _shape(logits)[-1]
        count = fill_constant([1], "int64", words)
        # A sequence that has ended is continued by the end token, at no cost.
        ended = np.full(words, -self.kinf, "float32")
        ended[self.end_token] = 0
        step_log_probs = _where_finished(states.finished, assign(ended), log(softmax(logits)))
        log_probs = elementwise_add(step_log_probs, states.log_probs, axis=0)
        scores, chosen = topk(reshape(log_probs, [-1, self.beam_size * words]), self.beam_size)
        beams, tokens = elementwise_floordiv(chosen, count), elementwise_mod(chosen, count)
        cell_states = map_structure(lambda x: self._of_beams(x, beams), cell_states)
        finished, lengths = self._of_beams(states.finished, beams), self._of_beams(states.lengths, beams)
        lengths = lengths + cast(logical_not(finished), "int64")
        finished = logical_or(finished, equal(tokens, self.end_token_tensor))
        return self.OutputWrapper(scores, tokens, beams), self.StateWrapper(cell_states, scores, finished, lengths)

    def _of_beams(self, x: Variable, beams: Variable) -> Variable:
        """The rows of `x`, [batch, beam_size, ...], for the beams chosen, int64[batch, beam_size]."""
        batch = cast(self.batch_size, "int64")
        sequences = expand(unsqueeze(range(0, batch, 1, "int64"), [1]), [1, self.beam_size])
        return gather_nd(x, constant(stack([sequences, beams], axis=2)))

    def _embedded(self, ids: Variable) -> Any:
        return self.embedding_fn(ids) if self.embedding_fn else ids

    def _split(self, x: Variable) -> Variable:
        return reshape(x, [-1, self.beam_size, *_shape(x)[1:]])


def _shape(x: Variable) -> tuple[int, ...]:
    return check_variable(x, "BeamSearchDecoder").shape or ()


def _merged(x: Variable) -> Variable:
    """[batch, beams, ...] as [batch * beams, ...]."""
    return reshape(x, [-1, *_shape(x)[2:]])


def _for_each_beam(x: Variable, beam_size: int) -> Variable:
    """[batch, ...] as [batch, beam_size, ...]."""
    return expand(unsqueeze(x, [1]), [1, beam_size] + [1] * (len(_shape(x)) - 1))


def _where_finished(finished: Variable, value: Variable, otherwise: Variable) -> Variable:
    """`value`, [words], for the beams that have ended, and `otherwise`, [batch, beams, words], for the others."""
    flags = cast(finished, otherwise.dtype)
    chosen = elementwise_mul(expand(unsqueeze(flags, [2]), [1, 1, _shape(otherwise)[-1]]), value, axis=-1)
    return chosen - elementwise_mul(otherwise, flags - 1, axis=0)


refuse_unknown_names(__name__, others="minigraph.layers")
