"""Convolutions: windows become columns of a matrix, the filters multiply them.

Images have their channels before height and width; other layouts are views. float16 is computed in float32.

Where a window is one element, the images are the matrix, without a copy unless there are many filters. For other
windows there are two ways. Image by image, all windows are copied. For many images (`has_long_rows`), the layout is
[rows, channels, columns, batch], with the batch innermost, so that copies and sums run over long pieces of memory. Each
row is copied once for each column of a filter. Then the windows of one row of results are a matrix without another
copy, since they overlap in memory with the windows of the next row.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from minigraph.kernels.buffers import Scratch, deliver, none_if_zero, unshared
from minigraph.kernels.cuda import gemm
from minigraph.kernels.registry import kernel
from minigraph.kernels.sliding import (
    add_at,
    channels_first,
    empty_images,
    every,
    inside,
    lay_on,
    padded,
    padded_shape,
    parts_of_images,
    windows_of,
)
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import widen
from minigraph.support.window_rules import Windows, lay_transposed, spatial_dims

_LONG_ROW = 96
"""Minimum windows in a row, so that the matrix is wide enough for fast products."""

_MANY_IMAGES = 8
"""Minimum images to put the batch last if windows are more than one column apart."""

_SMALL_PRODUCT = 1_000_000
"""Maximum multiplications of a matrix product for which OpenBLAS takes its faster path for small matrices."""

_FEW_PLACES = 64
"""Maximum windows of an image for which all images are multiplied at once: each product reads all filters."""

_READ_AGAIN = 4
"""Maximum elements of filters, per element of an image and of its result, to read them again for each image."""

_TURNED = 2
"""Maximum elements of filters, per element of all images and results, for a product of images with turned filters."""

_FEWER = 4
"""Maximum elements of filters per element of an image for which copies of turned filters are cheap."""

_SUM_BY_COPY = 2
"""Time of adding up an element of products of single images by that of copying one of the images."""

_CACHED = 1 << 16
"""Maximum elements of results that stay in the cache until they are copied to their places."""

_FEW_SUMS = 1 << 20
"""Maximum elements of products that are held at once before they are added up."""


@kernel("conv2d")
def conv2d(
    xp, x, filter, bias, _residual, *, strides, paddings, padding_algorithm, groups, dilations, data_format, out=None
):  # fmt: skip
    images, weights = widen(channels_first(x, data_format)), widen(filter)
    laid = lay_on(images, filter, strides, paddings, padding_algorithm, dilations)
    buffer = unshared(xp, out, x, filter, *([] if bias is None else [bias]))
    result = buffer
    if result is None:
        result = empty_images(xp, (len(images), len(filter), laid[0].count, laid[1].count), x.dtype, data_format)
    convolve(xp, images, weights, bias, laid, groups, channels_first(result, data_format))
    return deliver(xp, result, out)


@kernel("conv2d_grad")
def conv2d_grad(
    xp, x, filter, bias, d_out, *, strides, paddings, padding_algorithm, groups, dilations, data_format, wanted
):  # fmt: skip
    """``dInput`` adds the columns ``Filter' @ dOutput`` at their windows; ``dFilter = dOutput @ columns'``."""
    images, weights = widen(channels_first(x, data_format)), widen(filter)
    d = widen(channels_first(d_out, data_format))
    laid = lay_on(images, filter, strides, paddings, padding_algorithm, dilations)
    d_x = d_filter = d_bias = None
    if wanted[0]:
        d_x = empty_images(xp, images.shape, x.dtype, data_format)
        spread(xp, d, weights, laid, groups, channels_first(d_x, data_format))
    if wanted[1]:
        d_filter = filter_gradient(xp, images, d, filter.shape, laid, groups).astype(x.dtype, copy=False)
    if bias is not None and wanted[2]:
        d_bias = add_over(xp, widen(d_out), (0, *spatial_dims(data_format))).astype(x.dtype, copy=False)
    return d_x, d_filter, d_bias


@kernel("conv2d_grad_grad")
def conv2d_grad_grad(
    xp, x, filter, d_out, dd_x, dd_filter,
    *, strides, paddings, padding_algorithm, groups, dilations, data_format, wanted,
):  # fmt: skip
    """``ddOutput = conv2d(ddInput, Filter) + conv2d(Input, ddFilter)``, and the gradients of both terms."""
    attrs = {
        "strides": strides, "paddings": paddings, "padding_algorithm": padding_algorithm, "groups": groups,
        "dilations": dilations, "data_format": data_format,
    }  # fmt: skip
    # A gradient that does not flow arrives as zeros, and a convolution of zeros takes as long as any.
    dd_x, dd_filter = none_if_zero(xp, dd_x), none_if_zero(xp, dd_filter)
    d_x = d_filter = dd_out = None
    if wanted[0]:
        d_x = xp.zeros_like(x)
        if dd_filter is not None:
            d_x, _, _ = conv2d_grad(xp, x, dd_filter, None, d_out, wanted=(True, False), **attrs)
    if wanted[1]:
        d_filter = xp.zeros_like(filter)
        if dd_x is not None:
            _, d_filter, _ = conv2d_grad(xp, dd_x, filter, None, d_out, wanted=(False, True), **attrs)
    if wanted[2]:
        dd_out = None if dd_x is None else conv2d(xp, dd_x, filter, None, None, **attrs)
        if dd_filter is not None:
            other = conv2d(xp, x, dd_filter, None, None, **attrs)
            dd_out = other if dd_out is None else xp.add(dd_out, other, out=dd_out)
        dd_out = xp.zeros_like(d_out) if dd_out is None else dd_out
    return d_x, d_filter, dd_out


@kernel("conv2d_transpose")
def conv2d_transpose(
    xp, x, filter, bias, *, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm
):  # fmt: skip
    """Gradient of ``conv2d`` by its input, with `x` as the incoming gradient."""
    small, weights = widen(channels_first(x, data_format)), widen(filter)
    laid = lay_transposed(
        small.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations, output_size
    )
    shape = (len(small), filter.shape[1] * groups, laid[0].length, laid[1].length)
    result = empty_images(xp, shape, x.dtype if bias is None else small.dtype, data_format)
    images = channels_first(result, data_format)
    spread(xp, small, weights, laid, groups, images)
    if bias is not None:
        images += bias.reshape(-1, 1, 1)
    return result.astype(x.dtype, copy=False)


@kernel("conv2d_transpose_grad")
def conv2d_transpose_grad(
    xp, x, filter, bias, d_out,
    *, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm, wanted,
):  # fmt: skip
    """``conv2d`` of the gradient of the result, and its ``dFilter`` with the two sides exchanged."""
    small, weights = widen(channels_first(x, data_format)), widen(filter)
    d = widen(channels_first(d_out, data_format))
    laid = lay_transposed(
        small.shape[2:], filter.shape[2:], strides, paddings, padding_algorithm, dilations, output_size
    )
    d_x = d_filter = d_bias = None
    if wanted[0]:
        d_x = empty_images(xp, small.shape, x.dtype, data_format)
        convolve(xp, d, weights, None, laid, groups, channels_first(d_x, data_format))
    if wanted[1]:
        d_filter = filter_gradient(xp, d, small, filter.shape, laid, groups).astype(x.dtype, copy=False)
    if bias is not None and wanted[2]:
        d_bias = add_over(xp, widen(d_out), (0, *spatial_dims(data_format))).astype(x.dtype, copy=False)
    return d_x, d_filter, d_bias


# A depthwise convolution is one with as many groups as channels.
kernel("depthwise_conv2d")(conv2d)
kernel("depthwise_conv2d_grad")(conv2d_grad)
kernel("depthwise_conv2d_transpose")(conv2d_transpose)
kernel("depthwise_conv2d_transpose_grad")(conv2d_transpose_grad)


# The three products: of filters and windows, of filters and gradients, of windows and gradients


def convolve(xp, images, weights, bias, laid, groups, result) -> None:
    """Write to the images `result` the filters times the windows, and the bias."""
    if has_long_rows(xp, laid, len(images)):
        _convolve_rows(xp, images, weights, bias, laid, groups, _apart(result, 1, groups))
    else:
        _multiply(xp, by_group(weights, groups), images, bias, laid, result)


def _multiply(xp, rows, images, bias, laid, result) -> None:
    """Write to the images `result` the rows of each group's matrix times the windows, and the bias."""
    groups, each, _ = rows.shape
    if are_places(laid) and result.dtype == images.dtype and are_multiplied_as_rows(rows.shape, images, result):
        product = gemm.dot(xp, as_rows(images), rows[0].T, out=as_rows(result))
        if bias is not None:
            xp.add(product, bias, out=product, casting="same_kind")
        return
    if is_one_product(xp, rows.shape, laid, len(images)):
        product = gemm.matmul(xp, rows, _all_columns(xp, images, laid, groups))
        lying = product.reshape(groups, each, len(images), laid[0].count, laid[1].count).transpose(2, 0, 1, 3, 4)
        _write(xp, lying, None if bias is None else bias.reshape(groups, each, 1, 1), _apart(result, 1, groups))
        return
    columns = _columns(xp, images, laid, groups)
    is_direct = result.flags.c_contiguous and result.dtype == images.dtype
    buffer = result.reshape(len(images), groups, each, columns.shape[3]) if is_direct else None
    # Written directly to the result if that has the layout and type of the product.
    product = gemm.matmul(xp, rows, columns, out=buffer)
    if not is_direct or bias is not None:
        _write(xp, product.reshape(result.shape), None if bias is None else bias.reshape(-1, 1, 1), result)


