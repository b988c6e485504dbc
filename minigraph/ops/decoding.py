"""Search for the best sequences: what turns the choices of each step into sequences."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.ops.tensor import require_integers
from minigraph.types import DType, TensorType, merge_shapes, require, require_floating, require_same_dtype


@op("gather_tree", inputs="Ids Parents", outputs="Out", grad=None)
def gather_tree(ids: TensorType, parents: TensorType) -> TensorType:
    """``Out[:, b, k]`` is the sequence that ends in ``Ids[-1, b, k]``, read backwards along Parents.

    Ids and Parents are [time, batch, beams]: the tokens that a beam search chose in each step, and the beams of the
    step before that the tokens continue.
    """
    require_integers(ids, "Ids")
    require_same_dtype("Ids and Parents", ids, parents)
    require(ids.rank == 3, f"Ids must be [time, batch, beams], got {ids}")
    return ids.with_shape(merge_shapes(ids.shape, parents.shape, "Ids and Parents"))


@op(
    "beam_search", inputs="pre_ids pre_scores ids scores", outputs="selected_ids selected_scores parent_idx?",
    grad=None, lod={"selected_ids": "new 2", "selected_scores": "new 2"}, lengths="scores",
)  # fmt: skip
def beam_search(
    pre_ids: TensorType,
    pre_scores: TensorType,
    ids: TensorType | None,
    scores: TensorType,
    *,
    level: int = 0,
    beam_size: int = 1,
    end_id: int = 0,
    is_accumulated: bool = True,
) -> tuple[TensorType, TensorType, TensorType]:
    """Continue the beams of each source by a token, and keep the `beam_size` best.

    The rows of pre_ids and pre_scores, [rows, 1], are the beams: their last tokens and their scores. The rows of ids
    and scores, [rows, candidates], are tokens to continue them by, and the scores after that; without ids the tokens
    are the numbers of the columns, without `is_accumulated` scores are probabilities. A beam that ends in `end_id` is
    only continued by it, with its score. A source is what `level` of the lengths of scores says. A source of which all
    beams had ended before has no beams any more. Of equal scores later rows come first, then earlier columns.

    selected_ids and selected_scores, [selected, 1], have two levels of lengths: the beams of each source, and the rows
    selected for each beam. parent_idx, int32, is the row that each continues.
    """
    require(pre_ids.dtype is DType.INT64, f"pre_ids must be int64, got {pre_ids}")
    require_floating(scores, "scores")
    require_same_dtype("pre_scores and scores", pre_scores, scores)
    require(scores.rank == 2, f"scores must be [rows, candidates], got {scores}")
    require(beam_size > 0, f"beam_size must be positive, got {beam_size}")
    if ids is not None:
        require(ids.dtype is DType.INT64, f"ids must be int64, got {ids}")
        merge_shapes(ids.shape, scores.shape, "ids and scores")
    return TensorType(DType.INT64, (-1, 1)), scores.with_shape((-1, 1)), TensorType(DType.INT32, (-1,))


@op(
    "beam_search_decode", inputs="Ids Scores", outputs="SentenceIds SentenceScores", grad=None, arrays="Ids Scores",
    lod="new 2", lengths="Ids",
)  # fmt: skip
def beam_search_decode(
    ids: TensorType, scores: TensorType, *, beam_size: int = 1, end_id: int = 0
) -> tuple[TensorType, TensorType]:
    """The sequences that a beam search has found, best first, with the score that each had at each token.

    Ids and Scores are arrays of what `beam_search` has selected in each step. The results, [tokens], have two levels of
    lengths: `beam_size` sequences of each source, and the tokens of each sequence. Of the tokens `end_id` at the end
    of a sequence one is kept.
    """
    return TensorType(DType.INT64, (-1,)), scores.with_shape((-1,))
