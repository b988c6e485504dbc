"""Operators that are linear in each of two inputs."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused, of_bilinear
from minigraph.types import TensorType, require, require_floating, require_same_dtype, same_dim


@op(
    "bilinear_tensor_product", inputs="X Y Weight Bias", outputs="Out", lod="X",
    grad=fused(
        "X", "Y", "Weight", to="X Y Weight Bias",
        like={"Bias": ("Weight", lambda weight: weight.with_shape((1, weight.shape[0])))}, lod=False,
    ),
)  # fmt: skip
def bilinear_tensor_product(x: TensorType, y: TensorType, weight: TensorType, bias: TensorType | None) -> TensorType:
    """``Out[:, i] = sum(X @ Weight[i] * Y, axis=1) + Bias[:, i]``.

    X is ``[batch, m]``, Y ``[batch, n]``, Weight ``[size, m, n]``, Bias ``[1, size]`` and Out ``[batch, size]``.
    """
    require_floating(x)
    require_same_dtype("X, Y, Weight and Bias", x, y, weight, *([bias] if bias else []))
    require(x.rank == y.rank == 2 and weight.rank == 3, f"X and Y must be matrices and Weight a list of them, got {x}")
    fits = same_dim(x.shape[1], weight.shape[1]) and same_dim(y.shape[1], weight.shape[2])
    expected = [weight.shape[0], x.shape[1], y.shape[1]]
    require(fits, f"Weight must have shape {expected}, got {list(weight.shape)}")
    require(same_dim(x.shape[0], y.shape[0]), f"X has {x.shape[0]} rows but Y has {y.shape[0]}")
    size = weight.shape[0]
    if bias is not None:
        fits = bias.rank == 2 and same_dim(bias.shape[0], 1) and same_dim(bias.shape[1], size)
        require(fits, f"Bias must have shape {[1, size]}, got {list(bias.shape)}")
    return x.with_shape((max(x.shape[0], y.shape[0]), size))


@op("fsp", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y", grad=of_bilinear("X", "Y", "Out"), lod=False))
def fsp(x: TensorType, y: TensorType) -> TensorType:
    """The matrix of the mean products of each channel of X with each of Y, over all places of images of one size.

    References
    ----------
    J. Yim et al., A gift from knowledge distillation, CVPR 2017.
    """
    require_floating(x)
    require_same_dtype("X and Y", x, y)
    require(x.rank == y.rank == 4, f"X and Y must be [batch, channels, height, width], got {x} and {y}")
    fits = all(same_dim(x.shape[i], y.shape[i]) for i in (0, 2, 3))
    require(fits, f"X and Y must be images of one size, got {x} and {y}")
    return x.with_shape((max(x.shape[0], y.shape[0]), x.shape[1], y.shape[1]))


@op(
    "row_conv", inputs="X Filter", outputs="Out", lod="X", lengths="X?",
    grad=fused("X", "Filter", grad=of_bilinear("X", "Filter", "Out"), lod=False),
)  # fmt: skip
def row_conv(x: TensorType, filter: TensorType) -> TensorType:
    """Lookahead convolution: ``Out[:, t] = sum(X[:, t + i] * Filter[i])`` over the rows of Filter, up to the last step.

    X is ``[batch, steps, features]``, or ``[rows, features]`` with the lengths of sequences; Filter
    ``[1 + steps ahead, features]``.

    References
    ----------
    D. Amodei et al., Deep Speech 2: End-to-end speech recognition in English and Mandarin, ICML 2016.
    """
    require_floating(x)
    require_same_dtype("X and Filter", x, filter)
    require(x.rank in (2, 3), f"X must be [batch, steps, features] or [rows, features], got {x}")
    fits = filter.rank == 2 and same_dim(filter.shape[1], x.shape[-1])
    require(fits, f"Filter must have shape [..., {x.shape[-1]}], got {list(filter.shape)}")
    return x