def _write(xp, source, bias, result) -> None:
    """Write `source`, plus the bias if there is one."""
    if bias is None:
        xp.copyto(result, source, casting="same_kind")
    else:
        xp.add(source, bias, out=result, casting="same_kind")


def spread(xp, d, weights, laid, groups, result) -> None:
    """Write to the images `result` the sum of ``Filter' @ d`` at the positions of the windows."""
    if are_places(laid):
        _multiply(xp, by_group(weights, groups).swapaxes(1, 2), d, None, laid, result)
        return
    if _is_better_turned(xp, d, weights, laid, groups):
        convolve(xp, d, _turned(weights, groups), None, [*map(_around, laid)], groups, result)
        return
    if has_long_rows(xp, laid, len(d)):
        source, target = _spread_rows(xp, d, weights, laid, groups, result.shape), _apart(result, 1, groups)
    else:
        rows, counts = by_group(weights, groups).swapaxes(1, 2), [along.count for along in laid]
        if has_few_places(xp, laid, len(d)):
            d_columns = gemm.matmul(xp, rows, _folded(d, groups))
            by_element = d_columns.reshape(result.shape[1], *weights.shape[2:], len(d), *counts).transpose(
                3, 0, 1, 2, 4, 5
            )
        else:
            d_columns = gemm.matmul(xp, rows, d.reshape(len(d), groups, rows.shape[2], _count(laid)))
            by_element = d_columns.reshape(*result.shape[:2], *weights.shape[2:], *counts)
        parts = parts_of_images(laid, by_element)
        source, target = add_at(xp, parts, np.broadcast_to(d.dtype.type(0), result.shape), laid), result
    xp.copyto(target, source, casting="same_kind")


