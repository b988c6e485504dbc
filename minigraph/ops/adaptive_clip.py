"""Clipping whose threshold is not a constant: it follows the parameter, or the norms of earlier steps."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.types import (
    DType,
    TensorType,
    merge_shapes,
    normalize_axis,
    require,
    require_floating,
    require_same_dtype,
)

_COUNT = TensorType(DType.INT64, (1,))
_NUMBER = TensorType(DType.FP64, (1,))


@op("adaptive_clip", inputs="X Param", outputs="Out", rows="X", grad=None)
def adaptive_clip(
    x: TensorType, param: TensorType, *, axes: list[int], clipping: float = 0.01, eps: float = 1e-3
) -> TensorType:
    """Each unit of X scaled down to a norm of at most `clipping` times that of the same unit of the parameter.

    A unit runs over the dimensions `axes` (none means all) at one index of the others. Its parameter counts as at
    least `eps`, so that weights that start at zero can move. A unit at or under its threshold stays bit for bit as it
    is.

    References
    ----------
    A. Brock, S. De, S. L. Smith, K. Simonyan, "High-Performance Large-Scale Image Recognition Without Normalization",
    ICML 2021, section 4.
    """
    require_floating(x)
    require_same_dtype("X and Param", x, param)
    merge_shapes(x.shape, param.shape, "X and Param")
    require(clipping > 0 and eps > 0, f"clipping and eps must be positive, got {clipping:g} and {eps:g}")
    for axis in axes:
        normalize_axis(axis, x.rank, "axes")
    return x


@op("autoclip_threshold", inputs="X History Count", outputs="Threshold HistoryOut CountOut", rows="X", grad=None)
def autoclip_threshold(
    xs: list[TensorType], history: TensorType, count: TensorType, *, percentile: float = 10.0
) -> tuple[TensorType, ...]:
    """A percentile of the joint norms of X so far, this one included, as the threshold of this step.

    Norms are taken in float64, so that none is above itself by rounding. ``History`` holds the last ones, float64[n],
    of which the first ``min(Count, n)`` count; a new one takes the place of the oldest. A norm that is not finite
    leaves the history as it is. The threshold is infinite as long as there is no norm, and where the percentile is 0.

    References
    ----------
    P. Seetharaman, G. Wichern, B. Pardo, J. Le Roux, "AutoClip: Adaptive Gradient Clipping for Source Separation
    Networks", MLSP 2020.
    """
    for x in xs:
        require_floating(x)
    require(history.dtype is DType.FP64 and history.rank == 1, f"History must be float64[n], got {history}")
    require(count.fits(_COUNT), f"Count must be {_COUNT}, got {count}")
    require(0 <= percentile <= 100, f"percentile must be from 0 to 100, got {percentile:g}")
    return _NUMBER, history, _COUNT


@op(
    "zclip_threshold",
    inputs="X Mean Variance Count",
    outputs="Threshold MeanOut VarianceOut CountOut",
    rows="X",
    grad=None,
)
def zclip_threshold(
    xs: list[TensorType],
    mean: TensorType,
    variance: TensorType,
    count: TensorType,
    *,
    z_threshold: float = 2.5,
    alpha: float = 0.97,
    warmup_steps: int = 25,
    eps: float = 1e-6,
) -> tuple[TensorType, ...]:
    """A threshold for joint norms n of X that lie too many standard deviations above their running mean.

    With ``z = (n - Mean) / (sqrt(Variance) + eps)`` the threshold is infinite for ``z <= z_threshold``, else
    ``Mean + z_threshold ** 2 / z * sqrt(Variance)``; it is infinite too where that is 0, as after norms of 0 only. Then
    the statistics take in the norm after clipping, c: ``MeanOut = alpha * Mean + (1 - alpha) * c`` and
    ``VarianceOut = alpha * Variance + (1 - alpha) * (c - MeanOut) ** 2``. During the first `warmup_steps` nothing is
    clipped, and they are the mean and the variance of the norms so far. A norm that is not finite leaves them as they
    are.

    References
    ----------
    A. Kumar, L. Owen, N. R. Chowdhury, F. Güra, "ZClip: Adaptive Spike Mitigation for LLM Pre-Training", 2025.
    """
    for x in xs:
        require_floating(x)
    for slot, value in (("Mean", mean), ("Variance", variance)):
        require(value.fits(_NUMBER), f"{slot} must be {_NUMBER}, got {value}")
    require(count.fits(_COUNT), f"Count must be {_COUNT}, got {count}")
    require(z_threshold > 0, f"z_threshold must be positive, got {z_threshold:g}")
    require(0 <= alpha < 1, f"alpha must be from 0 to below 1, got {alpha:g}")
    require(warmup_steps > 0, f"warmup_steps must be positive, got {warmup_steps}")
    return _NUMBER, _NUMBER, _NUMBER, _COUNT
