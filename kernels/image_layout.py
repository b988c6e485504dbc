"""Images with their elements moved between channels, positions and frames, padded, or scaled by channel."""

from __future__ import annotations

from typing import Any

from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.tensor import in_type
from minigraph.support.window_rules import CHANNELS_LAST, spatial_dims


@kernel("pixel_shuffle")
def pixel_shuffle(xp, x, *, upscale_factor):
    batch, channels, height, width = x.shape
    factor = upscale_factor
    squares = x.reshape(batch, channels // factor**2, factor, factor, height, width)
    moved = xp.array(squares.transpose(0, 1, 4, 2, 5, 3), order="C")
    return moved.reshape(batch, channels // factor**2, height * factor, width * factor)


@kernel("pixel_shuffle_grad")
def pixel_shuffle_grad(xp, d_out, *, upscale_factor):
    batch, channels, height, width = d_out.shape
    factor = upscale_factor
    squares = d_out.reshape(batch, channels, height // factor, factor, width // factor, factor)
    moved = xp.array(squares.transpose(0, 1, 3, 5, 2, 4), order="C")
    return moved.reshape(batch, channels * factor**2, height // factor, width // factor)


@kernel("space_to_depth")
def space_to_depth(xp, x, *, blocksize):
    batch, channels, height, width = x.shape
    places = x.reshape(batch, blocksize, blocksize, channels // blocksize**2, height, width)
    moved = xp.array(places.transpose(0, 3, 4, 1, 5, 2), order="C")
    return moved.reshape(batch, channels * blocksize**2, height // blocksize, width // blocksize)


@kernel("space_to_depth_grad")
def space_to_depth_grad(xp, x, d_out, *, blocksize):
    batch, channels, height, width = x.shape
    squares = d_out.reshape(batch, channels // blocksize**2, height, blocksize, width, blocksize)
    return xp.array(squares.transpose(0, 3, 5, 1, 2, 4), order="C").reshape(x.shape)


@kernel("shuffle_channel")
def shuffle_channel(xp, x, *, group):
    return _in_turns(xp, x, group)


@kernel("shuffle_channel_grad")
def shuffle_channel_grad(xp, d_out, *, group):
    return _in_turns(xp, d_out, d_out.shape[1] // group)


def _in_turns(xp, x, groups) -> Any:
    """The channels of `groups` groups, one of each after the other."""
    batch, channels, *sizes = x.shape
    moved = xp.swapaxes(x.reshape(batch, groups, channels // groups, *sizes), 1, 2)
    return xp.array(moved, order="C").reshape(x.shape)


@kernel("temporal_shift")
def temporal_shift(xp, x, *, seg_num, shift_ratio, out=None):
    return _shifted(xp, x, seg_num, shift_ratio, 1, out)


@kernel("temporal_shift_grad")
def temporal_shift_grad(xp, d_out, *, seg_num, shift_ratio, out=None):
    return _shifted(xp, d_out, seg_num, shift_ratio, -1, out)


def _shifted(xp, x, frames, ratio, step, out) -> Any:
    """The first channels moved by `step` frames, as many of the next ones by as many the other way."""
    moved = xp.empty_like(x) if out is None else out
    source, target = (array.reshape(-1, frames, *x.shape[1:]) for array in (x, moved))
    first, second = int(x.shape[1] * ratio), int(x.shape[1] * 2 * ratio)
    later, earlier = (slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))
    ends = (0, -1) if step > 0 else (-1, 0)
    for channels, (to, source_frames), end in (
        (slice(0, first), later if step > 0 else earlier, ends[0]),
        (slice(first, second), earlier if step > 0 else later, ends[1]),
    ):
        target[:, to, channels] = source[:, source_frames, channels]
        target[:, end, channels] = 0
    target[:, :, second:] = source[:, :, second:]
    return moved


@kernel("affine_channel")
def affine_channel(xp, x, scale, bias, *, data_layout, out=None):
    over = _over_channels(x, data_layout)
    result = xp.multiply(x, scale.reshape(over), out=out)
    return xp.add(result, bias.reshape(over), out=result)


@kernel("affine_channel_grad")
def affine_channel_grad(xp, x, scale, d_out, *, data_layout, wanted):
    over = _over_channels(x, data_layout)
    axes = tuple(i for i, size in enumerate(over) if size == 1 and i != _channel_axis(x, data_layout))
    d_x = d_out * scale.reshape(over) if wanted[0] else None
    d_scale = add_over(xp, d_out * x, axes) if wanted[1] else None
    d_bias = add_over(xp, d_out, axes) if wanted[2] else None
    return d_x, d_scale, d_bias


def _channel_axis(x, layout) -> int:
    return x.ndim - 1 if layout == CHANNELS_LAST else 1


def _over_channels(x, layout) -> list[int]:
    """The shape of a vector over the channels that broadcasts to `x`."""
    return [-1 if i == _channel_axis(x, layout) else 1 for i in range(x.ndim)]


# Padding


@kernel("pad2d")
def pad2d(xp, x, given, *, paddings, mode, pad_value, data_format):
    numbers = _numbers(given, paddings)
    inside, shape = _inside(x.shape, numbers, data_format)
    padded = xp.full(shape, in_type(x.dtype, pad_value if mode == "constant" else 0))
    padded[inside] = x
    if mode != "constant":
        for dim, before, after in _along(numbers, data_format):  # the corners are padded twice
            _pad_from_inside(xp.moveaxis(padded, dim, 0), before, after, mode)
    return padded


@kernel("pad2d_grad")
def pad2d_grad(xp, x, given, d_out, *, paddings, mode, data_format):
    numbers = _numbers(given, paddings)
    inside, _ = _inside(x.shape, numbers, data_format)
    if mode != "constant":
        d_out = d_out.copy()
        for dim, before, after in reversed(_along(numbers, data_format)):
            _add_to_inside(xp.moveaxis(d_out, dim, 0), before, after, mode)
    return d_out[inside].copy()


def _numbers(given, paddings) -> list[int]:
    """Top, bottom, left and right."""
    return list(paddings) if given is None else [int(n) for n in given.tolist()]


def _along(numbers, data_format) -> list[tuple[int, int, int]]:
    """Height and width, each with the padding before and after it."""
    return list(zip(spatial_dims(data_format), numbers[::2], numbers[1::2], strict=True))


def _inside(shape, numbers, data_format) -> tuple[tuple[slice, ...], list[int]]:
    """The place of the image in the padded one, and the shape of that."""
    places, padded = [slice(None)] * 4, list(shape)
    for dim, before, after in _along(numbers, data_format):
        places[dim] = slice(before, before + shape[dim])
        padded[dim] += before + after
    return tuple(places), padded


def _pad_from_inside(rows, before, after, mode) -> None:
    """Write the padding of `rows`, the first and the last ones, from what is between."""
    end = len(rows) - after
    if mode == "edge":
        rows[:before], rows[end:] = rows[before : before + 1], rows[end - 1 : end]
    else:
        rows[:before] = rows[before + 1 : 2 * before + 1][::-1]
        rows[end:] = rows[end - after - 1 : end - 1][::-1]


def _add_to_inside(rows, before, after, mode) -> None:
    """Add gradients of the padding to those of the rows that it was written from."""
    end = len(rows) - after
    if mode == "edge":
        rows[before : before + 1] += rows[:before].sum(axis=0, keepdims=True)
        rows[end - 1 : end] += rows[end:].sum(axis=0, keepdims=True)
    else:
        rows[before + 1 : 2 * before + 1] += rows[:before][::-1]
        rows[end - after - 1 : end - 1] += rows[end:][::-1]


@kernel("pad_constant_like")
def pad_constant_like(xp, x, y, *, pad_value):
    padded = xp.full(x.shape, in_type(y.dtype, pad_value))
    padded[tuple(map(slice, y.shape))] = y
    return padded


@kernel("pad_constant_like_grad")
def pad_constant_like_grad(xp, y, d_out):
    return d_out[tuple(map(slice, y.shape))].copy()
