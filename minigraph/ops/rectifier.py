"""Activation functions with thresholds, and others made of the common ones."""

from __future__ import annotations

from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import DoubleGrad, fused
from minigraph.ops.activation import floating
from minigraph.ops.tensor import require_one_element
from minigraph.types import (
    TensorType,
    normalize_axis,
    product,
    require,
    require_same_dtype,
    same_dim,
)

SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def _tells_the_sign(op: Any) -> None:
    """The gradient reads Out as in fluid, which tells the sign of X only where `alpha` is not negative."""
    alpha = op.attr("alpha")
    require(alpha >= 0, f"alpha must not be negative where a gradient is taken, got {alpha:g}")


@op("leaky_relu", inputs="X", outputs="Out", lod="X", grad=fused("Out", grad=DoubleGrad(), check=_tells_the_sign))
def leaky_relu(x: TensorType, *, alpha: float = 0.02) -> TensorType:
    """Leaky rectifier: X where it is positive, else ``alpha * X``. The gradient at 0 is `alpha`.

    Notes
    -----
    For `alpha` above 1 fluid gives the larger of X and ``alpha * X`` instead, and for a negative one a wrong gradient;
    here that is an error.
    """
    return floating(x)


@op("relu6", inputs="X", outputs="Out", lod="X", grad=fused("Out"))
def relu6(x: TensorType, *, threshold: float = 6.0) -> TensorType:
    """``Out = min(max(X, 0), threshold)``; the gradient is 0 at and beyond both ends."""
    return floating(x)


@op("hard_sigmoid", inputs="X", outputs="Out", lod="X", grad=fused("Out"))
def hard_sigmoid(x: TensorType, *, slope: float = 0.2, offset: float = 0.5) -> TensorType:
    """``Out = min(max(slope * X + offset, 0), 1)``; the gradient is 0 at and beyond both ends."""
    return floating(x)


