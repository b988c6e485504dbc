"""Pooling of images and volumes: element by element of the window over all windows.

Where windows differ in size: window by window.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.buffers import Scratch, deliver, unshared
from minigraph.kernels.indexing import combine_rows
from minigraph.kernels.registry import kernel
from minigraph.kernels.sliding import (
    add_at,
    channels_first,
    channels_restored,
    elements,
    empty_images,
    every,
    inside,
    padded,
    padded_shape,
)
from minigraph.kernels.sums import add_over
from minigraph.support.window_rules import lay_square, lay_windows


@kernel("pool2d")
def pool2d(
    xp, x, *, pooling_type, ksize, global_pooling, strides, paddings, exclusive, adaptive, ceil_mode, data_format,
    padding_algorithm, out=None,
):  # fmt: skip
    images = channels_first(x, data_format)
    laid = _laid(
        images.shape[2:], pooling_type, ksize, global_pooling, strides, paddings, adaptive, ceil_mode,
        padding_algorithm,
    )  # fmt: skip
    if laid is not None and pooling_type == "max":
        result = unshared(xp, out, x)
        if result is None:
            counts = (along.count for along in laid)
            result = empty_images(xp, (*images.shape[:2], *counts), x.dtype, data_format)
        _greatest(xp, images, laid, channels_first(result, data_format))
        return deliver(xp, result, out)
    if laid is None:
        result = _pooled_regions(xp, images, ksize if adaptive else [1] * (x.ndim - 2), pooling_type)
    else:
        result = _average(xp, images, laid, exclusive)
    return deliver(xp, channels_restored(xp, result, data_format), out)


@kernel("pool2d_grad")
def pool2d_grad(
    xp, x, result, d_out, *, pooling_type, ksize, global_pooling, strides, paddings, exclusive, adaptive, ceil_mode,
    data_format, padding_algorithm,
):  # fmt: skip
    images, pooled, d = (channels_first(array, data_format) for array in (x, result, d_out))
    laid = _laid(
        images.shape[2:], pooling_type, ksize, global_pooling, strides, paddings, adaptive, ceil_mode,
        padding_algorithm,
    )  # fmt: skip
    if laid is None:
        d_images = _regions_gradient(xp, images, pooled, d, pooling_type)
    elif pooling_type == "max":
        d_images = _gradient_of_greatest(xp, images, pooled, d, laid)
    else:
        shares = d * _share(_divisor(xp, laid, exclusive, images.dtype))
        d_images = add_at(xp, ((index, shares) for index in elements(laid)), images, laid)
    return channels_restored(xp, d_images, data_format)


@kernel("pool2d_grad_grad")
def pool2d_grad_grad(
    xp, x, result, dd_x, *, pooling_type, ksize, global_pooling, strides, paddings, adaptive, ceil_mode, data_format,
    padding_algorithm,
):  # fmt: skip
    """Select from each window the element of `dd_x` at the position of the maximum."""
    images, pooled, dd = (channels_first(array, data_format) for array in (x, result, dd_x))
    laid = _laid(
        images.shape[2:], pooling_type, ksize, global_pooling, strides, paddings, adaptive, ceil_mode,
        padding_algorithm,
    )  # fmt: skip
    picked = xp.zeros(pooled.shape, x.dtype)
    if laid is None:
        for place, region in _regions(images.shape[2:], pooled.shape[2:]):
            chosen = _first_equal(xp, images[region], pooled[place])
            picked[place] = xp.where(chosen, dd[region], dd.dtype.type(0)).sum(axis=tuple(range(2, x.ndim)))
        return channels_restored(xp, picked, data_format)
    source, values = padded(xp, images, laid, np.nan), padded(xp, dd, laid, 0)
    is_open = xp.ones(pooled.shape, bool)
    for index in elements(laid):
        hit = (source[index] == pooled) & is_open
        is_open &= ~hit
        xp.copyto(picked, values[index], where=hit)
    return channels_restored(xp, picked, data_format)


def _laid(
    lengths, pooling_type, ksize, global_pooling, strides, paddings, adaptive, ceil_mode, padding_algorithm
) -> Any:
    """The windows along each dimension; None if they differ in size, or one of an average is the whole image."""
    if adaptive and pooling_type == "max":
        return lay_square(lengths, ksize, strides)
    if adaptive or global_pooling:
        return None
    laid = lay_windows(lengths, ksize, strides, paddings, padding_algorithm, ceil_mode=ceil_mode)
    is_whole = pooling_type == "avg" and all(
        along.count == 1 and along.size == along.length and not along.before for along in laid
    )
    return None if is_whole else laid


# Windows of one size


def _greatest(xp, images, laid, result) -> None:
    """Write the maximum of each window: first over its height, a maximum of whole rows, then over its width."""
    scratch = Scratch(xp)
    # As in fluid, where the maximum of a window begins with the lowest number, not with -inf.
    source = padded(xp, images, laid, np.finfo(images.dtype).min)
    for i, along in enumerate(laid):
        behind = [slice(None)] * (len(laid) - 1 - i)
        tall = [source[(..., every(j, along), *behind)] for j in range(along.size)]
        if not behind:
            _maximum(xp, tall, result)
        elif len(tall) > 1:
            source = _maximum(xp, tall, scratch.empty(tall[0].shape, images.dtype))
        else:
            source = tall[0]


def _maximum(xp, arrays, out) -> Any:
    if len(arrays) == 1:
        xp.copyto(out, arrays[0])
    for i, array in enumerate(arrays[1:]):
        xp.maximum(out if i else arrays[0], array, out=out)
    return out


def _average(xp, images, laid, exclusive) -> Any:
    source = padded(xp, images, laid, 0)
    first, *others = elements(laid)
    total = source[first].astype(np.float32 if images.dtype == np.float16 else images.dtype)
    for index in others:
        xp.add(total, source[index], out=total)
    return (total / _divisor(xp, laid, exclusive, total.dtype)).astype(images.dtype, copy=False)


def _divisor(xp, laid, exclusive, dtype) -> Any:
    """Number of elements that each window is averaged over."""
    if not exclusive:
        return np.asarray(prod(along.size for along in laid), dtype)[()]
    counts = np.ix_(*(_inside_counts(along) for along in laid))
    return xp.asarray(prod(counts[1:], start=counts[0]).astype(dtype))


def _share(divisor) -> Any:
    """Weight ``1 / divisor`` of an element in an average; of float32 precision for every type, as in fluid."""
    return (np.float32(1) / divisor.astype(np.float32)).astype(divisor.dtype)


def _inside_counts(along) -> np.ndarray:
    begin = np.arange(along.count) * along.stride - along.before
    return np.maximum(np.minimum(begin + along.size, along.length) - np.maximum(begin, 0), 0)


def _gradient_of_greatest(xp, images, pooled, d, laid) -> Any:
    """Give `d` to the first element of each window that equals the maximum.

    Elements are selected by a mask of bits, because a product of 0 and infinity would be NaN.
    """
    # Padding of NaN equals nothing.
    source = padded(xp, images, laid, np.nan)
    shape = padded_shape(images.shape, laid)
    overlaps = any(along.stride < along.size for along in laid)
    is_covered = all(n == along.count * along.size for n, along in zip(shape[2:], laid, strict=True))
    total = (xp.empty if is_covered and not overlaps else xp.zeros)(shape, images.dtype)
    scratch, bits = Scratch(xp), np.dtype(f"i{images.dtype.itemsize}")
    hit, is_open, mask = (scratch.empty(pooled.shape, dtype) for dtype in (bool, bool, bits))
    is_open.fill(True)
    for index in elements(laid):
        xp.equal(source[index], pooled, out=hit)
        xp.logical_and(hit, is_open, out=hit)
        xp.greater(is_open, hit, out=is_open)
        # -1 has all bits set: the mask keeps or clears an element of `d`.
        xp.copyto(mask, hit)
        xp.negative(mask, out=mask)
        if overlaps:
            xp.bitwise_and(d.view(bits), mask, out=mask)
            total[index] += mask.view(images.dtype)
        else:
            xp.bitwise_and(d.view(bits), mask, out=total.view(bits)[index])
    return xp.ascontiguousarray(total[inside(laid)])


# Windows that cover the image evenly


def _regions(lengths, counts) -> Any:
    """Place of each result, and index of its window."""
    along = [enumerate(_even(length, count)) for length, count in zip(lengths, counts, strict=True)]
    for chosen in product(*along):
        place, region = zip(*chosen, strict=True)
        yield (..., *place), (..., *region)


def _pooled_regions(xp, images, counts, pooling_type) -> Any:
    result, axes = xp.empty((*images.shape[:2], *counts), images.dtype), tuple(range(2, images.ndim))
    for place, region in _regions(images.shape[2:], counts):
        window = images[region]
        if pooling_type == "max":
            result[place] = window.max(axis=axes)
        else:
            result[place] = add_over(xp, window, axes, divisor=prod(window.shape[2:]))
    return result


def _regions_gradient(xp, images, pooled, d, pooling_type) -> Any:
    d_images = xp.zeros(images.shape, images.dtype)
    over_window = (..., *[None] * (images.ndim - 2))
    for place, region in _regions(images.shape[2:], pooled.shape[2:]):
        window = images[region]
        if pooling_type == "avg":
            size = images.dtype.type(prod(window.shape[2:]))
            d_images[region] += (d[place] * _share(size))[over_window]
            continue
        chosen = _first_equal(xp, window, pooled[place])
        d_images[region] += xp.where(chosen, d[place][over_window], d.dtype.type(0))
    return d_images


def _first_equal(xp, window, greatest) -> Any:
    """Mask of the first element of each window that equals the greatest; empty for NaN, which equals nothing."""
    flat = window.reshape(*window.shape[:2], prod(window.shape[2:]))
    hits = flat == greatest[:, :, None]
    chosen = xp.arange(flat.shape[2]) == hits.argmax(axis=2)[:, :, None]
    chosen &= hits
    return chosen.reshape(window.shape)


# The maximum and its position


@kernel("max_pool2d_with_index")
def max_pool2d_with_index(xp, x, *, ksize, global_pooling, adaptive, strides, paddings):
    lengths = x.shape[2:]
    if adaptive or global_pooling:
        counts = ksize if adaptive else [1] * len(lengths)
        windows = [_even(length, count) for length, count in zip(lengths, counts, strict=True)]
    else:
        windows = [_inside(along) for along in lay_windows(lengths, ksize, strides, paddings, "EXPLICIT")]
    longest = [max((along.stop - along.start for along in each), default=0) for each in windows]
    if prod(longest) < prod(map(len, windows)):
        return _maxima_by_offsets(xp, x, windows, longest)
    return _maxima_by_windows(xp, x, windows)


def _maxima_by_windows(xp, x, windows):
    """Maxima and their positions in the images, one window of all images at a time."""
    result = xp.empty((*x.shape[:2], *map(len, windows)), x.dtype)
    places = xp.empty(result.shape, np.int32)
    for chosen in product(*map(enumerate, windows)):
        place, region = zip(*chosen, strict=True)
        window = x[(..., *region)]
        flat = window.reshape(*x.shape[:2], prod(window.shape[2:]))
        first = flat.argmax(axis=2)
        result[(..., *place)] = xp.take_along_axis(flat, first[:, :, None], axis=2)[:, :, 0]
        inside = xp.unravel_index(first, window.shape[2:])
        at = [index + along.start for index, along in zip(inside, region, strict=True)]
        places[(..., *place)] = xp.ravel_multi_index(at, x.shape[2:])
    return result, places


def _maxima_by_offsets(xp, x, windows, longest):
    """The same, one element of all windows at a time. Shorter windows repeat their last elements."""
    begins = [np.array([along.start for along in each]) for each in windows]
    lasts = [np.array([along.stop - 1 for along in each]) for each in windows]
    result = places = None
    for offsets in product(*map(range, longest)):
        at = [np.minimum(begin + offset, last) for begin, offset, last in zip(begins, offsets, lasts, strict=True)]
        found = x
        for axis, along in enumerate(at, 2):
            found = xp.take(found, xp.asarray(along), axis)
        place = xp.asarray(np.ravel_multi_index(np.ix_(*at), x.shape[2:]).astype(np.int32))
        if result is None:
            result, places = found, xp.broadcast_to(place, found.shape).copy()
            continue
        is_greater = (found > result) | ((found != found) & (result == result))  # the first NaN, as argmax
        xp.copyto(result, found, where=is_greater)
        xp.copyto(places, place, where=is_greater)
    return result, places


@kernel("max_pool2d_with_index_grad")
def max_pool2d_with_index_grad(xp, x, mask, d_out):
    images, size = x.shape[0] * x.shape[1], prod(x.shape[2:])
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    d_x = xp.zeros(images * size, wide)
    places = xp.arange(images)[:, None] * size + mask.reshape(images, prod(mask.shape[2:]))
    combine_rows(xp, "add", d_x, places.reshape(-1), d_out.reshape(-1).astype(wide, copy=False))
    return d_x.reshape(x.shape).astype(x.dtype, copy=False)


def _even(length, count) -> list[slice]:
    """The `count` windows that cover `length` elements evenly."""
    return [slice(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def _inside(along) -> list[slice]:
    """The part of each window inside the image."""
    begins = [i * along.stride - along.before for i in range(along.count)]
    return [slice(max(begin, 0), min(begin + along.size, along.length)) for begin in begins]


# The kernels above serve any number of dimensions.
for _name, _function in {
    "pool3d": pool2d, "pool3d_grad": pool2d_grad, "pool3d_grad_grad": pool2d_grad_grad,
    "max_pool3d_with_index": max_pool2d_with_index, "max_pool3d_with_index_grad": max_pool2d_with_index_grad,
}.items():  # fmt: skip
    kernel(_name)(_function)
