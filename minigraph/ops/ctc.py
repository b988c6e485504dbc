"""Connectionist temporal classification: labels for sequences whose steps are not aligned with them."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_integers
from minigraph.types import DType, TensorType, require, require_floating, same_shape


def require_lengths(length: TensorType, batch: int, slot: str) -> None:
    """Raise unless `length` holds the lengths of that many sequences."""
    require_integers(length, slot)
    fits = same_shape(length.shape, (batch,)) or same_shape(length.shape, (batch, 1))
    require(fits, f"{slot} must be [{batch}] or [{batch}, 1], got {length}")


@op(
    "warpctc", inputs="Logits Label LogitsLength LabelLength", outputs="WarpCTCGrad~ Loss",
    grad=fused("WarpCTCGrad", "Logits", "LogitsLength", to="Logits", d_out="Loss"),
    lengths="Logits? Label?",
)  # fmt: skip
def warpctc(
    logits: TensorType,
    label: TensorType,
    logits_length: TensorType | None,
    label_length: TensorType | None,
    *,
    blank: int = 0,
    norm_by_times: bool = False,
) -> tuple[TensorType, TensorType]:
    """``Loss``, [batch, 1], is ``-log P(Label | Logits)`` for each sequence, summed over all alignments.

    Logits are [time, batch, classes], Label is [batch, labels], and of each sequence as many steps and labels count as
    LogitsLength and LabelLength say; without these both are tensors of sequences, [rows, classes] and [rows, 1]. An
    alignment says a label, or `blank`, at each step; equal neighbours count once, then blanks are left out. A sequence
    that is too short for its labels counts 0. With `norm_by_times` the gradient is divided by the number of steps.
    WarpCTCGrad is the gradient of the sum of Loss, [time, batch, classes].

    References
    ----------
    A. Graves et al., Connectionist temporal classification: labelling unsegmented sequence data with recurrent neural
    networks, ICML 2006.
    """
    require_floating(logits, "Logits")
    require_integers(label, "Label")
    both = (logits_length is None) == (label_length is None)
    require(both, "LogitsLength and LabelLength go together", "Give both, or neither with tensors of sequences.")
    require(blank >= 0, f"blank must be the number of a class, got {blank}")
    classes = logits.shape[-1] if logits.shape else -1
    require(classes == -1 or blank < classes, f"blank must be below the number of classes, {classes}, got {blank}")
    if logits_length is None or label_length is None:
        require(logits.rank == 2, f"Logits must be [rows, classes] without LogitsLength, got {logits}")
        return logits.with_shape((-1, -1, classes)), logits.with_shape((-1, 1))
    require(logits.rank == 3, f"Logits must be [time, batch, classes] with LogitsLength, got {logits}")
    batch = logits.shape[1]
    require(label.rank == 2, f"Label must be [batch, labels], got {label}")
    require_lengths(logits_length, batch, "LogitsLength")
    require_lengths(label_length, batch, "LabelLength")
    return logits, logits.with_shape((batch, 1))


@op(
    "ctc_align", inputs="Input InputLength", outputs="Output OutputLength?", grad=None,
    lod={"Output": lambda levels, attrs: min(levels.get("Input", 0), 1)}, lengths="Input?",
)  # fmt: skip
def ctc_align(
    x: TensorType,
    length: TensorType | None,
    *,
    blank: int = 0,
    merge_repeated: bool = True,
    padding_value: int = 0,
) -> tuple[TensorType, TensorType | None]:
    """``Output`` is Input without equal neighbours, then without `blank`.

    Input is [batch, time], of which InputLength steps count; Output is as large, filled with `padding_value`, and has
    OutputLength, [batch, 1], steps. Without InputLength both are tensors of sequences, [rows, 1].
    """
    require_integers(x, "Input")
    if length is None:
        return x.with_shape((-1, 1)), None
    require(x.rank == 2, f"Input must be [batch, time] with InputLength, got {x}")
    require_lengths(length, x.shape[0], "InputLength")
    return x, TensorType(DType.INT64, (x.shape[0], 1))