@op("hard_swish", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def hard_swish(x: TensorType, *, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0) -> TensorType:
    """``Out = X * min(max(X + offset, 0), threshold) / scale``.

    Notes
    -----
    Fluid has the gradient 1 beyond the threshold even where ``threshold / scale`` is another number.

    References
    ----------
    A. Howard et al., Searching for MobileNetV3, ICCV 2019.
    """
    floating(x)
    require(scale != 0, "scale must not be 0")
    return x


@op("prelu", inputs="X Alpha", outputs="Out", lod="X", grad=fused("X", "Alpha", lod=False))
def prelu(x: TensorType, alpha: TensorType, *, mode: str = "all") -> TensorType:
    """Rectifier with learned slopes: X where it is positive, else ``Alpha * X``.

    Alpha holds one number (`mode` all), one for each index of dimension 1 (channel), or one for each element of a
    sample, in the shape of X with 1 in front (element).

    References
    ----------
    K. He, X. Zhang, S. Ren and J. Sun, Delving deep into rectifiers, ICCV 2015.
    """
    floating(x)
    require_same_dtype("X and Alpha", x, alpha)
    require(mode in ("all", "channel", "element"), f"mode must be all, channel or element, got {mode!r}")
    if mode == "all":
        require_one_element(alpha, "Alpha")
    elif mode == "channel":
        require(x.rank >= 2, f"X must have at least 2 dimensions, samples and channels, got {x}")
        fits = same_dim(product(alpha.shape), x.shape[1])
        require(fits, f"Alpha must hold a number for each of the {x.shape[1]} channels of X, got {alpha}")
    else:
        expected = (1, *x.shape[1:])
        fits = alpha.rank == x.rank and all(map(same_dim, alpha.shape, expected))
        require(fits, f"Alpha must have shape {list(expected)}, got {alpha}")
    return x


@op("brelu", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def brelu(x: TensorType, *, t_min: float = 0.0, t_max: float = 24.0) -> TensorType:
    """``Out = min(max(X, t_min), t_max)``; the gradient is 0 at and beyond both ends."""
    floating(x)
    require(t_min < t_max, f"t_min must be less than t_max, got {t_min:g} and {t_max:g}")
    return x


@op("soft_relu", inputs="X", outputs="Out", lod="X", grad=fused("Out"))
def soft_relu(x: TensorType, *, threshold: float = 40.0) -> TensorType:
    """``Out = log(1 + exp(min(max(X, -threshold), threshold)))``; the gradient is 0 at and beyond both ends.

    Notes
    -----
    Fluid's gradient below ``-threshold`` is ``1 / (1 + exp(threshold))``.
    """
    floating(x)
    require(threshold > 0, f"threshold must be positive, got {threshold:g}")
    return x


@op("thresholded_relu", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def thresholded_relu(x: TensorType, *, threshold: float = 1.0) -> TensorType:
    """X where it is above `threshold`, else 0."""
    return floating(x)


@op("hard_shrink", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def hard_shrink(x: TensorType, *, threshold: float = 0.5) -> TensorType:
    """X where it is above `threshold` or below ``-threshold``, else 0."""
    return floating(x)


@op("softshrink", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def softshrink(x: TensorType, *, lambda_: float = 0.5) -> TensorType:
    """X moved toward 0 by `lambda`, and 0 where it is no farther from 0 than that."""
    floating(x)
    require(lambda_ >= 0, f"lambda must not be negative, got {lambda_:g}")
    return x


@op("tanh_shrink", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def tanh_shrink(x: TensorType) -> TensorType:
    """``Out = X - tanh(X)``."""
    return floating(x)


@op("stanh", inputs="X", outputs="Out", lod="X", grad=fused("X"))
def stanh(x: TensorType, *, scale_a: float = 0.67, scale_b: float = 1.7159) -> TensorType:
    """``Out = scale_b * tanh(scale_a * X)``."""
    return floating(x)


@op("selu", inputs="X", outputs="Out", lod="X", grad=fused("Out", lod=False))
def selu(x: TensorType, *, scale: float = SELU_SCALE, alpha: float = SELU_ALPHA) -> TensorType:
    """``Out = scale * X`` where X is positive, else ``scale * alpha * (exp(X) - 1)``.

    References
    ----------
    G. Klambauer, T. Unterthiner, A. Mayr and S. Hochreiter, Self-normalizing neural networks, NIPS 2017.
    """
    floating(x)
    require(scale > 0, f"scale must be positive, got {scale:g}")
    require(alpha >= 0, f"alpha must not be negative, got {alpha:g}")
    return x


@op("mish", inputs="X", outputs="Out", lod="X", grad=fused("X", lod=False))
def mish(x: TensorType, *, threshold: float = 20.0) -> TensorType:
    """``Out = X * tanh(log(1 + exp(X)))``; the logarithm is X above `threshold` and ``exp(X)`` below ``-threshold``.

    References
    ----------
    D. Misra, Mish: a self regularized non-monotonic activation function, BMVC 2020.
    """
    return floating(x)


@op("maxout", inputs="X", outputs="Out", grad=fused("X", "Out", lod=False))
def maxout(x: TensorType, *, groups: int, axis: int = 1) -> TensorType:
    """``Out[c]`` is the largest of ``X[c * groups]`` to ``X[(c + 1) * groups - 1]`` along `axis`.

    The gradient goes to the first that is the largest.

    References
    ----------
    I. Goodfellow et al., Maxout networks, ICML 2013.
    """
    floating(x)
    at = normalize_axis(axis, x.rank)
    require(groups >= 1, f"groups must be at least 1, got {groups}")
    channels = x.shape[at]
    require(channels == -1 or channels % groups == 0, f"{channels} channels cannot be split into groups of {groups}")
    return x.with_shape((*x.shape[:at], channels // groups if channels != -1 else -1, *x.shape[at + 1 :]))
