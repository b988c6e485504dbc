"""Tensors divided by norms of their own elements: of a whole matrix, or of neighbouring channels."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.support.window_rules import require_layout
from minigraph.types import (
    TensorType,
    normalize_axis,
    product,
    require,
    require_floating,
    require_same_dtype,
    same_dim,
)


@op(
    "spectral_norm", inputs="Weight U V", outputs="Out", lod="Weight",
    grad=fused("Weight", "U", "V", to="Weight", lod=False)
)  # fmt: skip
def spectral_norm(
    weight: TensorType, u: TensorType, v: TensorType, *, dim: int = 0, power_iters: int = 1, eps: float = 1e-12
) -> TensorType:
    """``Out = Weight / sigma``, where sigma is about the largest singular value of Weight as a matrix.

    The rows of the matrix are dimension `dim` of Weight. U and V, vectors, are improved by `power_iters` power
    iterations, ``V = W' U / (|W' U| + eps)`` and ``U = W V / (|W V| + eps)``, and then ``sigma = U' W V``.

    Notes
    -----
    The gradient takes U and V as constant, and no run replaces them. Fluid's gradient, ``Out@GRAD * (1 - U V' *
    sum(Weight / sigma)) / sigma``, is not that of any function.

    References
    ----------
    T. Miyato et al., Spectral normalization for generative adversarial networks, ICLR 2018.
    """
    require_floating(weight, "Weight")
    require_same_dtype("Weight, U and V", weight, u, v)
    require(2 <= weight.rank <= 5, f"Weight must have 2 to 5 dimensions, got {weight}")
    require(power_iters >= 0, f"power_iters must not be negative, got {power_iters}")
    axis = normalize_axis(dim, weight.rank, "dim")
    columns = product(size for i, size in enumerate(weight.shape) if i != axis)
    for slot, vector, size in (("U", u, weight.shape[axis]), ("V", v, columns)):
        require(vector.rank == 1 and same_dim(vector.shape[0], size), f"{slot} must hold {size} numbers, got {vector}")
    return weight


@op("lrn", inputs="X", outputs="Out MidOut", lod={"Out": "X"}, grad=fused("X", "Out", "MidOut", lod=False))
def lrn(
    x: TensorType,
    *,
    n: int = 5,
    k: float = 2.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    data_format: str = "AnyLayout",
) -> tuple[TensorType, TensorType]:
    """``Out = X / MidOut ** beta``, with ``MidOut = k + alpha * (sum of X ** 2 over n channels around)``.

    X is [batch, channels, height, width], or with the channels last if `data_format` is NHWC. Of `n` channels
    ``(n - 1) // 2`` stand before.

    References
    ----------
    A. Krizhevsky, I. Sutskever and G. Hinton, ImageNet classification with deep convolutional neural networks, NIPS
    2012.
    """
    require_floating(x)
    require(x.rank == 4, f"X must be [batch, channels, height, width], got {x}")
    require_layout(data_format)
    require(n > 0, f"n must be positive, got {n}")
    return x, x
