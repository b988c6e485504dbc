"""Convolutions of volumes, as convolutions of images: windows along the depth become channels, depths images.

A volume ``[batch, channels, depth, height, width]`` is unfolded to images ``[batch * windows, channels * size, height,
width]``, and the filters become filters of such images. Each element is copied once for each window that it lies in,
fewer times than the convolution of images copies it afterwards.
"""

from __future__ import annotations

from typing import Any

from minigraph.kernels.conv import convolve, filter_gradient, spread
from minigraph.kernels.registry import kernel
from minigraph.kernels.sliding import channels_first, channels_restored, lay_on
from minigraph.kernels.upcast import widen
from minigraph.support.window_rules import lay_transposed


@kernel("conv3d")
def conv3d(xp, x, filter, _residual, *, strides, paddings, padding_algorithm, groups, dilations, data_format):
    volumes = widen(channels_first(x, data_format))
    laid = lay_on(volumes, filter, strides, paddings, padding_algorithm, dilations)
    return _convolved(xp, volumes, filter, laid, groups, x.dtype, data_format)


@kernel("conv3d_grad")
def conv3d_grad(
    xp, x, filter, d_out,
    *, strides, paddings, padding_algorithm, groups, dilations, data_format, wanted,
):  # fmt: skip
    volumes, d = (widen(channels_first(array, data_format)) for array in (x, d_out))
    laid = lay_on(volumes, filter, strides, paddings, padding_algorithm, dilations)
    d_x = _spread(xp, d, filter, laid, groups, x.dtype, data_format) if wanted[0] else None
    d_filter = _filter_gradient(xp, volumes, d, filter, laid, groups) if wanted[1] else None
    return d_x, d_filter


@kernel("conv3d_transpose")
def conv3d_transpose(
    xp, x, filter, *, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm
):  # fmt: skip
    small = widen(channels_first(x, data_format))
    laid = lay_transposed(
        small.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations, output_size
    )
    return _spread(xp, small, filter, laid, groups, x.dtype, data_format)


@kernel("conv3d_transpose_grad")
def conv3d_transpose_grad(
    xp, x, filter, d_out,
    *, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm, wanted,
):  # fmt: skip
    small, d = (widen(channels_first(array, data_format)) for array in (x, d_out))
    laid = lay_transposed(
        small.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations, output_size
    )
    d_x = _convolved(xp, d, filter, laid, groups, x.dtype, data_format) if wanted[0] else None
    d_filter = _filter_gradient(xp, d, small, filter, laid, groups) if wanted[1] else None
    return d_x, d_filter


def _convolved(xp, volumes, filter, laid, groups, dtype, data_format) -> Any:
    """The filters times the windows of `volumes`."""
    depth, *flat = laid
    images = _unfolded(xp, volumes, depth)
    result = xp.empty((len(images), len(filter), *(along.count for along in flat)), images.dtype)
    convolve(xp, images, _of_images(filter), None, flat, groups, result)
    return _delivered(xp, _stacked(result, depth.count), dtype, data_format)


def _spread(xp, d, filter, laid, groups, dtype, data_format) -> Any:
    """The sum of ``Filter' @ d`` at the windows of volumes."""
    depth, *flat = laid
    flowing = _apart(xp, d)
    channels = filter.shape[1] * groups
    images = xp.empty((len(flowing), channels * depth.size, *(along.length for along in flat)), d.dtype)
    spread(xp, flowing, _of_images(filter), flat, groups, images)
    parts = _stacked(images.reshape(len(images), channels, depth.size, *images.shape[2:]), depth.count)
    total = xp.zeros((len(d), channels, depth.length, *images.shape[2:]), d.dtype)
    for k in range(depth.size):
        windows, slices = _inside(k, depth)
        total[:, :, slices] += parts[:, :, windows, k]
    return _delivered(xp, total, dtype, data_format)


def _filter_gradient(xp, volumes, d, filter, laid, groups) -> Any:
    depth, *flat = laid
    weights = _of_images(filter)
    found = filter_gradient(xp, _unfolded(xp, volumes, depth), _apart(xp, d), weights.shape, flat, groups)
    return found.reshape(filter.shape).astype(filter.dtype, copy=False)


def _of_images(filter) -> Any:
    """The filters of images that multiply unfolded volumes."""
    filters, channels, depth, *sizes = filter.shape
    return widen(filter).reshape(filters, channels * depth, *sizes)


def _unfolded(xp, volumes, depth) -> Any:
    """Images of `volumes`, one for each window along the depth, whose slices are channels; each channel in a row."""
    batch, channels, _, *sizes = volumes.shape
    images = xp.zeros((batch, depth.count, channels, depth.size, *sizes), volumes.dtype)
    for k in range(depth.size):
        windows, slices = _inside(k, depth)
        images[:, windows, :, k] = volumes[:, :, slices].swapaxes(1, 2)
    return images.reshape(batch * depth.count, channels * depth.size, *sizes)


def _inside(k, depth) -> tuple[slice, slice]:
    """The windows whose element `k` lies inside of the volume, and the slices that it is."""
    begin = k * depth.dilation - depth.before
    first = max(0, -(begin // depth.stride))
    end = max(first, min(depth.count, -((begin - depth.length) // depth.stride)))
    start = first * depth.stride + begin
    return slice(first, end), slice(start, start + (end - first) * depth.stride, depth.stride)


def _apart(xp, volumes) -> Any:
    """The slices of `volumes` along the depth, as images."""
    batch, channels, depth, *sizes = volumes.shape
    return xp.ascontiguousarray(volumes.swapaxes(1, 2)).reshape(batch * depth, channels, *sizes)


def _stacked(images, depth) -> Any:
    """Volumes of `depth` slices, a view: the opposite of `_apart`."""
    return images.reshape(len(images) // depth, depth, *images.shape[1:]).swapaxes(1, 2)


def _delivered(xp, volumes, dtype, data_format) -> Any:
    """`volumes` as a new array of this dtype and layout."""
    return xp.ascontiguousarray(channels_restored(xp, volumes, data_format)).astype(dtype, copy=False)
