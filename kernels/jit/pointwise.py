"""Recordings of convolutions whose windows are the elements of an image, as products of matrices.

They have the bits of `minigraph.kernels.conv`, because they make the same calls of BLAS on arrays that lie alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.conv import (
    are_multiplied_as_rows,
    are_places,
    are_rows,
    as_rows,
    is_better_by_image,
    is_one_product,
)
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.products import dot, matmul
from minigraph.kernels.jit.recorders import native
from minigraph.kernels.jit.recording import Recording, Symbol
from minigraph.kernels.sliding import channels_first, lay_on
from minigraph.kernels.sums import add_over
from minigraph.support.window_rules import Windows, is_channels_last, spatial_dims


@native("conv2d", replaces_loops=False)
def conv2d(recording, x, filter, bias, _residual, *, data_format, **attrs):
    images, weights, laid = _given(x, filter, data_format, **attrs)
    result = _multiplied(recording, weights, images, laid, data_format)
    return _in_order(recording, result if bias is None else np.add(result, bias.reshape(-1, 1, 1)), data_format)


@native("conv2d_grad", replaces_loops=False)
def conv2d_grad(recording, x, filter, bias, d_out, *, wanted, data_format, **attrs):
    images, weights, laid = _given(x, filter, data_format, **attrs)
    d = channels_first(d_out, data_format)
    d_x = d_filter = d_bias = None
    if wanted[0]:
        d_x = _in_order(recording, _multiplied(recording, weights.T, d, laid, data_format), data_format)
    if wanted[1]:
        d_filter = _filter_gradient(recording, images, d, filter.shape, laid).reshape(filter.shape)
    if bias is not None and wanted[2]:
        d_bias = add_over(np, d_out, (0, *spatial_dims(data_format)))
    return d_x, d_filter, d_bias


def _given(
    x: Symbol, filter: Symbol, data_format: str, *, groups: int, **attrs: Any
) -> tuple[Symbol, Symbol, tuple[Windows, ...]]:
    """The images with their channels first, the filters as rows of a matrix, and the windows."""
    images = channels_first(x, data_format)
    if groups != 1 or not x.size or x.dtype != filter.dtype or x.dtype.name not in ("float32", "float64"):
        raise UnsupportedError("groups, nothing, or another type")
    laid = lay_on(images, filter, **attrs)
    if not are_places(laid):
        raise UnsupportedError("windows of several elements, or apart")
    return images, filter.reshape(filter.shape[:2]), laid


def _multiplied(recording: Recording, weights: Symbol, images: Symbol, laid: Any, data_format: str) -> Symbol:
    """The images whose channels are those of `images` times a matrix."""
    batch, _, height, width = images.shape
    shape = batch, len(weights), height, width
    if are_multiplied_as_rows((1, *weights.shape), images, _like_result(shape, images.dtype, data_format)):
        product = dot(recording, as_rows(images), weights.T)
        return product.reshape(batch, height, width, len(weights)).transpose(0, 3, 1, 2)
    if is_one_product(np, (1, *weights.shape), laid, batch):
        product = matmul(recording, weights.reshape(1, *weights.shape), _folded(recording, images))
        return product.reshape(len(weights), batch, height, width).transpose(1, 0, 2, 3)
    return matmul(recording, weights, _by_image(images)).reshape(shape)


def _like_result(shape: tuple[int, ...], dtype: Any, data_format: str) -> Any:
    """An array that lies like a result, and has no memory of its own."""
    lying = [*shape[:1], *shape[2:], shape[1]] if is_channels_last(data_format) else shape
    return channels_first(np.empty(lying, dtype), data_format)


def _filter_gradient(recording: Recording, images: Symbol, d: Symbol, shape: Any, laid: Any) -> Symbol:
    if is_better_by_image(shape, laid, len(images)):
        flowing, columns = _by_image(d), _by_image(images)
        return add_over(np, matmul(recording, flowing, columns.transpose(0, 2, 1)), (0,))
    if are_rows(images, d):
        return dot(recording, as_rows(d).T, as_rows(images))
    flowing, columns = _folded(recording, d), _folded(recording, images)
    return matmul(recording, flowing, columns.transpose(0, 2, 1))


def _by_image(images: Symbol) -> Symbol:
    """Matrix of each image: a row for each channel."""
    batch, channels, height, width = images.shape
    return images.reshape(batch, channels, height * width)


def _folded(recording: Recording, images: Symbol) -> Symbol:
    """One matrix of all images, a row for each channel: a view, where they lie so that it can be one."""
    batch, channels, height, width = images.shape
    turned, shape = images.transpose(1, 0, 2, 3), (1, channels, batch * height * width)
    lying = turned.value.layout.reshape(shape)
    if np.may_share_memory(lying, turned.value.layout):
        return turned.seen(lying)
    return recording.copied(turned).reshape(shape)


def _in_order(recording: Recording, images: Symbol, data_format: str) -> Symbol:
    """The images in their layout, a copy if they lie otherwise."""
    lying = images.transpose(0, 2, 3, 1) if is_channels_last(data_format) else images
    return lying if lying.flags.c_contiguous else recording.copied(lying)
