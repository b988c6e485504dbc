"""Convolutions whose windows take elements at moved places. float16 is computed in float32.

Images are computed one by one. Of each the elements that all windows take make up a matrix, with which filters are
multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.cuda import gemm
from minigraph.kernels.indexing import added_rows
from minigraph.kernels.registry import kernel
from minigraph.kernels.upcast import narrow, widen
from minigraph.support.window_rules import lay_windows


@kernel("deformable_conv")
def deformable_conv(xp, x, offset, mask, filter, *, strides, paddings, dilations, groups, deformable_groups):
    lay = _Layout(strides, paddings, dilations, deformable_groups)
    weights = widen(filter).reshape(groups, len(filter) // groups, -1)
    result = xp.empty((len(x), len(filter), *offset.shape[2:]), weights.dtype)
    for image, out, places, factors in _images(x, result, offset, mask, filter.shape, lay):
        matrix, _ = _taken(xp, image, places, filter.shape, lay)
        if factors is not None:
            matrix *= factors[:, None]
        gemm.matmul(
            xp, weights, matrix.reshape(groups, -1, matrix.shape[-1]), out=out.reshape(groups, len(weights[0]), -1)
        )
    return narrow(xp, result, x.dtype)


@kernel("deformable_conv_grad")
def deformable_conv_grad(
    xp, x, offset, mask, filter, d_out, *, strides, paddings, dilations, groups, deformable_groups, wanted
):
    lay = _Layout(strides, paddings, dilations, deformable_groups)
    weights = widen(filter).reshape(groups, len(filter) // groups, -1)
    d_weights = xp.zeros_like(weights)
    d_x, d_offset = xp.zeros(x.shape, weights.dtype), xp.zeros(offset.shape, weights.dtype)
    d_mask = [] if mask is None else [xp.empty(mask.shape, weights.dtype)]
    for i, (image, d, places, factors) in enumerate(_images(x, d_out, offset, mask, filter.shape, lay)):
        d = widen(d).reshape(groups, len(weights[0]), -1)
        matrix, corners = _taken(xp, image, places, filter.shape, lay)
        d_matrix = gemm.matmul(xp, weights.swapaxes(1, 2), d).reshape(matrix.shape)
        if factors is not None:
            d_mask[0][i] = (d_matrix * matrix).sum(axis=1).reshape(mask[i].shape)
            matrix *= factors[:, None]
            d_matrix *= factors[:, None]
        d_weights += gemm.matmul(xp, d, matrix.reshape(groups, -1, matrix.shape[-1]).swapaxes(1, 2))
        d_places = d_offset[i].reshape(places.shape)
        for corner in corners:
            d_places += (d_matrix * _at(xp, image, corner)).sum(axis=1)[:, :, None] * corner.slopes
            if wanted[0]:
                _add_back(xp, d_x[i], d_matrix, corner, lay)
    found = [d_x, d_offset, *d_mask, d_weights.reshape(filter.shape)]
    return tuple(narrow(xp, each, x.dtype) if ask else None for each, ask in zip(found, wanted, strict=True))


@kernel("deformable_conv_v1")
def deformable_conv_v1(xp, x, offset, filter, *, strides, paddings, dilations, groups, deformable_groups):
    attrs = {"paddings": paddings, "dilations": dilations, "groups": groups, "deformable_groups": deformable_groups}
    return deformable_conv(xp, x, offset, None, filter, strides=strides, **attrs)


@kernel("deformable_conv_v1_grad")
def deformable_conv_v1_grad(
    xp, x, offset, filter, d_out, *, strides, paddings, dilations, groups, deformable_groups, wanted
):
    attrs = {"paddings": paddings, "dilations": dilations, "groups": groups, "deformable_groups": deformable_groups}
    return deformable_conv_grad(xp, x, offset, None, filter, d_out, strides=strides, wanted=wanted, **attrs)


class _Layout(NamedTuple):
    """Strides, paddings and dilations of windows, and the number of parts of the channels with offsets of their own."""

    strides: Any
    paddings: Any
    dilations: Any
    parts: int


class _Corner(NamedTuple):
    """One of the four elements around each place, with all places of a part in a row."""

    numbers: Any
    """Numbers of the elements in an image, [parts, elements of a window, windows]."""
    weights: Any
    slopes: Any
    """The slopes of the weights by row and column, [parts, elements of a window, 2, windows]."""


def _images(x, result, offset, mask, shape, lay) -> Iterator[tuple[Any, ...]]:
    """Each image with its result, its offsets and its factors, in parts."""
    elements = shape[2] * shape[3]
    for i in range(len(x)):
        places = widen(offset[i]).reshape(lay.parts, elements, 2, -1)
        factors = None if mask is None else widen(mask[i]).reshape(lay.parts, elements, -1)
        yield widen(x[i]), result[i], places, factors


def _taken(xp, image, offsets, shape, lay) -> tuple[Any, list[_Corner]]:
    """The elements that the windows take, [parts, channels of a part, elements of a window, windows]."""
    corners = list(_corners(xp, image.shape[1:], offsets, shape, lay))
    total = _at(xp, image, corners[0]) * corners[0].weights[:, None]
    for corner in corners[1:]:
        total += _at(xp, image, corner) * corner.weights[:, None]
    return total, corners


def _corners(xp, sizes, offsets, shape, lay) -> Iterator[_Corner]:
    laid = lay_windows(sizes, shape[2:], lay.strides, lay.paddings, "EXPLICIT", lay.dilations)
    axes = zip(laid, shape[2:], lay.strides, lay.dilations, lay.paddings, strict=True)
    rows, columns = (
        xp.arange(size)[:, None] * dilation + xp.arange(windows.count) * stride - padding
        for windows, size, stride, dilation, padding in axes
    )
    # [rows of a window, its columns, windows down, windows to the right]
    whole = (len(rows), len(columns), rows.shape[1], columns.shape[1])
    along = rows[:, None, :, None], columns[None, :, None, :]
    regular = [xp.broadcast_to(each, whole).reshape(offsets.shape[1], -1).astype(offsets.dtype) for each in along]
    places = [offsets[:, :, i] + regular[i] for i in (0, 1)]
    first = [xp.floor(place) for place in places]
    behind = [place - start for place, start in zip(places, first, strict=True)]
    for down in (0, 1):
        for right in (0, 1):
            row, column = first[0] + down, first[1] + right
            inside = (row >= 0) & (row < sizes[0]) & (column >= 0) & (column < sizes[1])
            by_row, by_column = (part if far else 1 - part for part, far in zip(behind, (down, right), strict=True))
            slopes = xp.stack([(2 * down - 1) * by_column * inside, (2 * right - 1) * by_row * inside], axis=2)
            row, column = (xp.where(inside, each, 0).astype(np.int64) for each in (row, column))
            yield _Corner(row * sizes[1] + column, by_row * by_column * inside, slopes)


def _at(xp, image, corner) -> Any:
    """The elements of all channels at a corner, [parts, channels of a part, elements of a window, windows]."""
    parts, elements, windows = corner.numbers.shape
    flat = image.reshape(parts, len(image) // parts, -1)
    found = xp.take_along_axis(flat, corner.numbers.reshape(parts, 1, -1), axis=2)
    return found.reshape(*flat.shape[:2], elements, windows)


def _add_back(xp, d_image, d_matrix, corner, lay) -> None:
    """Add what flows to the elements at a corner to the gradient of an image."""
    flowing = d_matrix * corner.weights[:, None]
    flat = d_image.reshape(lay.parts, len(d_image) // lay.parts, -1)
    for part, numbers, rows in zip(flat, corner.numbers, flowing, strict=True):
        part += added_rows(xp, part.T, numbers.reshape(-1), rows.reshape(len(part), -1).T).T
