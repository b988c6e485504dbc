"""Parts of tensors: regions that are cropped, and windows of images laid side by side."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.kernels.reshaping import numbers_from
from minigraph.kernels.sliding import add_at, elements, padded, windows_of
from minigraph.support.window_rules import lay_windows


@kernel("crop")
def crop(xp, x, y, offsets_given, *, offsets, shape):
    sizes = shape if y is None else y.shape
    return x[_region(x, sizes, numbers_from(None, offsets_given, offsets))].copy()


@kernel("crop_grad")
def crop_grad(xp, x, offsets_given, d_out, *, offsets, shape):
    return _in_place(xp, x, d_out, numbers_from(None, offsets_given, offsets))


@kernel("crop_tensor")
def crop_tensor(xp, x, shape_given, offsets_given, shape_tensor, offsets_tensor, *, offsets, shape):
    sizes = numbers_from(shape_tensor, shape_given, shape)
    return x[_region(x, sizes, numbers_from(offsets_tensor, offsets_given, offsets))].copy()


@kernel("crop_tensor_grad")
def crop_tensor_grad(xp, x, offsets_given, offsets_tensor, d_out, *, offsets, shape):
    return _in_place(xp, x, d_out, numbers_from(offsets_tensor, offsets_given, offsets))


def _region(x, sizes, offsets) -> tuple[slice, ...]:
    """Index of the region; a size of -1 reaches to the end."""
    index = []
    for dim, (length, size, offset) in enumerate(zip(x.shape, sizes, offsets, strict=True)):
        end = length if size == -1 else offset + size
        if not 0 <= offset <= end <= length:
            raise ExecutionError(
                f"X has {length} elements in dimension {dim}, not {size} from number {offset} on",
                hint="Take fewer, or begin earlier.",
            )
        index.append(slice(offset, end))
    return tuple(index)


def _in_place(xp, x, d_out, offsets) -> Any:
    """Zeros like `x`, with the gradient of a region in its place."""
    d_x = xp.zeros(x.shape, x.dtype)
    d_x[_region(x, d_out.shape, offsets)] = d_out
    return d_x


@kernel("unfold")
def unfold(xp, x, *, kernel_sizes, strides, paddings, dilations):
    laid = _laid(x, kernel_sizes, strides, paddings, dilations)
    windows = windows_of(xp, padded(xp, x, laid, 0), laid).copy()
    return windows.reshape(x.shape[0], x.shape[1] * prod(kernel_sizes), prod(windows.shape[4:]))


@kernel("unfold_grad")
def unfold_grad(xp, x, d_out, *, kernel_sizes, strides, paddings, dilations):
    laid = _laid(x, kernel_sizes, strides, paddings, dilations)
    d = d_out.reshape(*x.shape[:2], prod(kernel_sizes), *(along.count for along in laid))
    return _folded(xp, x, d, laid)


@kernel("im2sequence")
def im2sequence(xp, x, sizes, *, kernels, strides, paddings, out_stride):
    laid = _laid(x, kernels, strides, paddings, (1, 1))
    windows = windows_of(xp, padded(xp, x, laid, 0), laid).transpose(0, 4, 5, 1, 2, 3)
    counts = _counts(x, laid, sizes, strides, out_stride)
    rows = windows[xp.asarray(_inside(counts, laid))]
    offsets = np.concatenate([[0], np.cumsum(counts.prod(axis=1))])
    return rows.reshape(len(rows), prod(windows.shape[3:])), [offsets]


@kernel("im2sequence_grad")
def im2sequence_grad(xp, x, sizes, d_out, *, kernels, strides, paddings, out_stride):
    laid = _laid(x, kernels, strides, paddings, (1, 1))
    d = xp.zeros((x.shape[0], *(along.count for along in laid), x.shape[1], prod(kernels)), d_out.dtype)
    inside = _inside(_counts(x, laid, sizes, strides, out_stride), laid)
    d[xp.asarray(inside)] = d_out.reshape(len(d_out), *d.shape[3:])
    return _folded(xp, x, d.transpose(0, 3, 4, 1, 2), laid)


def _counts(x, laid, sizes, strides, out_stride) -> np.ndarray:
    """Number of windows of each image along height and width."""
    most = np.array([along.count for along in laid])
    if sizes is None:
        return np.broadcast_to(most, (x.shape[0], 2))
    lengths = -(-np.asarray(sizes.tolist()).reshape(x.shape[0], 2).astype(np.int64) // out_stride)
    reach = [along.before + along.after - along.size for along in laid]
    counts = (lengths + reach) // strides + 1
    if ((counts < 0) | (counts > most)).any():
        raise ExecutionError(
            f"Y has images of up to {lengths.max(axis=0).tolist()} elements, those of X have {list(x.shape[2:])}",
            hint="Give heights and widths of the pictures, and how many of their elements are one of X as out_stride.",
        )
    return counts


def _inside(counts, laid) -> np.ndarray:
    """Whether each window counts, by image, row and column."""
    rows, columns = (np.arange(along.count) for along in laid)
    return (rows[:, None] < counts[:, :1, None]) & (columns < counts[:, 1:, None])


def _laid(x, sizes, strides, paddings, dilations) -> Any:
    top, left, bottom, right = paddings
    return lay_windows(x.shape[2:], sizes, strides, (top, bottom, left, right), "EXPLICIT", dilations)


def _folded(xp, x, d, laid) -> Any:
    """The gradients of windows, [batch, channels, element, rows, columns], added at the places of their elements."""
    return add_at(xp, ((at, d[:, :, k]) for k, at in enumerate(elements(laid))), x, laid)
