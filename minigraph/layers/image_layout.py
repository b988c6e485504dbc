"""Layers that move the elements of images between channels, positions and frames, pad them, or scale channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, constant, emit, layer
from minigraph.ops.image_layout import MODES
from minigraph.support.arguments import as_float
from minigraph.types import require

__all__ = [
    "affine_channel", "pad2d", "pad_constant_like", "pixel_shuffle", "shuffle_channel", "space_to_depth",
    "temporal_shift",
]  # fmt: skip


@layer
def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Images that are `upscale_factor` times as high and wide, with as many times fewer channels, squared.

    Parameters
    ----------
    x : Variable, float[batch, channels, height, width]
    upscale_factor : int

    Returns
    -------
    Variable, float[batch, channels / upscale_factor**2, height * upscale_factor, width * upscale_factor]

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.dygraph.guard():
    ...     x = fluid.dygraph.to_variable(np.arange(4, dtype="float32").reshape(1, 4, 1, 1))
    ...     fluid.layers.pixel_shuffle(x, 2).numpy()[0, 0]
    array([[0., 1.],
           [2., 3.]], dtype=float32)
    """
    return emit("pixel_shuffle", X=check_floating(x, "pixel_shuffle: x"), upscale_factor=upscale_factor)


@layer
def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Images that are `blocksize` times less high and wide, with as many times more channels, squared.

    The elements come in fluid's order, that of the reorganization in darknet.
    """
    return emit("space_to_depth", name, X=check_variable(x, "space_to_depth: x"), blocksize=blocksize)


@layer
def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """The channels of `x` in turns: the first of each of `group` groups, then the second of each, and so on."""
    return emit("shuffle_channel", name, X=check_floating(x, "shuffle_channel: x"), group=group)


@layer
def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Variable:
    """`x` with some channels from the frame before and as many from the frame after.

    Parameters
    ----------
    x : Variable, float[films * seg_num, channels, height, width]
    seg_num : int
        Frames of each film.
    shift_ratio : float
        Share of the channels that moves forward in time, and that moves backward; below 0.5.
    """
    x = check_floating(x, "temporal_shift: x")
    return emit("temporal_shift", name, X=x, seg_num=seg_num, shift_ratio=shift_ratio)


@layer
def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """``act(x * scale + bias)``, with a number of `scale` and `bias`, both needed, for each channel."""
    helper = LayerHelper("affine_channel", name)
    given = {"Scale": check_variable(scale, "affine_channel: scale"), "Bias": check_variable(bias, "bias")}
    x = check_floating(x, "affine_channel: x")
    return helper.activation(helper.emit("affine_channel", X=x, **given, data_layout=data_layout), act)


@layer
def pad2d(
    input: Variable,
    paddings: Sequence[int] | Variable = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Images with rows and columns around them.

    Parameters
    ----------
    input : Variable, number[batch, channels, height, width]
        Or with the channels last if `data_format` is NHWC.
    paddings : sequence of int or Variable, int32[4]
        Top, bottom, left, right.
    mode : {'constant', 'reflect', 'edge'}
        Whether the padding holds `pad_value`, the image mirrored at its edge, or the element at the edge.
    pad_value : float

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.dygraph.guard():
    ...     x = fluid.dygraph.to_variable(np.arange(3, dtype="float32").reshape(1, 1, 1, 3))
    ...     fluid.layers.pad2d(x, [0, 0, 2, 1], "reflect").numpy()
    array([[[[2., 1., 0., 1., 2., 1.]]]], dtype=float32)
    """
    require(mode in MODES, f"pad2d: mode must be constant, reflect or edge, got {mode!r}")
    attrs: dict[str, Any] = {"mode": mode, "pad_value": as_float(pad_value), "data_format": data_format}
    if isinstance(paddings, Variable):
        return emit("pad2d", name, X=input, Paddings=constant(paddings), **attrs)
    return emit("pad2d", name, X=input, paddings=list(paddings), **attrs)


@layer
def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Variable:
    """`y` with `pad_value` after it in each dimension, up to the shape of `x`."""
    return emit("pad_constant_like", name, X=x, Y=y, pad_value=as_float(pad_value))
