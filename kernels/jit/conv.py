"""Depthwise convolutions of images with their channels first, without copies of windows.

Results are within 16 units of the last place of the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.offers import is_worth_it, numba_name, offer
from minigraph.kernels.jit.threads import row_pieces, run_together
from minigraph.kernels.sliding import padded_shape
from minigraph.kernels.sums import add_over
from minigraph.support.window_rules import CHANNELS_LAST, lay_windows

_LOOPS = Loops("conv")

_MOST_STEPS = 4
"""Maximum of windows of stride 1 for each window that is asked for."""

_PLACES = 4096
"""Places of the frames that are worked on at once, if an image has fewer: they stay in the nearest cache."""


class _Frame(NamedTuple):
    """How the images of a depthwise convolution lie in a frame."""

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
    laid = height, width = lay_windows(
        x.shape[2:], filter.shape[2:], attrs["strides"], attrs["paddings"], attrs["padding_algorithm"],
        attrs["dilations"],
    )  # fmt: skip
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


def _offer(type: str) -> None:
    @offer(type)
    def convolution(xp: Any, x: Any, filter: Any, bias: Any, _residual: Any, **attrs: Any) -> Any:
        return _convolution(x, filter, bias, attrs)

    @offer(f"{type}_grad")
    def gradients(xp: Any, x: Any, filter: Any, bias: Any, d_out: Any, *, wanted: Any, **attrs: Any) -> Any:
        return _gradients(x, filter, wanted, attrs)


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
        f"void({images}, {matrix}, {images}, {layout}, {vector}, {vector}, {vector}, {images}, float64[:, ::1], "
        "boolean, boolean, int64, int64)",
    )
    reach = int(frame.offsets.max())

    def gradients(x: Any, filter: Any, bias: Any, d_out: Any) -> Any:
        d_x = np.empty(x.shape, x.dtype) if wanted[0] else x
        weights = _weights(filter)
        d_weights = np.zeros(weights.shape)
        run_together([
            partial(
                loop, x, weights, d_out, *frame.layout, frame.zeros(x.dtype), frame.zeros(x.dtype),
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


for _type in ("conv2d", "depthwise_conv2d"):
    _offer(_type)
