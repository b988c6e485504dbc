"""Convolutions of images with their channels first: depthwise ones without copies of windows, others with faster ones.

Results are within 16 units of the last place of the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.buffers import Scratch, deliver, unshared
from minigraph.kernels.conv import by_group, has_few_places, has_long_rows
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_worth_it, numba_name, offer, vectors
from minigraph.kernels.jit.threads import row_pieces, run_together
from minigraph.kernels.sliding import lay_on, padded_shape
from minigraph.kernels.sums import add_over
from minigraph.support.window_rules import CHANNELS_LAST, Windows

_LOOPS, _WINDOWS = Loops("conv"), Loops("windows")

_MOST_STEPS = 4
"""Maximum of windows of stride 1 for each window that is asked for."""

_PLACES = 4096
"""Places of the frames that are worked on at once, if an image has fewer: they stay in the nearest cache."""


class _Frame(NamedTuple):
    """Layout of the images of a depthwise convolution in a frame."""

    kind: str
    offsets: Any
    inside: int
    plane: int
    row: int
    steps: Any
    images: int
    """Images that are worked on at once."""
    shape: tuple[int, ...]
    """Shape of the result."""

    @property
    def layout(self) -> tuple[Any, ...]:
        return self.offsets, self.inside, self.plane, self.row, self.steps

    def zeros(self, dtype: Any, more: int = 0) -> Any:
        return np.zeros(self.images * self.plane + more, dtype)


def _frame(x: Any, filter: Any, attrs: dict[str, Any]) -> _Frame | None:
    """The frame for images `x`; None if the convolution is not depthwise or not for these loops."""
    kind, groups = numba_name(x.dtype), attrs["groups"]
    is_depthwise = len(x.shape) == 4 and 1 < groups == x.shape[1] and attrs["data_format"] != CHANNELS_LAST
    if kind is None or not is_depthwise or not is_worth_it(x) or x.dtype != filter.dtype or 0 in x.shape:
        return None
    laid = height, width = _lay(x, filter, attrs)
    if height.stride * width.stride > _MOST_STEPS or min(height.count, width.count) < 1:
        return None
    rows, row = padded_shape(x.shape, laid)[2:]
    down, along = np.arange(height.size) * height.dilation * row, np.arange(width.size) * width.dilation
    return _Frame(
        kind=kind,
        offsets=np.add.outer(down, along).reshape(-1),
        inside=height.before * row + width.before,
        plane=rows * row,
        row=row,
        steps=np.array([height.stride * row, width.stride]),
        images=max(1, min(x.shape[0], _PLACES // (rows * row))),
        shape=(x.shape[0], filter.shape[0], height.count, width.count),
    )


def _lay(x: Any, filter: Any, attrs: dict[str, Any]) -> tuple[Windows, ...]:
    names = ("strides", "paddings", "padding_algorithm", "dilations")
    return lay_on(x, filter, *[attrs[name] for name in names])


def _offer(type: str) -> None:
    @offer(type)
    def convolution(xp: Any, x: Any, filter: Any, bias: Any, _residual: Any, **attrs: Any) -> Any:
        return _convolution(x, filter, bias, attrs) or _by_product(x, filter, bias, attrs)

    @offer(f"{type}_grad")
    def gradients(xp: Any, x: Any, filter: Any, bias: Any, d_out: Any, *, wanted: Any, **attrs: Any) -> Any:
        return _gradients(x, filter, wanted, attrs) or _gradients_by_products(x, filter, wanted, attrs)


def _convolution(x: Any, filter: Any, bias: Any, attrs: dict[str, Any]) -> Callable[..., Any] | None:
    frame = _frame(x, filter, attrs)
    if frame is None or (bias is not None and bias.dtype != x.dtype):
        return None
    images, matrix, vector = f"{frame.kind}[:, :, :, ::1]", f"{frame.kind}[:, ::1]", f"{frame.kind}[::1]"
    layout = "int64[::1], int64, int64, int64, int64[::1]"
    loop = _LOOPS.compiled(
        "depthwise", f"void({images}, {matrix}, {vector}, {layout}, {vector}, {vector}, {images}, int64, int64)"
    )

    def convolve(x: Any, filter: Any, bias: Any, _residual: Any, out: Any = None) -> Any:
        buffer = unshared(np, out, x, filter, *([] if bias is None else [bias]))
        result = np.empty(frame.shape, x.dtype) if buffer is None else buffer
        weights = _weights(filter)
        addends = np.zeros(len(filter), x.dtype) if bias is None else bias
        run_together([
            partial(
                loop, x, weights, addends, *frame.layout, frame.zeros(x.dtype), frame.zeros(x.dtype), result, *edges
            )
            for edges in row_pieces(len(filter), result.size // len(filter))
        ])  # fmt: skip
        return deliver(np, result, out)

    return convolve


def _gradients(x: Any, filter: Any, wanted: Any, attrs: dict[str, Any]) -> Callable[..., Any] | None:
    frame = _frame(x, filter, attrs)
    if frame is None:
        return None
    images, matrix, vector = f"{frame.kind}[:, :, :, ::1]", f"{frame.kind}[:, ::1]", f"{frame.kind}[::1]"
    layout = "int64[::1], int64, int64, int64, int64[::1]"
    loop = _LOOPS.compiled(
        "depthwise_grad",
        f"void({images}, {matrix}, {images}, {layout}, int64[::1], {vector}, {vector}, {vector}, {images}, "
        "float64[:, ::1], boolean, boolean, int64, int64)",
    )
    reach = int(frame.offsets[-1])
    mirrored = reach - frame.offsets

    def gradients(x: Any, filter: Any, bias: Any, d_out: Any) -> Any:
        d_x = np.empty(x.shape, x.dtype) if wanted[0] else x
        weights = _weights(filter)
        d_weights = np.zeros(weights.shape)
        run_together([
            partial(
                loop, x, weights, d_out, *frame.layout, mirrored, frame.zeros(x.dtype), frame.zeros(x.dtype),
                frame.zeros(x.dtype, reach), d_x, d_weights, wanted[0], wanted[1], *edges,
            )
            for edges in row_pieces(x.shape[1], d_out.size // x.shape[1])
        ])  # fmt: skip
        d_filter = d_weights.astype(x.dtype).reshape(filter.shape) if wanted[1] else None
        d_bias = add_over(np, d_out, (0, 2, 3)) if bias is not None and wanted[2] else None
        return (d_x if wanted[0] else None), d_filter, d_bias

    return gradients


def _weights(filter: Any) -> Any:
    """The filters as rows of a matrix."""
    return filter.reshape(len(filter), filter.shape[2] * filter.shape[3])


# By products of matrices, for batches of images with few windows each


class _Windows:
    """The windows of a batch as the columns of a matrix, by place and image, and arrays with the batch last."""

    def __init__(self, kind: str, shape: Sequence[int], laid: Sequence[Any]) -> None:
        batch, images, matrix = f"{kind}[:, :, ::1]", f"{kind}[:, :, ::1]", f"{kind}[:, ::1]"
        numbers = "UniTuple(int64, 6)"
        self._turn = _WINDOWS.compiled("turn", f"void({images}, {batch}, int64, int64)")
        self._turn_back = _WINDOWS.compiled("turn_back", f"void({batch}, {kind}[::1], {images}, int64, int64)")
        given = f"{batch}, {numbers}, {numbers}, {matrix}, int64, int64"
        self._unfold = _WINDOWS.compiled("unfold", f"void({given})")
        self._fold = _WINDOWS.compiled("fold", f"void({given})")
        self._along = [(e.count, e.size, e.stride, e.dilation, e.length, e.before) for e in laid]
        self.shape = shape[1] * laid[0].size * laid[1].size, laid[0].count * laid[1].count * shape[0]

    def turned(self, x: Any, scratch: Scratch) -> Any:
        """[channels, places, batch] of images."""
        (flat,), (batch, channels, *places) = vectors(x), x.shape
        result = scratch.empty((channels, prod(places), batch), x.dtype)
        self._run(self._turn, channels, x.size, flat.reshape(batch, channels, prod(places)), result)
        return result

    def images(self, turned: Any, addends: Any, result: Any) -> None:
        """Write to the images `result` what has the batch last, plus a number for each channel."""
        channels, batch = result.shape[1], len(result)
        whole = result.reshape(batch, channels, result[0, 0].size)
        self._run(self._turn_back, channels, result.size, turned.reshape(channels, -1, batch), addends, whole)

    def unfolded(self, x: Any, scratch: Scratch) -> Any:
        """The windows of images."""
        matrix = scratch.empty(self.shape, x.dtype)
        self._run(self._unfold, x.shape[1], matrix.size, self.turned(x, scratch), *self._along, matrix)
        return matrix

    def folded(self, matrix: Any, result: Any, scratch: Scratch) -> None:
        """Write to the images `result` the sums of the columns at the places of their windows."""
        batch, channels, *places = result.shape
        turned = scratch.empty((channels, prod(places), batch), result.dtype)
        self._run(self._fold, channels, matrix.size, turned, *self._along, matrix)
        self.images(turned, np.zeros(channels, result.dtype), result)

    @staticmethod
    def _run(loop: Callable[..., Any], channels: int, work: int, *arguments: Any) -> None:
        run_together([partial(loop, *arguments, *edges) for edges in row_pieces(channels, work // channels)])


def _windows(x: Any, filter: Any, attrs: dict[str, Any]) -> tuple[_Windows, tuple[int, ...]] | None:
    """The windows of images `x` and the shape of the result; None if other ways are faster or types do not fit."""
    kind = numba_name(x.dtype)
    if kind is None or len(x.shape) != 4 or x.dtype != filter.dtype or 0 in (*x.shape, *filter.shape):
        return None
    if attrs["data_format"] == CHANNELS_LAST:
        return None
    laid = height, width = _lay(x, filter, attrs)
    # Windows of one element are a matrix without a loop.
    is_apt = has_few_places(np, laid, x.shape[0]) and not has_long_rows(np, laid, x.shape[0])
    is_apt = is_apt and height.size * width.size > 1
    if not is_apt or 0 in (height.count, width.count) or not is_worth_it(x):
        return None
    return _Windows(kind, x.shape, laid), (x.shape[0], filter.shape[0], height.count, width.count)


def _by_product(x: Any, filter: Any, bias: Any, attrs: dict[str, Any]) -> Callable[..., Any] | None:
    found = _windows(x, filter, attrs)
    if found is None or (bias is not None and bias.dtype != x.dtype):
        return None
    (windows, shape), groups = found, attrs["groups"]

    def convolve(x: Any, filter: Any, bias: Any, _residual: Any, out: Any = None) -> Any:
        buffer = unshared(np, out, x, filter, *([] if bias is None else [bias]))
        result, scratch = np.empty(shape, x.dtype) if buffer is None else buffer, Scratch(np)
        matrix = _in_groups(windows.unfolded(x, scratch), groups)
        product = scratch.empty((groups, len(filter) // groups, matrix.shape[2]), x.dtype)
        np.matmul(by_group(filter, groups), matrix, out=product)
        windows.images(product, np.zeros(len(filter), x.dtype) if bias is None else bias, result)
        return deliver(np, result, out)

    return convolve


def _gradients_by_products(x: Any, filter: Any, wanted: Any, attrs: dict[str, Any]) -> Callable[..., Any] | None:
    found = _windows(x, filter, attrs)
    if found is None:
        return None
    (windows, _), groups = found, attrs["groups"]

    def gradients(x: Any, filter: Any, bias: Any, d_out: Any) -> Any:
        scratch, d_x, d_filter = Scratch(np), None, None
        flowing, weights = windows.turned(d_out, scratch), by_group(filter, groups)
        flowing = _in_groups(flowing.reshape(len(filter), windows.shape[1]), groups)
        if wanted[1]:
            matrix = _in_groups(windows.unfolded(x, scratch), groups)
            d_filter = np.matmul(flowing, matrix.swapaxes(1, 2)).reshape(filter.shape)
        if wanted[0]:
            d_x, matrix = np.empty(x.shape, x.dtype), scratch.empty(windows.shape, x.dtype)
            np.matmul(weights.swapaxes(1, 2), flowing, out=_in_groups(matrix, groups))
            windows.folded(matrix, d_x, scratch)
        d_bias = add_over(np, d_out, (0, 2, 3)) if bias is not None and wanted[2] else None
        return d_x, d_filter, d_bias

    return gradients


def _in_groups(matrix: Any, groups: int) -> Any:
    return matrix.reshape(groups, len(matrix) // groups, matrix.shape[1])


for _type in ("conv2d", "depthwise_conv2d"):
    _offer(_type)
