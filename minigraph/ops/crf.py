"""Conditional random fields along sequences, for tagging: their likelihood, and the best tags."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import (
    DType,
    TensorType,
    require,
    require_floating,
    require_same_dtype,
    same_shape,
)


def _require_chain(
    emission: TensorType, transition: TensorType, label: TensorType | None, length: TensorType | None
) -> None:
    require_floating(emission, "Emission")
    require_same_dtype("Emission and Transition", emission, transition)
    rank, form = (2, "[rows, tags]") if length is None else (3, "[batch, time, tags]")
    require(emission.rank == rank, f"Emission must be {form} {'with' if length else 'without'} Length, got {emission}")
    tags = emission.shape[-1]
    wanted = (tags + 2 if tags != -1 else -1, tags)
    require(
        same_shape(transition.shape, wanted), f"Transition must be [tags + 2, tags], got {transition} for {emission}"
    )
    if label is not None:
        require(label.dtype is DType.INT64, f"Label must be int64, got {label}")
        steps = emission.shape[:-1]
        require(_is_like(label, steps), f"Label must have shape {list(steps)} or {[*steps, 1]}, got {label}")
    if length is not None:
        require(length.dtype is DType.INT64, f"Length must be int64, got {length}")
        require(_is_like(length, emission.shape[:1]), f"Length must be [batch] or [batch, 1], got {length}")


def _is_like(x: TensorType, shape: tuple[int, ...]) -> bool:
    """Whether `x` has this shape, or one more dimension of one element."""
    return same_shape(x.shape, shape) or same_shape(x.shape, (*shape, 1))


@op(
    "linear_chain_crf", inputs="Emission Transition Label Length",
    outputs="Alpha~ EmissionExps~ TransitionExps~ LogLikelihood",
    grad=fused(
        "Emission", "Transition", "Label", "Length", "Alpha", "EmissionExps", "TransitionExps",
        to="Emission Transition", d_out="LogLikelihood",
    ),
    lengths="Emission?",
)  # fmt: skip
def linear_chain_crf(
    emission: TensorType, transition: TensorType, label: TensorType, length: TensorType | None
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """``LogLikelihood = -log P(Label | Emission)`` for each sequence, [batch, 1], in a conditional random field.

    Emission is [batch, time, tags], of which the first Length steps of each sequence count, or without Length a tensor
    of sequences, [rows, tags]. A path of tags ``s`` has the
    score ``a[s[0]] + b[s[-1]] + sum(Emission[t, s[t]]) + sum(w[s[t - 1], s[t]])``, where a, b and w are the first row
    of Transition, the second, and the others; P is proportional to the exponential of the score. Alpha, [batch, time,
    tags], are the sums over all paths that end in a tag, divided by their sum; it is 0 after the end.

    Sums are in float64: the exponential of the difference of two scores of a step should not underflow.

    References
    ----------
    J. Lafferty, A. McCallum and F. Pereira, Conditional random fields: probabilistic models for segmenting and labeling
    sequence data, ICML 2001.
    """
    _require_chain(emission, transition, label, length)
    return emission, emission, transition, emission.with_shape((-1 if length is None else emission.shape[0], 1))


@op(
    "crf_decoding", inputs="Emission Transition Label Length", outputs="ViterbiPath", grad=None, lod="Emission",
    lengths="Emission?",
)  # fmt: skip
def crf_decoding(
    emission: TensorType, transition: TensorType, label: TensorType | None, length: TensorType | None
) -> TensorType:
    """The path of tags with the highest score, [batch, time] or [rows, 1], see `linear_chain_crf`; of equals the first.

    With Label, 1 where the path has the tag of Label, else 0. Both are 0 after the end of a sequence.

    References
    ----------
    A. J. Viterbi, Error bounds for convolutional codes and an asymptotically optimum decoding algorithm, IEEE
    Transactions on Information Theory 13(2), 1967.
    """
    _require_chain(emission, transition, label, length)
    return TensorType(DType.INT64, (emission.shape[0], 1) if length is None else emission.shape[:2])
