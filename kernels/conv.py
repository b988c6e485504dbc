"""Convolutions: the windows of the images become columns of a matrix, the filters multiply them.

Inside, images have their channels before height and width; other layouts are views. float16 is computed in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver, shaped, unshared
from minigraph.kernels.reduce import add_over
from minigraph.kernels.registry import kernel
from minigraph.kernels.sliding import add_at, channels_first, channels_restored, elements, padded, windows_of
from minigraph.windows import CHANNELS_LAST, lay_transposed, lay_windows


@kernel("conv2d")
def conv2d(
    xp, x, filter, bias, _residual, *, strides, paddings, padding_algorithm, groups, dilations, data_format, out=None
):  # fmt: skip
    images, weights = _wide(channels_first(x, data_format)), _wide(filter)
    laid = lay_windows(images.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations)
    columns = _columns(xp, images, laid, groups)
    rows = _rows(weights, groups)
    is_direct = data_format != CHANNELS_LAST and x.dtype == images.dtype
    buffer = unshared(xp, out, x, filter, *([] if bias is None else [bias])) if is_direct else None
    product = xp.matmul(rows, columns, out=shaped(buffer, (len(images), groups, rows.shape[1], _size(laid))))
    result = product.reshape(len(images), len(filter), laid[0].count, laid[1].count) if buffer is None else buffer
    if bias is not None:
        result += bias.reshape(-1, 1, 1)
    return deliver(xp, channels_restored(xp, result.astype(x.dtype, copy=False), data_format), out)


@kernel("conv2d_grad")
def conv2d_grad(
    xp, x, filter, bias, d_out, *, strides, paddings, padding_algorithm, groups, dilations, data_format, wanted
):  # fmt: skip
    """``dInput`` adds up the columns ``Filter' @ dOutput`` where they came from; ``dFilter = dOutput @ columns'``."""
    images, weights = _wide(channels_first(x, data_format)), _wide(filter)
    d = _wide(channels_first(d_out, data_format))
    laid = lay_windows(images.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations)
    d_x = d_filter = d_bias = None
    if wanted[0]:
        d_images = _spread(xp, d, weights, images, laid, groups)
        d_x = channels_restored(xp, d_images.astype(x.dtype, copy=False), data_format)
    if wanted[1]:
        d_filter = _filter_gradient(xp, images, d, laid, groups).reshape(filter.shape).astype(x.dtype, copy=False)
    if bias is not None and wanted[2]:
        d_bias = add_over(xp, d, (0, 2, 3)).astype(x.dtype, copy=False)
    return d_x, d_filter, d_bias


@kernel("conv2d_transpose")
def conv2d_transpose(
    xp, x, filter, bias, *, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm
):  # fmt: skip
    """What ``conv2d_grad`` does to the gradient of its result."""
    small, weights = _wide(channels_first(x, data_format)), _wide(filter)
    laid = lay_transposed(
        small.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations, output_size
    )
    shape = (len(small), filter.shape[1] * groups, laid[0].length, laid[1].length)
    like = np.broadcast_to(small.dtype.type(0), shape)  # only to tell the type
    result = _spread(xp, small, weights, like, laid, groups)
    if bias is not None:
        result += bias.reshape(-1, 1, 1)
    return channels_restored(xp, result.astype(x.dtype, copy=False), data_format)


@kernel("conv2d_transpose_grad")
def conv2d_transpose_grad(
    xp, x, filter, bias, d_out,
    *, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm, wanted,
):  # fmt: skip
    """``conv2d`` of the gradient of the result, and its ``dFilter`` with the two sides exchanged."""
    small, weights = _wide(channels_first(x, data_format)), _wide(filter)
    d = _wide(channels_first(d_out, data_format))
    laid = lay_transposed(
        small.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations, output_size
    )
    d_x = d_filter = d_bias = None
    if wanted[0]:
        product = xp.matmul(_rows(weights, groups), _columns(xp, d, laid, groups)).reshape(small.shape)
        d_x = channels_restored(xp, product.astype(x.dtype, copy=False), data_format)
    if wanted[1]:
        d_filter = _filter_gradient(xp, d, small, laid, groups).reshape(filter.shape).astype(x.dtype, copy=False)
    if bias is not None and wanted[2]:
        d_bias = add_over(xp, d, (0, 2, 3)).astype(x.dtype, copy=False)
    return d_x, d_filter, d_bias


# Depthwise only is a name for one way to choose the groups.
kernel("depthwise_conv2d")(conv2d)
kernel("depthwise_conv2d_grad")(conv2d_grad)
kernel("depthwise_conv2d_transpose")(conv2d_transpose)
kernel("depthwise_conv2d_transpose_grad")(conv2d_transpose_grad)


def _spread(xp, d, weights, images, laid, groups) -> Any:
    """An array like `images` that adds up ``Filter' @ d`` where the windows are."""
    rows = _rows(weights, groups)
    d_columns = xp.matmul(rows.swapaxes(1, 2), d.reshape(len(d), groups, rows.shape[1], _size(laid)))
    by_element = d_columns.reshape(*images.shape[:2], math.prod(weights.shape[2:]), laid[0].count, laid[1].count)
    return add_at(xp, ((at, by_element[:, :, k]) for k, at in enumerate(elements(laid))), images, laid)


def _wide(x) -> Any:
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _size(laid) -> int:
    return laid[0].count * laid[1].count


def _rows(weights, groups) -> Any:
    """The filters as rows of one matrix for each group."""
    return weights.reshape(groups, len(weights) // groups, math.prod(weights.shape[1:]))


def _columns(xp, images, laid, groups) -> Any:
    """For each image and group a matrix: a column for each window, in the order of the elements of a filter."""
    windows = windows_of(xp, padded(xp, images, laid, 0), laid)
    batch, channels, height, width = windows.shape[:4]
    return windows.reshape(batch, groups, channels // groups * height * width, _size(laid))


def _filter_gradient(xp, images, d, laid, groups) -> Any:
    """One product for each group, over all windows of all images."""
    windows = windows_of(xp, padded(xp, images, laid, 0), laid)
    batch, channels, height, width = windows.shape[:4]
    by_element = windows.transpose(1, 2, 3, 0, 4, 5).reshape(
        groups, channels // groups * height * width, batch * _size(laid)
    )
    by_filter = d.swapaxes(0, 1).reshape(groups, d.shape[1] // groups, batch * _size(laid))
    return xp.matmul(by_filter, by_element.swapaxes(1, 2))