def are_places(laid) -> bool:
    """Whether each window is one element of an image, and each element a window."""
    return all(along.size == along.stride == 1 and along.count == along.length for along in laid)


def are_rows(*images) -> bool:
    """Whether images lie in memory as one row of channels for each place."""
    return all(each.transpose(0, 2, 3, 1).flags.c_contiguous for each in images)


def as_rows(images) -> Any:
    """Matrix of images for which `are_rows` holds, a view: a row for each place, a column for each channel."""
    batch, channels, height, width = images.shape
    return images.transpose(0, 2, 3, 1).reshape(batch * height * width, channels)


def are_multiplied_as_rows(shape, images, result) -> bool:
    """Whether to multiply places, as the rows of a matrix, by the one matrix of a `shape` for all groups."""
    is_fast = math.prod(shape) <= _TURNED * (images.size + result.size)
    return shape[0] == 1 and is_fast and are_rows(images, result)


def is_one_product(xp, shape, laid, batch) -> bool:
    """Whether to multiply all images at once by the matrices of a `shape`, and not each: that copies them."""
    _, rows, size = shape
    is_read_again = rows * size <= _READ_AGAIN * _count(laid) * (rows + size)
    return has_few_places(xp, laid, batch) and not (are_places(laid) and is_read_again)


def _is_better_turned(xp, d, weights, laid, groups) -> bool:
    """Whether windows of `d` and turned filters have the sums of `_spread` sooner: with fewer elements to copy."""
    fits = all(along.stride == 1 and _around(along).before >= 0 for along in laid)
    is_fewer = len(weights) // groups <= weights.shape[1] and weights.size <= _FEWER * d.size
    return xp is np and fits and is_fewer


