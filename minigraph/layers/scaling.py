"""Layers that divide tensors by norms of their own elements."""

from __future__ import annotations

from minigraph.errors import WrongTypeError
from minigraph.initializer import Normal
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer
from minigraph.param_attr import ParamAttr
from minigraph.types import normalize_axis, product

__all__ = ["lrn", "spectral_norm"]


def singular_sizes(shape: tuple[int, ...] | list[int], dim: int) -> tuple[int, int]:
    """Lengths of the left and the right singular vector of a weight as a matrix with dimension `dim` as rows."""
    axis = normalize_axis(dim, len(shape), "dim")
    return shape[axis], product(size for i, size in enumerate(shape) if i != axis)


@layer
def spectral_norm(
    weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Variable:
    """`weight` divided by about its largest singular value as a matrix with dimension `dim` as rows.

    The singular vectors start normal and are improved by `power_iters` power iterations for each run.

    Parameters
    ----------
    weight : Variable, float of 2 to 5 dimensions
    eps : float
        Added to the norms that the iterations divide by.

    References
    ----------
    T. Miyato et al., Spectral normalization for generative adversarial networks, ICLR 2018.
    """
    helper = LayerHelper("spectral_norm", name)
    check_floating(weight, "spectral_norm: weight")
    assert weight.shape is not None
    vectors = []
    for size in singular_sizes(weight.shape, dim):
        start = Normal(0.0, 1.0)
        vectors.append(helper.required(ParamAttr(), [size], weight.dtype, "spectral_norm", default_initializer=start))
        vectors[-1].stop_gradient = True
    u, v = vectors
    out = helper.create_variable(dtype=weight.dtype)
    return helper.emit("spectral_norm", into=out, Weight=weight, U=u, V=v, dim=dim, power_iters=power_iters, eps=eps)


@layer
def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Local response normalization: ``input / (k + alpha * sum of squares of n channels around) ** beta``.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
        With the channels last if `data_format` is NHWC.

    References
    ----------
    A. Krizhevsky, I. Sutskever and G. Hinton, ImageNet classification with deep convolutional neural networks, NIPS
    2012.
    """
    x = check_floating(input, "lrn: input")
    if data_format not in ("NCHW", "NHWC"):
        raise WrongTypeError(f"lrn: data_format must be NCHW or NHWC, got {data_format!r:.60}")
    helper = LayerHelper("lrn", name)
    around, out = helper.temporary(stop_gradient=True), helper.temporary()  # in fluid's order
    attrs = {"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format}
    helper.append("lrn", {"X": x}, {"Out": out, "MidOut": around}, attrs)
    return out
