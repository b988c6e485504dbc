"""Operators on pairs of sequences, whose offsets are host arrays; a pair is a matrix, or the size of an image."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import lengths_of, offsets_of


@kernel("match_matrix_tensor")
def match_matrix_tensor(xp, x, y, w, x_lod, y_lod, *, dim_t):
    tmp = xp.matmul(x, w.reshape(w.shape[0], -1))
    by_t = tmp.reshape(-1, dim_t, w.shape[2])
    # [t, length of A, n] times [n, length of B].
    parts = [xp.matmul(by_t[a].transpose(1, 0, 2), y[b].T).reshape(-1, 1) for a, b in _pairs(x_lod[-1], y_lod[-1])]
    out = xp.concatenate([*parts, xp.empty((0, 1), x.dtype)])
    return out, tmp.reshape(-1, 1), [offsets_of([len(part) for part in parts])]


@kernel("match_matrix_tensor_grad")
def match_matrix_tensor_grad(xp, x, y, w, tmp, d_out, x_lod, y_lod, *, dim_t):
    by_t = tmp.reshape(-1, dim_t, w.shape[2])
    d_by_t, d_y, start = xp.zeros_like(by_t), xp.zeros_like(y), 0
    for a, b in _pairs(x_lod[-1], y_lod[-1]):
        rows, columns = a.stop - a.start, b.stop - b.start
        part = d_out[start : start + dim_t * rows * columns].reshape(dim_t, rows, columns)
        start += part.size
        d_by_t[a] = xp.matmul(part, y[b]).transpose(1, 0, 2)
        d_y[b] = xp.matmul(part.transpose(0, 2, 1), by_t[a].transpose(1, 0, 2)).sum(0)
    d_tmp = d_by_t.reshape(-1, dim_t * w.shape[2])
    return xp.matmul(d_tmp, w.reshape(w.shape[0], -1).T), d_y, xp.matmul(x.T, d_tmp).reshape(w.shape)


def _pairs(x_offsets, y_offsets) -> list[tuple[slice, slice]]:
    """The rows of each sequence of X, and of that of Y at the same place."""
    if len(x_offsets) != len(y_offsets):
        raise ExecutionError(
            f"X has {len(x_offsets) - 1} sequences, but Y has {len(y_offsets) - 1}",
            hint="Feed as many sequences of Y as of X.",
        )
    return [
        (slice(*x), slice(*y)) for x, y in zip(pairwise(x_offsets.tolist()), pairwise(y_offsets.tolist()), strict=True)
    ]


class _Image(NamedTuple):
    """One image of X, and the places of its windows in Col and of its results in Out."""

    elements: slice
    shape: tuple[int, int, int]
    windows: slice
    results: slice
    places: int
    """Number of windows of a channel."""


class _Windows(NamedTuple):
    """Sizes of the windows of `var_conv_2d`."""

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]

    def images(self, x_lod, row_lod, column_lod, out_channels) -> list[_Image]:
        sizes = _image_sizes(self.channels, x_lod, row_lod, column_lod)
        found, window, result = [], 0, 0
        for start, height, width in sizes:
            places = -(-height // self.stride[0]) * -(-width // self.stride[1])
            elements = slice(start, start + self.channels * height * width)
            windows = slice(window, window + self.channels * self.kernel[0] * self.kernel[1] * places)
            results = slice(result, result + out_channels * places)
            found.append(_Image(elements, (self.channels, height, width), windows, results, places))
            window, result = windows.stop, results.stop
        return found

    def parts(self, height, width) -> Iterator[tuple[int, int, Any, Any]]:
        """Each element of the kernel, the windows where it lies in the image, and the pixels that it lies on."""
        down = list(_strides(height, self.kernel[0], self.stride[0]))
        across = list(_strides(width, self.kernel[1], self.stride[1]))
        for i, (rows, source_rows) in enumerate(down):
            for j, (columns, source_columns) in enumerate(across):
                yield i, j, (slice(None), rows, columns), (slice(None), source_rows, source_columns)

    def shape(self, height, width) -> tuple[int, int, int, int, int]:
        """The shape of the windows of an image: channel, element of the kernel, place."""
        return self.channels, *self.kernel, -(-height // self.stride[0]), -(-width // self.stride[1])


def _strides(size, kernel, stride) -> Iterator[tuple[slice, slice]]:
    """The windows along a dimension in which each element of the kernel lies inside, and the pixels it lies on."""
    for place in range(kernel):
        step = place - kernel // 2
        first = max(0, -(step // stride))
        last = max(first, min(-(-size // stride), -(-(size - step) // stride)))
        yield slice(first, last), slice(first * stride + step, max(0, last * stride + step), stride)


def _image_sizes(channels, x_lod, row_lod, column_lod) -> list[tuple[int, int, int]]:
    """First element, height and width of each image."""
    offsets, heights, widths = x_lod[-1], lengths_of(row_lod[-1]), lengths_of(column_lod[-1])
    if not len(offsets) - 1 == len(heights) == len(widths):
        raise ExecutionError(
            f"X has {len(offsets) - 1} images, but ROW has {len(heights)} sequences and COLUMN {len(widths)}",
            hint="Feed a sequence of rows and one of columns for each image.",
        )
    wrong = (lengths_of(offsets) != channels * heights * widths).nonzero()[0]
    if len(wrong):
        i, has = int(wrong[0]), lengths_of(offsets)
        raise ExecutionError(
            f"image {i} of X has {has[i]} elements, but {channels} channels of {heights[i]} x {widths[i]} pixels",
            hint="Make the length of each image channels * length of the rows * length of the columns.",
        )
    return list(zip(offsets.tolist(), heights.tolist(), widths.tolist(), strict=False))


@kernel("var_conv_2d")
def var_conv_2d(
    xp, x, row, column, w, x_lod, row_lod, column_lod, *,
    InputChannel, OutputChannel, StrideH, StrideW, KernelH, KernelW,
):  # fmt: skip
    windows = _Windows(InputChannel, (KernelH, KernelW), (StrideH, StrideW))
    images = windows.images(x_lod, row_lod, column_lod, OutputChannel)
    col = xp.zeros((images[-1].windows.stop if images else 0, 1), x.dtype)
    out = xp.empty((images[-1].results.stop if images else 0, 1), x.dtype)
    for image in images:
        pixels = x[image.elements].reshape(image.shape)
        found = col[image.windows].reshape(windows.shape(*image.shape[1:]))
        for i, j, target, source in windows.parts(*image.shape[1:]):
            found[:, i, j][target] = pixels[source]
        out[image.results] = xp.matmul(w, found.reshape(w.shape[1], image.places)).reshape(-1, 1)
    return out, col, [offsets_of([image.results.stop - image.results.start for image in images])]


@kernel("var_conv_2d_grad")
def var_conv_2d_grad(
    xp, x, w, col, row, column, d_out, x_lod, row_lod, column_lod, *,
    InputChannel, OutputChannel, StrideH, StrideW, KernelH, KernelW,
):  # fmt: skip
    windows = _Windows(InputChannel, (KernelH, KernelW), (StrideH, StrideW))
    d_x, d_w = xp.zeros_like(x), xp.zeros_like(w)
    for image in windows.images(x_lod, row_lod, column_lod, OutputChannel):
        d_part = d_out[image.results].reshape(OutputChannel, image.places)
        d_w += xp.matmul(d_part, col[image.windows].reshape(w.shape[1], image.places).T)
        d_windows = xp.matmul(w.T, d_part).reshape(windows.shape(*image.shape[1:]))
        d_pixels = d_x[image.elements].reshape(image.shape)
        for i, j, target, source in windows.parts(*image.shape[1:]):
            d_pixels[source] += d_windows[:, i, j][target]
    return d_x, d_w


@kernel("sequence_topk_avg_pooling")
def sequence_topk_avg_pooling(xp, x, row, column, x_lod, row_lod, column_lod, *, topks, channel_num):
    starts, widths = (xp.asarray(each) for each in _rows_of_images(channel_num, x_lod, row_lod, column_lod))
    places = xp.arange(max(int(lengths_of(column_lod[-1]).max(initial=0)), topks[-1]))
    inside = places < widths[:, None]
    at = xp.where(inside, starts[:, None] + places, 0)
    values = x.reshape(-1)[at] if len(x) else xp.zeros(at.shape, x.dtype)
    # NaN sorts last; first in its row it reaches the result.
    order = xp.where(inside, xp.where(xp.isnan(values), -xp.inf, -values), xp.inf)
    order = xp.argsort(order, axis=1, kind="stable")[:, : topks[-1]]
    found = xp.take_along_axis(inside, order, 1)
    sums = xp.cumsum(xp.where(found, xp.take_along_axis(values, order, 1), 0), 1)
    counts = xp.asarray(topks)
    out = (sums[:, counts - 1] / counts).astype(x.dtype)
    pos = xp.where(found, order, -1).astype(xp.int32)
    return out.reshape(-1, channel_num * len(topks)), pos.reshape(-1)


@kernel("sequence_topk_avg_pooling_grad")
def sequence_topk_avg_pooling_grad(
    xp, x, row, column, pos, d_out, x_lod, row_lod, column_lod, *, topks, channel_num
):  # fmt: skip
    starts, _ = _rows_of_images(channel_num, x_lod, row_lod, column_lod)
    places = pos.reshape(-1, topks[-1])
    # The element of rank j counts in each sum of more than j elements.
    counts = np.array(topks)
    shares = np.where(np.arange(topks[-1]) < counts[:, None], 1 / counts[:, None], 0).astype(d_out.dtype)
    d_places = xp.matmul(d_out.reshape(-1, len(topks)), xp.asarray(shares))
    # No element has two ranks, so that each is written once; the last one takes what is missing.
    d_x = xp.zeros(len(x) + 1, d_out.dtype)
    d_x[xp.where(places < 0, len(x), xp.asarray(starts)[:, None] + places)] = d_places
    return d_x[:-1].reshape(x.shape)


def _rows_of_images(channels, x_lod, row_lod, column_lod) -> tuple[np.ndarray, np.ndarray]:
    """First element and number of elements of each row of each channel; the channels of a row follow each other."""
    starts, widths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start, height, width in _image_sizes(channels, x_lod, row_lod, column_lod):
        rows, channel = np.divmod(np.arange(height * channels), channels)
        starts.append(start + (channel * height + rows) * width)
        widths.append(np.full(height * channels, width))
    return np.concatenate(starts), np.concatenate(widths)
