"""Layers that are linear in each of two inputs."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer

__all__ = ["bilinear_tensor_product", "fsp_matrix", "row_conv"]


@layer
def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """``x @ weight[i] @ y'`` for each of `size` learned matrices, plus a bias.

    Parameters
    ----------
    x : Variable, float[batch, m]
    y : Variable, float[batch, n]

    Returns
    -------
    Variable, float[batch, size]
    """
    helper, what = LayerHelper("bilinear_tensor_product", name), "bilinear_tensor_product"
    check_floating(x, f"{what}: x")
    check_floating(y, f"{what}: y")
    assert x.shape is not None and y.shape is not None
    if len(x.shape) != 2 or len(y.shape) != 2:
        raise ProgramError(f"{what}: x and y must be [batch, features], got {x} and {y}")
    weight = helper.required(param_attr, [size, x.shape[1], y.shape[1]], x.dtype, what)
    bias = helper.parameter(bias_attr, [1, size], x.dtype, is_bias=True)
    return helper.activation(helper.emit(what, X=x, Y=y, Weight=weight, Bias=bias), act)


@layer
def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """The mean products of each channel of `x` with each of `y`, over all places of images of one size.

    Parameters
    ----------
    x, y : Variable, float[batch, channels, height, width]

    Returns
    -------
    Variable, float[batch, channels of x, channels of y]

    References
    ----------
    J. Yim et al., A gift from knowledge distillation, CVPR 2017.
    """
    x, y = check_floating(x, "fsp_matrix: x"), check_floating(y, "fsp_matrix: y")
    return LayerHelper("fsp_matrix").emit("fsp", X=x, Y=y)


@layer
def row_conv(input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None) -> Variable:
    """Lookahead convolution: each step is a learned sum, feature by feature, of itself and steps that follow.

    Parameters
    ----------
    input : Variable, float[batch, steps, features], or float[rows, features] with lengths
    future_context_size : int
        Number of steps ahead.

    References
    ----------
    D. Amodei et al., Deep Speech 2: End-to-end speech recognition in English and Mandarin, ICML 2016.
    """
    helper = LayerHelper("row_conv")
    check_floating(input, "row_conv: input")
    assert input.shape is not None
    weights = helper.required(param_attr, [future_context_size + 1, input.shape[-1]], input.dtype, "row_conv")
    return helper.activation(helper.emit("row_conv", X=input, Filter=weights), act)
