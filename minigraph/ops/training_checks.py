"""Gradients while a program trains: whether they are finite, their norms, and how often they are clipped."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.norm import require_positive_order
from minigraph.types import DType, TensorType, require, require_floating

POLICIES = ("raise", "zero", "skip")

_COUNT = TensorType(DType.INT64, (1,))
_NORM = TensorType(DType.FP64, (1,))


@op("guard_nonfinite", inputs="X Skipped", outputs="Out* Found SkippedOut?", rows="X", grad=fused("X", d_out="Out"))
def guard_nonfinite(
    xs: list[TensorType], skipped: TensorType | None = None, *, policy: str, params: list[str]
) -> tuple[list[TensorType], TensorType, TensorType]:
    """X, and whether one of its elements is NaN or infinite.

    `policy` says what then happens. ``raise`` ends the run with an error that names the parameter, of which `params`
    has one for each tensor. ``zero`` puts 0 in the place of each such element. ``skip`` passes X on and counts in
    ``Skipped``; updates that read ``Found`` do nothing then. ``Found`` is bool[1].

    The gradient passes unchanged, except that it is 0 for an element that 0 has taken the place of.

    Notes
    -----
    Fluid has no such operator. On a GPU ``raise`` waits for the values.
    """
    require(policy in POLICIES, f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    require(len(params) == len(xs), f"params names {len(params)} parameters for {len(xs)} tensors")
    for x in xs:
        require_floating(x)
    if skipped is not None:
        require(skipped.fits(_COUNT), f"Skipped must be {_COUNT}, got {skipped}")
    return list(xs), TensorType(DType.BOOL, (1,)), _COUNT


@op(
    "clip_statistics",
    inputs="Before After Steps ClippedSteps",
    outputs="NormBefore NormAfter Factor StepsOut ClippedStepsOut",
    rows="Before After",
    grad=None,
)
def clip_statistics(
    before: list[TensorType],
    after: list[TensorType],
    steps: TensorType,
    clipped: TensorType,
    *,
    params: list[str],
    p: float = 2.0,
) -> tuple[TensorType, ...]:
    """Statistics of gradients that are clipped together: norms before and after, and counts.

    ``NormBefore`` and ``NormAfter`` are joint norms of order `p`, float64[1], and ``Factor`` is their quotient, 1 where
    both are 0. ``Steps`` goes up by one each time, ``ClippedSteps`` when the norms differ. `params` says whose
    gradients they are.

    Notes
    -----
    Fluid has no such operator.
    """
    require_positive_order(p)
    require(len(before) == len(after), f"{len(before)} gradients before and {len(after)} after clipping")
    require(len(params) == len(before), f"params names {len(params)} parameters for {len(before)} gradients")
    for x in (*before, *after):
        require_floating(x)
    for slot, count in (("Steps", steps), ("ClippedSteps", clipped)):
        require(count.fits(_COUNT), f"{slot} must be {_COUNT}, got {count}")
    return _NORM, _NORM, _NORM, _COUNT, _COUNT
