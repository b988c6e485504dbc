"""Sliding windows of images as views, and their gradients, for convolutions and pooling.

Images are arrays [batch, channels, height, width]; `laid` is a pair of `minigraph.support.window_rules.Windows`,
along height and along width.
"""

from __future__ import annotations

from typing import Any

from minigraph.support.window_rules import CHANNELS_LAST


def channels_first(x, data_format) -> Any:
    """`x` as [batch, channels, height, width], a view."""
    return x.transpose(0, 3, 1, 2) if data_format == CHANNELS_LAST else x


def channels_restored(xp, x, data_format) -> Any:
    """An array [batch, channels, height, width] in the layout `data_format`."""
    return xp.ascontiguousarray(x.transpose(0, 2, 3, 1)) if data_format == CHANNELS_LAST else x


def empty_images(xp, shape, dtype, data_format) -> Any:
    """A new array in the layout `data_format` for images of `shape`, [batch, channels, height, width]."""
    if data_format == CHANNELS_LAST:
        shape = (shape[0], *shape[2:], shape[1])
    return xp.empty(shape, dtype)


def padded_shape(shape, laid) -> tuple[int, ...]:
    """The shape of images of `shape` with enough padding for every window."""
    return (*shape[:2], *(max(along.reach, along.before + along.length) for along in laid))


def inside(laid) -> tuple[Any, ...]:
    """Index of the images in padded images."""
    return (..., *(slice(along.before, along.before + along.length) for along in laid))


def padded(xp, x, laid, fill) -> Any:
    """`x` with a border of `fill` for windows that reach beyond it; `x` itself if none does."""
    shape = padded_shape(x.shape, laid)
    if shape == x.shape:
        return x
    result = xp.full(shape, fill, x.dtype)
    result[inside(laid)] = x
    return result


def windows_of(xp, x, laid) -> Any:
    """A view [batch, channels, window height, window width, rows of windows, columns of windows] of padded images."""
    height, width = laid
    batch, channels, row, column = x.strides
    shape = (*x.shape[:2], height.size, width.size, height.count, width.count)
    strides = (
        batch, channels, row * height.dilation, column * width.dilation, row * height.stride, column * width.stride,
    )  # fmt: skip
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def elements(laid) -> list[tuple[Any, ...]]:
    """Index of each element of a window, row by row, in all windows of padded images."""
    height, width = laid
    return [
        (..., every(i, height), every(j, width)) for i in range(height.size) for j in range(width.size)
    ]  # fmt: skip


def every(i, along) -> slice:
    """Slice of the padded elements that are element `i` of some window."""
    first = i * along.dilation
    return slice(first, first + (along.count - 1) * along.stride + 1, along.stride)


def add_at(xp, parts, images, laid) -> Any:
    """An array like `images` that adds up `parts`, pairs of an index from `elements` and the values to add there."""
    total = xp.zeros(padded_shape(images.shape, laid), images.dtype)
    for index, part in parts:
        total[index] += part
    # Without the padding a copy, because results are contiguous.
    return xp.ascontiguousarray(total[inside(laid)])
