"""Scores of predicted sequences: chunks found rightly, and distances from the right sequences."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.ops.ctc import require_lengths
from minigraph.types import DType, TensorType, require, same_shape

SCHEMES = {"IOB": 2, "IOE": 2, "IOBES": 4, "plain": 1}
"""Schemes of tags, and the number of tags that each has for a type of chunk."""


@op(
    "chunk_eval", inputs="Inference Label SeqLength",
    outputs="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks", grad=None, lengths="Label?",
)  # fmt: skip
def chunk_eval(
    inference: TensorType,
    label: TensorType,
    length: TensorType | None,
    *,
    num_chunk_types: int = 1,
    chunk_scheme: str = "IOB",
    excluded_chunk_types: list[int] = (),  # type: ignore[assignment]
) -> tuple[TensorType, ...]:
    """Share of the chunks of Inference that are right, of those of Label that were found, and their harmonic mean.

    Both are [batch, time], or [batch, time, 1], of which SeqLength steps count, or without it tensors of sequences,
    [rows, 1]. A number means ``type * tags + tag``: the types of chunks are below `num_chunk_types`, and that number
    itself stands for no chunk. The tags of `chunk_scheme` are, in order, begin and inside (IOB); inside and end (IOE);
    begin, inside, end and single (IOBES); one only (plain). A chunk is right if its type, its begin and its end are.
    Chunks of `excluded_chunk_types` do not count. The last three results are the numbers of chunks.
    """
    for slot, x in (("Inference", inference), ("Label", label)):
        require(x.dtype is DType.INT64, f"{slot} must be int64, got {x}")
    require(
        same_shape(inference.shape, label.shape), f"Inference and Label must be of one shape, got {inference}, {label}"
    )
    require(chunk_scheme in SCHEMES, f"chunk_scheme must be one of {', '.join(SCHEMES)}, got {chunk_scheme!r}")
    require(num_chunk_types > 0, f"num_chunk_types must be positive, got {num_chunk_types}")
    if length is not None:
        require(label.rank >= 2, f"Label must be [batch, time] with SeqLength, got {label}")
        require_lengths(length, label.shape[0], "SeqLength")
    share, count = TensorType(DType.FP32, (1,)), TensorType(DType.INT64, (1,))
    return share, share, share, count, count, count


@op(
    "edit_distance", inputs="Hyps Refs HypsLength RefsLength", outputs="SequenceNum Out", grad=None,
    lengths="Hyps? Refs?",
)  # fmt: skip
def edit_distance(
    hyps: TensorType,
    refs: TensorType,
    hyps_length: TensorType | None,
    refs_length: TensorType | None,
    *,
    normalized: bool = False,
) -> tuple[TensorType, TensorType]:
    """``Out``, float32[batch, 1]: the least number of tokens to insert, delete or replace to make a hypothesis right.

    Hyps and Refs are [batch, time], of which HypsLength and RefsLength tokens count, or without these tensors of
    sequences, [rows, 1]. With `normalized` the number is divided by that of the tokens of the reference. SequenceNum is
    the number of pairs.

    References
    ----------
    V. I. Levenshtein, Binary codes capable of correcting deletions, insertions, and reversals, Soviet Physics Doklady
    10(8), 1966.
    """
    for slot, x in (("Hyps", hyps), ("Refs", refs)):
        require(x.dtype is DType.INT64, f"{slot} must be int64, got {x}")
    both = (hyps_length is None) == (refs_length is None)
    require(both, "HypsLength and RefsLength go together", "Give both, or neither with tensors of sequences.")
    batch = -1
    if hyps_length is not None and refs_length is not None:
        batch = hyps.shape[0] if hyps.shape else -1
        for slot, x, length in (("Hyps", hyps, hyps_length), ("Refs", refs, refs_length)):
            require(x.rank >= 2, f"{slot} must be [batch, time] with lengths, got {x}")
            require_lengths(length, batch, slot + "Length")
    return TensorType(DType.INT64, (1,)), TensorType(DType.FP32, (batch, 1))
