"""Images with their elements moved between channels, positions and frames, padded, or scaled by channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.support.window_rules import CHANNELS_LAST, require_layout, spatial_dims
from minigraph.types import TensorType, require, require_floating, require_number, require_same_dtype, same_dim

_NO_PADDING: Any = (0, 0, 0, 0)
MODES = ("constant", "reflect", "edge")


def _require_images(x: TensorType, slot: str = "X") -> None:
    require(x.rank == 4, f"{slot} must be [batch, channels, height, width], got {x}")


def _divided(size: int, by: int, what: str) -> int:
    require(size == -1 or size % by == 0, f"the {what}, {size}, must be a multiple of {by}")
    return -1 if size == -1 else size // by


def _times(size: int, factor: int) -> int:
    return -1 if size == -1 else size * factor


def _gathered(d_out: TensorType, *, upscale_factor: int) -> TensorType:
    """The type of the input of pixel_shuffle, from that of its result."""
    batch, channels, height, width = d_out.shape
    factor = upscale_factor
    return d_out.with_shape(
        (
            batch,
            _times(channels, factor**2),
            _divided(height, factor, "height"),
            _divided(width, factor, "width"),
        )
    )


@op("pixel_shuffle", inputs="X", outputs="Out", grad=fused(to="X", infer=_gathered, linear=True, lod=False))
def pixel_shuffle(x: TensorType, *, upscale_factor: int = 1) -> TensorType:
    """Images that are `upscale_factor` times as high and wide, with as many times fewer channels, squared.

    The channels of X are in groups of ``upscale_factor ** 2``; each group is the pixels of a square in Out, row by row.

    References
    ----------
    W. Shi et al., Real-time single image and video super-resolution using an efficient sub-pixel convolutional neural
    network, CVPR 2016.
    """
    require_floating(x)
    _require_images(x)
    require(upscale_factor > 0, f"upscale_factor must be positive, got {upscale_factor}")
    batch, channels, height, width = x.shape
    channels = _divided(channels, upscale_factor**2, "number of channels")
    return x.with_shape((batch, channels, _times(height, upscale_factor), _times(width, upscale_factor)))


@op("space_to_depth", inputs="X", outputs="Out", lod="X", grad=fused("X", linear=True, lod=False))
def space_to_depth(x: TensorType, *, blocksize: int) -> TensorType:
    """Images that are `blocksize` times less high and wide, with as many times more channels, squared.

    The elements come in fluid's order, that of the reorganization in darknet: the channels of X are ``blocksize**2``
    groups, which are the places in squares of images ``blocksize`` times as high and wide; the elements of these, row
    by row, are those of Out.
    """
    require_number(x)
    _require_images(x)
    require(blocksize > 1, f"blocksize must be at least 2, got {blocksize}")
    batch, channels, height, width = x.shape
    _divided(channels, blocksize**2, "number of channels")
    sizes = _divided(height, blocksize, "height"), _divided(width, blocksize, "width")
    return x.with_shape((batch, _times(channels, blocksize**2), *sizes))


def _same(d_out: TensorType, **attrs: Any) -> TensorType:
    return d_out


@op("shuffle_channel", inputs="X", outputs="Out", grad=fused(to="X", infer=_same, linear=True, lod=False))
def shuffle_channel(x: TensorType, *, group: int = 1) -> TensorType:
    """``Out`` has the channels of X in turns: the first of each of `group` groups, then the second of each, and so on.

    References
    ----------
    X. Zhang et al., ShuffleNet, CVPR 2018.
    """
    require_floating(x)
    _require_images(x)
    require(group > 0, f"group must be positive, got {group}")
    _divided(x.shape[1], group, "number of channels")
    return x


@op("temporal_shift", inputs="X", outputs="Out", lod="X", grad=fused(to="X", infer=_same, linear=True, lod=False))
def temporal_shift(x: TensorType, *, seg_num: int, shift_ratio: float = 0.25) -> TensorType:
    """``Out`` is X with some channels moved in time: the first from the frame before, as many from the frame after.

    The batch holds films of `seg_num` frames each. `shift_ratio` of the channels move forward, as many backward, and
    zeros come in at the ends.

    References
    ----------
    J. Lin, C. Gan and S. Han, TSM: Temporal shift module for efficient video understanding, ICCV 2019.
    """
    require_floating(x)
    _require_images(x)
    require(seg_num > 0, f"seg_num must be positive, got {seg_num}")
    require(0 < shift_ratio < 0.5, f"shift_ratio must be between 0 and 0.5, got {shift_ratio:g}")
    _divided(x.shape[0], seg_num, "batch")
    return x


@op(
    "affine_channel",
    inputs="X Scale Bias",
    outputs="Out",
    lod="X",
    grad=fused("X", "Scale", like={"Bias": "Scale"}, lod=False),
)
def affine_channel(x: TensorType, scale: TensorType, bias: TensorType, *, data_layout: str = "AnyLayout") -> TensorType:
    """``Out = X * Scale + Bias``, with a number of Scale and Bias for each channel.

    The channels are dimension 1 of X, or the last one if `data_layout` is NHWC.
    """
    require_floating(x)
    require_layout(data_layout, "data_layout")
    require(x.rank >= 2, f"X must have at least 2 dimensions, got {x}")
    require_same_dtype("X, Scale and Bias", x, scale, bias)
    channels = x.shape[-1 if data_layout == CHANNELS_LAST else 1]
    for slot, given in (("Scale", scale), ("Bias", bias)):
        fits = given.rank == 1 and same_dim(given.shape[0], channels)
        require(fits, f"{slot} must hold a number for each of {channels} channels, got {given}")
    return x


@op(
    "pad2d",
    inputs="X Paddings",
    outputs="Out",
    lod="X",
    grad=fused("X", "Paddings", to="X", linear={"pad_value": 0.0}, lod=False),
)
def pad2d(
    x: TensorType,
    paddings_given: TensorType | None,
    *,
    paddings: list[int] = _NO_PADDING,
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
) -> TensorType:
    """``Out`` is the images X with `paddings` (top, bottom, left, right) around them.

    The padding holds `pad_value`, or the image mirrored at its edge, without the edge itself (``reflect``), or the
    element at the edge (``edge``). Paddings, a vector, takes the place of `paddings` at run time.
    """
    require_number(x)
    _require_images(x)
    require_layout(data_format)
    require(mode in MODES, f"mode must be constant, reflect or edge, got {mode!r}")
    shape = list(x.shape)
    dims = spatial_dims(data_format)
    if paddings_given is not None:
        require(paddings_given.rank == 1, f"Paddings must be a vector, got {paddings_given}")
        require(same_dim(paddings_given.shape[0], 4), f"Paddings must hold four numbers, got {paddings_given}")
        for dim in dims:
            shape[dim] = -1
        return x.with_shape(shape)
    check_paddings([shape[dim] for dim in dims], paddings, mode)
    for dim, before, after in zip(dims, paddings[::2], paddings[1::2], strict=True):
        shape[dim] = -1 if shape[dim] == -1 else shape[dim] + before + after
    return x.with_shape(shape)


def check_paddings(sizes: Sequence[int], paddings: Sequence[int], mode: str) -> None:
    """Raise unless images of height and width `sizes` can be padded so; -1 stands for a size that is not known."""
    require(
        len(paddings) == 4 and min(paddings) >= 0,
        f"paddings must be (top, bottom, left, right), not negative, got {list(paddings)}",
    )
    if mode == "constant":
        return
    for size, most in zip(sizes, (max(paddings[:2]), max(paddings[2:])), strict=True):
        least = most + 1 if mode == "reflect" else min(most, 1)
        require(size == -1 or size >= least, f"{size} elements cannot be padded with {most} by {mode}")


@op("pad_constant_like", inputs="X Y", outputs="Out", lod="X", grad=fused("Y", to="Y"))
def pad_constant_like(x: TensorType, y: TensorType, *, pad_value: float = 0.0) -> TensorType:
    """``Out`` is Y with `pad_value` after it in each dimension, up to the shape of X."""
    require_number(y, "Y")
    require(x.rank == y.rank, f"X and Y must have as many dimensions, got {x} and {y}")
    for i, (most, size) in enumerate(zip(x.shape, y.shape, strict=True)):
        require(-1 in (most, size) or size <= most, f"dimension {i} of Y, {size}, is longer than that of X, {most}")
    return y.with_shape(x.shape)
