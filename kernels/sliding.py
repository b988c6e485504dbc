"""Sliding windows of images and volumes as views, and their gradients, for convolutions and pooling.

Images are arrays [batch, channels, height, width], volumes have a depth before the height; `laid` has a
`minigraph.support.window_rules.Windows` for each of these dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

from minigraph.support.window_rules import Windows, is_channels_last, lay_windows


def channels_first(x, data_format) -> Any:
    """`x` as [batch, channels, height, width], or with a depth, a view."""
    return x.transpose(0, x.ndim - 1, *range(1, x.ndim - 1)) if is_channels_last(data_format) else x


def lay_on(images, filter, strides, paddings, padding_algorithm, dilations) -> tuple[Windows, ...]:
    """The windows of a filter on images with their channels first."""
    sizes = images.shape[2:], filter.shape[2:], *map(tuple, (strides, paddings))
    return _laid(*sizes, padding_algorithm, tuple(dilations))


@lru_cache(maxsize=256)
def _laid(*attrs: Any) -> tuple[Windows, ...]:
    """Keep what each call of a kernel on arrays of the same sizes asks for."""
    return lay_windows(*attrs)


def channels_restored(xp, x, data_format) -> Any:
    """The opposite of `channels_first`, a new array if the layout differs."""
    return xp.ascontiguousarray(x.transpose(0, *range(2, x.ndim), 1)) if is_channels_last(data_format) else x


def empty_images(xp, shape, dtype, data_format) -> Any:
    """A new array in the layout `data_format` for images of `shape`, [batch, channels, height, width]."""
    if is_channels_last(data_format):
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
    steps = list(zip(x.strides[2:], laid, strict=True))
    shape = (*x.shape[:2], *(along.size for along in laid), *(along.count for along in laid))
    inside, between = ([step * getattr(along, name) for step, along in steps] for name in ("dilation", "stride"))
    return xp.lib.stride_tricks.as_strided(x, shape, (*x.strides[:2], *inside, *between))


def elements(laid) -> list[tuple[Any, ...]]:
    """Index of each element of a window, row by row, in all windows of padded images."""
    return [(..., *places) for places in product(*([every(i, along) for i in range(along.size)] for along in laid))]


def every(i, along) -> slice:
    """Slice of the padded elements that are element `i` of some window."""
    first = i * along.dilation
    return slice(first, first + (along.count - 1) * along.stride + 1, along.stride)


def parts_of_images(laid, values) -> Iterator[tuple[Any, Any]]:
    """Yield the places of elements of windows in padded images, with the `values` of these elements.

    `values` are [batch, channels, window height, window width, rows of windows, columns of windows]. Along a dimension
    with only one window its elements lie side by side, and are given together.
    """
    height, width = laid
    for i, j in product(*([None] if along.count == 1 else range(along.size) for along in laid)):
        of_element = [slice(None) if k is None else k for k in (i, j)]
        of_window = [0 if k is None else slice(None) for k in (i, j)]
        found = values[(..., *of_element, *of_window)]
        if i is not None and j is None:  # the elements of a row of the window stand before the rows of windows
            found = found.swapaxes(2, 3)
        yield (..., _places(i, height), _places(j, width)), found


def _places(i, along) -> slice:
    return every(i, along) if i is not None else slice(0, (along.size - 1) * along.dilation + 1, along.dilation)


def add_at(xp, parts, images, laid) -> Any:
    """An array like `images` that adds up `parts`, pairs of an index from `elements` and the values to add there."""
    total = xp.zeros(padded_shape(images.shape, laid), images.dtype)
    for index, part in parts:
        total[index] += part
    # Without the padding a copy, because results are contiguous.
    return xp.ascontiguousarray(total[inside(laid)])
