"""Normalization: over a batch for each channel, or over the features of each sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import DoubleGrad, fused
from minigraph.ops.tensor import require_one_element
from minigraph.support.window_rules import CHANNELS_LAST, require_layout
from minigraph.types import (
    DType,
    TensorType,
    product,
    require,
    require_floating,
    require_same_dtype,
    same_dim,
)

_MAX_EPSILON = 1e-3 * (1 + 1e-6)  # as an attribute holds it, rounded to float32


def _require_epsilon(epsilon: float) -> None:
    require(0 <= epsilon <= _MAX_EPSILON, f"epsilon must be in [0, 0.001], got {epsilon:g}")


def _unchanged_statistics(attr: Callable[[str], Any]) -> dict[str, str]:
    """The running statistics where they are used, and not computed."""
    if attr("use_global_stats") or (attr("is_test") and not attr("trainable_statistics")):
        return {"MeanOut": "Mean", "VarianceOut": "Variance"}
    return {}


@op(
    "batch_norm", inputs="X Scale Bias Mean Variance MomentumTensor",
    outputs="Y MeanOut VarianceOut SavedMean~ SavedVariance~",
    lod={"Y": "X"}, grad=fused("X", "Scale", "Bias", "SavedMean", "SavedVariance", to="X Scale Bias", lod=False),
    backend_attrs={"fuse_with_relu": False}, unchanged=_unchanged_statistics,
)  # fmt: skip
def batch_norm(
    x: TensorType,
    scale: TensorType,
    bias: TensorType,
    mean: TensorType,
    variance: TensorType,
    momentum_tensor: TensorType | None,
    *,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
) -> tuple[TensorType, TensorType, TensorType, TensorType, TensorType]:
    """``Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias``, for each channel.

    X is ``[batch, channels, ...]`` of two to five dimensions, or with the channels last if `data_layout` is NHWC. In
    training, mean and variance are those of X (the variance divided by the count), and the running ones go on:
    ``MeanOut = momentum * Mean + (1 - momentum) * mean``, likewise VarianceOut; MeanOut is the same variable as Mean.
    In the test (`is_test`, unless `trainable_statistics`), and with `use_global_stats`, Mean and Variance are used and
    stay as they are. SavedMean and SavedVariance, for the gradient, are the mean and one over the standard deviation.
    MomentumTensor, of one element, takes the place of `momentum`.

    Where each channel has a single element, training gives ``Y = X`` and leaves the statistics alone, as an empty batch
    does.

    Notes
    -----
    Fluid's output ReserveSpace serves a backend that minigraph does not have. Fluid has no gradient with `is_test`, and
    its gradient with `use_global_stats` lists Mean and Variance besides.

    References
    ----------
    S. Ioffe and C. Szegedy, Batch normalization: accelerating deep network training by reducing internal covariate
    shift, ICML 2015.
    """
    require_floating(x)
    require_layout(data_layout, "data_layout")
    require(2 <= x.rank <= 5, f"X must have 2 to 5 dimensions, got {x}")
    _require_epsilon(epsilon)
    statistics = x.dtype if x.dtype is not DType.FP16 else scale.dtype
    require(statistics in (x.dtype, DType.FP32), f"Scale must be float16 or float32 beside {x}, got {scale}")
    require_same_dtype("Scale, Bias, Mean and Variance", x.with_dtype(statistics), scale, bias, mean, variance)
    channels = x.shape[-1 if data_layout == CHANNELS_LAST else 1]
    for slot, given in (("Scale", scale), ("Bias", bias), ("Mean", mean), ("Variance", variance)):
        require(
            given.rank == 1 and same_dim(given.shape[0], channels),
            f"{slot} must hold a number for each of the {channels} channels of X, got {given}",
        )
    if momentum_tensor is not None:
        require_one_element(momentum_tensor, "MomentumTensor")
    return x, mean, variance, mean, variance


op(
    "sync_batch_norm", inputs="X Scale Bias Mean Variance MomentumTensor",
    outputs="Y MeanOut VarianceOut SavedMean~ SavedVariance~",
    lod={"Y": "X"}, grad=fused("X", "Scale", "Bias", "SavedMean", "SavedVariance", to="X Scale Bias", lod=False),
    backend_attrs={"fuse_with_relu": False}, unchanged=_unchanged_statistics, has_effect=True,
    doc="""``batch_norm`` by the mean and the variance of X of all ranks.

    Ranks may have different numbers of samples, or none. Each gets the running and the saved statistics of all samples.
    The gradient of X is that of what all ranks make of the statistics; those of Scale and Bias are a rank's parts of
    sums over the ranks, as other gradients of parameters are. Slots and attributes are those of ``batch_norm``, which
    it is on one rank, and where the running statistics are used.

    Notes
    -----
    Paddle 1.8.5 has it on GPUs only.
    """,
)(batch_norm)  # fmt: skip


@op(
    "layer_norm", inputs="X Scale Bias", outputs="Y Mean~ Variance~",
    lod="X", grad=fused("X", "Scale", "Bias", "Mean", "Variance", to="X Scale Bias", lod=False),
)  # fmt: skip
def layer_norm(
    x: TensorType,
    scale: TensorType | None,
    bias: TensorType | None,
    *,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> tuple[TensorType, TensorType, TensorType]:
    """``Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias``, over the dimensions from `begin_norm_axis` on.

    Scale and Bias hold a number for each of the elements normalized together, as vectors. Mean and Variance are vectors
    with a number for each time that happens; the variance is divided by the count.

    References
    ----------
    J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450, 2016.
    """
    require_floating(x)
    _require_epsilon(epsilon)
    require(
        0 < begin_norm_axis < x.rank,
        f"begin_norm_axis must be between 0 and the {x.rank} dimensions of X, got {begin_norm_axis}",
    )
    features = product(x.shape[begin_norm_axis:])
    for slot, given in (("Scale", scale), ("Bias", bias)):
        if given is not None:
            require_same_dtype(f"X and {slot}", x, given)
            require(
                given.rank == 1 and same_dim(given.shape[0], features),
                f"{slot} must hold a number for each of the {features} features of X, got {given}",
            )
    rows = x.with_shape([product(x.shape[:begin_norm_axis])])
    return x, rows, rows


@op(
    "group_norm", inputs="X Scale Bias", outputs="Y Mean~ Variance~",
    lod="X", grad=fused("X", "Scale", "Bias", "Mean", "Variance", to="X Scale Bias", lod=False),
)  # fmt: skip
def group_norm(
    x: TensorType,
    scale: TensorType | None,
    bias: TensorType | None,
    *,
    groups: int,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
) -> tuple[TensorType, TensorType, TensorType]:
    """``Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias``, over each group of channels of each sample.

    X is ``[batch, channels, ...]``, or with the channels last if `data_layout` is NHWC. Scale and Bias hold a number
    for each channel, Mean and Variance, ``[batch, groups]``, one for each group.

    Notes
    -----
    Fluid's gradient reads Y instead of X and Mean, and loses the gradient of a Scale that is 0. Without Scale it does
    not take the mean of what flows in from the gradient of X; that is kept, since its numbers are recorded.
    Fluid takes groups of different sizes and computes garbage where X has not four dimensions.

    References
    ----------
    Y. Wu and K. He, Group normalization, ECCV 2018.
    """
    require_floating(x)
    require_layout(data_layout, "data_layout")
    require(x.rank >= 2, f"X must have at least 2 dimensions, got {x}")
    require(0 <= epsilon <= 1, f"epsilon must be in [0, 1], got {epsilon:g}")
    channels = x.shape[-1 if data_layout == CHANNELS_LAST else 1]
    require(groups > 0, f"groups must be positive, got {groups}")
    require(channels == -1 or channels % groups == 0, f"{channels} channels cannot be split into {groups} groups")
    _require_per_channel(x, channels, Scale=scale, Bias=bias)
    statistics = x.with_dtype(_statistics_dtype(x)).with_shape((x.shape[0], groups))
    return x, statistics, statistics


@op(
    "instance_norm", inputs="X Scale Bias", outputs="Y SavedMean~ SavedVariance~",
    lod="X",
    grad=fused(
        "X", "Scale", "SavedMean", "SavedVariance", to="X Scale Bias", like={"Bias": "Scale"}, grad=DoubleGrad(),
        lod=False,
    ),
)  # fmt: skip
def instance_norm(
    x: TensorType, scale: TensorType, bias: TensorType, *, epsilon: float = 1e-5
) -> tuple[TensorType, TensorType, TensorType]:
    """``Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias``, over each channel of each sample.

    X is ``[batch, channels, ...]`` of two to five dimensions. SavedMean and SavedVariance, vectors with a number for
    each channel of each sample, are for the gradient: the mean, and one over the standard deviation.

    References
    ----------
    D. Ulyanov, A. Vedaldi and V. Lempitsky, Instance normalization, arXiv:1607.08022, 2016.
    """
    require_floating(x)
    require(2 <= x.rank <= 5, f"X must have 2 to 5 dimensions, got {x}")
    _require_epsilon(epsilon)
    _require_per_channel(x, x.shape[1], Scale=scale, Bias=bias)
    statistics = x.with_dtype(_statistics_dtype(x)).with_shape((product(x.shape[:2]),))
    return x, statistics, statistics


def _statistics_dtype(x: TensorType) -> DType:
    return DType.FP32 if x.dtype is DType.FP16 else x.dtype


def _require_per_channel(x: TensorType, channels: int, **given: TensorType | None) -> None:
    """Raise unless each of `given` holds a number for each channel, of the type of `x` or float32 beside float16."""
    for slot, parameter in given.items():
        if parameter is None:
            continue
        allowed = (x.dtype, _statistics_dtype(x))
        require(
            parameter.dtype in allowed, f"{slot} must be {' or '.join(map(str, sorted({*allowed})))}, got {parameter}"
        )
        require(
            parameter.rank == 1 and same_dim(parameter.shape[0], channels),
            f"{slot} must hold a number for each of the {channels} channels of X, got {parameter}",
        )