def _turned(weights, groups) -> Any:
    """The filters from channels back to filters, turned by half a circle."""
    each, shape = len(weights) // groups, weights.shape[1:]
    turned = weights.reshape(groups, each, *shape).swapaxes(1, 2)[..., ::-1, ::-1]
    return turned.reshape(groups * shape[0], each, *shape[1:])


def _around(along) -> Windows:
    """The windows whose elements are those windows `along` a dimension that contain an element; for strides of 1."""
    before = along.dilation * (along.size - 1) - along.before
    after = along.dilation * (along.size - 1) - along.after
    return replace(along, length=along.count, count=along.length, before=before, after=after)


def filter_gradient(xp, images, d, shape, laid, groups) -> Any:
    """The products of windows and gradients, added up over all windows of all images, in the `shape` of the filters."""
    if has_long_rows(xp, laid, len(images)):
        return _filter_gradient_of_rows(xp, images, d, shape, laid, groups)
    if is_better_by_image(shape, laid, len(images)):
        flowing = d.reshape(len(d), groups, shape[0] // groups, _count(laid))
        products = gemm.matmul(xp, flowing, _columns(xp, images, laid, groups).swapaxes(2, 3))
        return add_over(xp, products, (0,)).reshape(shape)
    if groups == 1 and are_places(laid) and are_rows(images, d):
        return gemm.dot(xp, as_rows(d).T, as_rows(images)).reshape(shape)
    columns = _all_columns(xp, images, laid, groups)
    return gemm.matmul(xp, _folded(d, groups), columns.swapaxes(1, 2)).reshape(shape)


def is_better_by_image(shape, laid, batch) -> bool:
    """Whether a product for each image, and their sum, take less time than to copy all images for one product."""
    return batch > 1 and are_places(laid) and math.prod(shape) * _SUM_BY_COPY <= _count(laid) * (shape[0] + shape[1])


def has_long_rows(xp, laid, batch) -> bool:
    """Whether rows of windows, with the batch innermost, are faster than images one by one."""
    height, width = laid
    if xp is not np or height.size == width.size == 1:
        return False  # a GPU copies short runs as fast; windows of one element are a matrix without a copy
    return width.count * batch >= _LONG_ROW and (width.stride == 1 or batch >= _MANY_IMAGES)


def has_few_places(xp, laid, batch) -> bool:
    """Whether an image has too few windows for a product of its own."""
    return xp is np and batch > 1 and _count(laid) <= _FEW_PLACES


def _count(laid) -> int:
    return laid[0].count * laid[1].count


def by_group(weights, groups) -> Any:
    """The filters of each group as the rows of a matrix."""
    return weights.reshape(groups, len(weights) // groups, math.prod(weights.shape[1:]))


# Image by image, or all at once


def _columns(xp, images, laid, groups) -> Any:
    """Matrix of each image and group: a column for each window, in the order of the elements of a filter."""
    if are_places(laid):
        return images.reshape(len(images), groups, images.shape[1] // groups, _count(laid))
    windows = windows_of(xp, padded(xp, images, laid, 0), laid)
    batch, channels, height, width = windows.shape[:4]
    return windows.reshape(batch, groups, channels // groups * height * width, _count(laid))


def _all_columns(xp, images, laid, groups) -> Any:
    """Matrix of each group: a column for each window of all images, in the order of `_folded`."""
    if are_places(laid):
        return _folded(images, groups)
    windows = windows_of(xp, padded(xp, images, laid, 0), laid)
    batch, channels, height, width = windows.shape[:4]
    size = channels // groups * height * width
    return windows.transpose(1, 2, 3, 0, 4, 5).reshape(groups, size, batch * _count(laid))


def _folded(images, groups) -> Any:
    """Matrix of each group: a row for each channel, with a column for each place of all images."""
    batch, channels, height, width = images.shape
    return images.swapaxes(0, 1).reshape(groups, channels // groups, batch * height * width)


# Row by row


def _convolve_rows(xp, images, weights, bias, laid, groups, result) -> None:
    """Write to `result`, [batch, groups, filters, height, width], a few rows at a time: they stay in the cache."""
    height, width = laid
    each, scratch = len(weights) // groups, Scratch(xp)
    windows = _windows(xp, images, laid, groups, scratch)
    size, columns = windows.shape[2:]
    rows = weights.reshape(groups, each, *weights.shape[1:]).transpose(0, 1, 3, 2, 4)
    rows = xp.ascontiguousarray(rows).reshape(groups, 1, 1, each, size)
    bias = None if bias is None else bias.reshape(groups, each, 1, 1)
    pieces = _pieces(xp, each * size, columns)
    step = max(1, _CACHED // (groups * each * columns))
    product = scratch.empty((groups, step, each, columns), images.dtype)
    for start in range(0, height.count, step):
        part = windows[:, start : start + step]
        found = product[:, : part.shape[1]]
        gemm.matmul(xp, rows, _cut(part, pieces), out=_cut(found, pieces))
        lying = found.reshape(groups, part.shape[1], each, width.count, len(images)).transpose(4, 0, 2, 1, 3)
        _write(xp, lying, bias, result[..., start : start + step, :])


def _spread_rows(xp, d, weights, laid, groups, shape) -> Any:
    """``Filter' @ d`` added at the windows of images of `shape`; [batch, groups, channels, height, width].

    The result is in scratch memory, which the next call overwrites.
    """
    height, width = laid
    filters, each, columns, scratch = len(weights) // groups, weights.shape[1], width.count * len(d), Scratch(xp)
    flowing = scratch.copy(_apart(d, 1, groups).transpose(1, 3, 2, 4, 0))
    flowing = flowing.reshape(groups, height.count, filters, columns)
    by_row = weights.reshape(groups, filters, *weights.shape[1:]).transpose(3, 0, 2, 4, 1)
    by_row = xp.ascontiguousarray(by_row).reshape(height.size, groups, 1, each * width.size, filters)
    rows, reach = padded_shape(shape, laid)[2:]
    unfolded = scratch.zeros((groups, rows, each * width.size, columns), d.dtype)
    product = scratch.empty((groups, height.count, each * width.size, columns), d.dtype)
    times = xp.multiply if filters == 1 else partial(gemm.matmul, xp)  # an outer product needs no BLAS
    for i in range(height.size):
        times(by_row[i], flowing, out=product)
        unfolded[:, every(i, height)] += product
    by_column = unfolded.reshape(groups, rows, each, width.size, width.count, len(d)).swapaxes(0, 1)
    total = scratch.zeros((rows, groups, each, reach, len(d)), d.dtype)
    for j in range(width.size):
        total[:, :, :, every(j, width)] += by_column[:, :, :, j]
    return total.transpose(4, 1, 2, 0, 3)[inside(laid)]


def _filter_gradient_of_rows(xp, images, d, shape, laid, groups) -> Any:
    height, each, scratch = laid[0].count, shape[0] // groups, Scratch(xp)
    windows = _windows(xp, images, laid, groups, scratch)
    size, columns = windows.shape[2:]
    pieces = _pieces(xp, each * size, columns)
    flowing = scratch.copy(_apart(d, 1, groups).transpose(1, 3, 4, 0, 2))
    flowing = flowing.reshape(groups, height, pieces, columns // pieces, each)
    total = xp.zeros((groups, size, each), d.dtype)
    step = max(1, min(height, _FEW_SUMS // max(total.size * pieces, 1)))
    products = scratch.empty((groups, step, pieces, size, each), d.dtype)
    for start in range(0, height, step):
        found = products[:, : min(step, height - start)]
        part = slice(start, start + step)
        total += add_over(xp, gemm.matmul(xp, _cut(windows[:, part], pieces), flowing[:, part], out=found), (1, 2))
    by_element = total.reshape(groups, shape[2], shape[1], shape[3], each)
    return xp.ascontiguousarray(by_element.transpose(0, 4, 2, 1, 3)).reshape(shape)


def _apart(x, axis, groups) -> Any:
    """`x` with a new dimension for the groups in front of `axis`, as a view."""
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])


def _windows(xp, images, laid, groups, scratch) -> Any:
    """Matrix of each group and row of windows: a row for each element of a filter, a column for each window.

    Elements of a filter go by row, channel and column, windows by column and image.
    """
    height, width = laid
    batch, channels = images.shape[:2]
    rows, reach = padded_shape(images.shape, laid)[2:]
    make = scratch.empty if (rows, reach) == images.shape[2:] else scratch.zeros
    turned = make((rows, channels, reach, batch), images.dtype)
    xp.copyto(turned.transpose(3, 1, 0, 2)[inside(laid)], images)
    by_row, by_channel, by_column, by_image = turned.strides
    each, columns = channels // groups, width.count * batch
    unfolded = scratch.copy(
        xp.lib.stride_tricks.as_strided(
            turned,
            (groups, rows, each, width.size, width.count, batch),
            (by_channel * each, by_row, by_channel, by_column * width.dilation, by_column * width.stride, by_image),
        )
    )
    by_group, by_row, _, by_element, _, by_place = unfolded.strides
    windows = xp.lib.stride_tricks.as_strided(
        unfolded,
        (groups, height.count, height.size, each * width.size, columns),
        (by_group, by_row * height.stride, by_row * height.dilation, by_element, by_place),
    )
    # A view, unless a dilation separates the rows of a filter.
    return windows.reshape(groups, height.count, height.size * each * width.size, columns)


def _pieces(xp, work, columns) -> int:
    """Number of equal pieces of `columns`, each of them `work` multiplications, for fast products."""
    least = -(-work * columns // _SMALL_PRODUCT)
    if xp is np and least > 1:
        for pieces in range(least, min(4 * least, columns // 64) + 1):
            if columns % pieces == 0:
                return pieces
    return 1


def _cut(matrices, pieces) -> Any:
    """Matrices cut along their columns, a view."""
    columns = matrices.shape[-1]
    return matrices.reshape(*matrices.shape[:-1], pieces, columns // pieces).swapaxes(-2, -3)
