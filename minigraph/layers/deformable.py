"""Convolutions whose windows take elements at places that are computed."""

from __future__ import annotations

from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer
from minigraph.layers.image import Size, filter_initializer, filter_shape, pair
from minigraph.types import require

__all__ = ["deformable_conv"]


@layer
def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: Size,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """``conv2d`` whose windows take each element at a place moved by `offset`, by bilinear interpolation.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
    offset : Variable, float[batch, 2 * deformable_groups * elements, rows, columns]
        For each element of a window how far its place moves down and to the right, at each window.
    mask : Variable or None, float[batch, deformable_groups * elements, rows, columns]
        Factors of the elements; None if not `modulated`.
    num_filters, filter_size, stride, padding, dilation, groups, param_attr, bias_attr
        As in `conv2d`.
    deformable_groups : int, optional
        Parts of the channels that have offsets of their own. Default: 1.
    im2col_step : int, optional
        Without effect.
    modulated : bool
        Whether elements have factors.

    Returns
    -------
    Variable, float[batch, num_filters, rows, columns]

    References
    ----------
    X. Zhu et al., Deformable ConvNets v2: More deformable, better results, CVPR 2019.
    """
    what = "deformable_conv"
    x, helper = check_floating(input, f"{what}: input"), LayerHelper(what, name)
    require(
        modulated == (mask is not None),
        f"{what}: mask is {'missing' if mask is None else 'given'}, with modulated={modulated}",
        hint="Give mask with modulated=True, None with modulated=False.",
    )
    require(x.shape is not None and len(x.shape) == 4 and x.shape[1] > 0, f"{what}: {x} must hold images with channels")
    assert x.shape is not None
    size = pair(filter_size, f"{what}: filter_size")
    shape, start = filter_shape(x.shape[1], num_filters, size, groups, what), filter_initializer(x.shape[1], size)
    filters = helper.required(param_attr, shape, x.dtype, what, default_initializer=start)
    bias = helper.parameter(bias_attr, [num_filters], x.dtype, is_bias=True)
    result = helper.emit(
        what if modulated else "deformable_conv_v1",
        Input=x, Offset=check_floating(offset, f"{what}: offset"), Mask=mask, Filter=filters,
        strides=pair(stride, f"{what}: stride"), paddings=pair(padding, f"{what}: padding"),
        dilations=pair(dilation, f"{what}: dilation"), groups=groups, deformable_groups=deformable_groups,
        im2col_step=im2col_step,
    )  # fmt: skip
    return helper.plus(result, bias, 1)
