"""Images in other sizes, by the nearest element or by linear interpolation between neighbours.

Each dimension is resized by itself, in time linear in the elements that come and go.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.indexing import added_rows
from minigraph.kernels.registry import kernel
from minigraph.kernels.tensor import number_in
from minigraph.support.window_rules import spatial_dims


class _Neighbours(NamedTuple):
    """The elements that those of a resized dimension are made of, in ascending order."""

    dim: int
    size: int
    """Number of elements before."""
    low: Any
    high: Any
    """Numbers of two neighbours; the nearest element has one."""
    weight: Any
    """Share of the second, float32."""


@kernel("nearest_interp")
@kernel("bilinear_interp")
def interp(
    xp, x, out_size, size_tensor, factor, *,
    data_layout, out_d, out_h, out_w, scale, interp_method, align_corners, align_mode,
):  # fmt: skip
    sizes = _sizes(x, out_size, size_tensor, factor, (out_h, out_w), scale, data_layout)
    neighbours = _neighbours(xp, x.shape, sizes, interp_method, align_corners, align_mode)
    if interp_method != "nearest" and x.dtype == np.uint8:
        return _resized_bytes(xp, x, *neighbours)
    return _resized(xp, x, neighbours)


@kernel("nearest_interp_grad")
@kernel("bilinear_interp_grad")
def interp_grad(
    xp, x, out_size, size_tensor, factor, d_out, *,
    data_layout, out_d, out_h, out_w, scale, interp_method, align_corners, align_mode,
):  # fmt: skip
    sizes = _sizes(x, out_size, size_tensor, factor, (out_h, out_w), scale, data_layout)
    return _gathered(xp, d_out, _neighbours(xp, x.shape, sizes, interp_method, align_corners, align_mode))


@kernel("trilinear_interp")
def trilinear_interp(
    xp, x, out_size, size_tensor, factor, *, data_layout, out_d, out_h, out_w, scale, align_corners, align_mode
):
    sizes = _sizes(x, out_size, size_tensor, factor, (out_d, out_h, out_w), scale, data_layout)
    return _resized(xp, x, _linear(xp, x.shape, sizes, align_corners, align_mode))


@kernel("trilinear_interp_grad")
def trilinear_interp_grad(
    xp, x, out_size, size_tensor, factor, d_out, *, data_layout, out_d, out_h, out_w, scale, align_corners, align_mode
):
    sizes = _sizes(x, out_size, size_tensor, factor, (out_d, out_h, out_w), scale, data_layout)
    return _gathered(xp, d_out, _linear(xp, x.shape, sizes, align_corners, align_mode))


def _sizes(x, out_size, size_tensor, factor, sizes, scale, data_layout) -> dict[int, int]:
    """The new size of each dimension that is resized."""
    dims = spatial_dims(data_layout, x.ndim)
    if size_tensor:
        sizes = [number_in(part) for part in size_tensor]
    elif out_size is not None:
        sizes = out_size.tolist()
    elif factor is not None or scale > 0:
        scale = scale if factor is None else factor.item()
        sizes = [int(x.shape[dim] * scale) for dim in dims]
    return dict(zip(dims, map(int, sizes), strict=True))


def _ratio(size, new, align_corners) -> Any:
    """Elements before for one element now; in float32, as in fluid, because it decides which neighbours are taken."""
    if new == 1:
        return np.float32(0)
    return np.float32(size - 1) / np.float32(new - 1) if align_corners else np.float32(size) / np.float32(new)


def _neighbours(xp, shape, sizes, method, align_corners, align_mode) -> list[_Neighbours]:
    if method == "nearest":
        return _nearest(xp, shape, sizes, align_corners)
    return _linear(xp, shape, sizes, align_corners, align_mode)


def _nearest(xp, shape, sizes, align_corners) -> list[_Neighbours]:
    found = []
    for dim, new in sizes.items():
        size = shape[dim]
        places = xp.arange(new, dtype=np.float32) * _ratio(size, new, align_corners)
        if align_corners:
            places = places.astype(np.float64) + 0.5  # as in fluid: a float32 may reach the next integer
        low = xp.minimum(places.astype(np.int64), size - 1)
        found.append(_Neighbours(dim, size, low, None, None))
    return found


def _linear(xp, shape, sizes, align_corners, align_mode) -> list[_Neighbours]:
    found = []
    for dim, new in sizes.items():
        size = shape[dim]
        places = xp.arange(new, dtype=np.float32)
        ratio = _ratio(size, new, align_corners)
        if align_mode == 0 and not align_corners:
            places = xp.maximum((places.astype(np.float64) + 0.5) * float(ratio) - 0.5, 0)
        else:
            places = places * ratio
        low = xp.minimum(places.astype(np.int64), size - 1)
        weight = places.astype(np.float32) - low.astype(np.float32)
        found.append(_Neighbours(dim, size, low, xp.minimum(low + 1, size - 1), weight))
    return found


def _resized(xp, x, neighbours) -> Any:
    for each in neighbours:
        low = xp.take(x, each.low, axis=each.dim)
        if each.high is not None:
            of_low, of_high = _shares(each, x)
            low *= of_low
            low += xp.take(x, each.high, axis=each.dim) * of_high
        x = low
    return x


def _resized_bytes(xp, x, rows, columns) -> Any:
    """Images of bytes: float32 sums of four neighbours, in the order of fluid, cut to integers."""
    wide = x.astype(np.float32)
    of_rows, of_columns = _shares(rows, wide), _shares(columns, wide)
    total = xp.float32(0)
    for column, of_column in zip((columns.low, columns.high), of_columns, strict=True):
        for row, of_row in zip((rows.low, rows.high), of_rows, strict=True):
            part = xp.take(xp.take(wide, row, axis=rows.dim), column, axis=columns.dim)
            part *= of_row
            part *= of_column
            total = total + part
    return total.astype(np.uint8)


def _gathered(xp, d_out, neighbours) -> Any:
    """The gradient of what was resized; the last dimension that was resized comes first."""
    for each in reversed(neighbours):
        if each.high is None:
            d_out = _added(xp, d_out, each.low, each)
        else:
            of_low, of_high = _shares(each, d_out)
            d_low = _added(xp, d_out * of_low, each.low, each)
            d_out = d_low + _added(xp, d_out * of_high, each.high, each)
    return d_out


def _shares(each, x) -> tuple[Any, Any]:
    """The shares of both neighbours, as arrays that broadcast along their dimension; both are numbers of float32."""
    weight = each.weight.reshape([-1 if dim == each.dim else 1 for dim in range(x.ndim)])
    return (1 - weight).astype(x.dtype), weight.astype(x.dtype)


def _added(xp, parts, numbers, each) -> Any:
    """Zeros with `each.size` elements along the dimension, with each of `parts` added to the one with its number."""
    rows = xp.moveaxis(parts, each.dim, 0)
    if xp is np and rows.size and rows.dtype != np.float16:
        # Numbers ascend, so that the parts of one element are neighbours.
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        total = np.zeros((each.size, *rows.shape[1:]), rows.dtype)
        total[numbers[starts]] = np.add.reduceat(rows, starts, axis=0)
    else:
        total = added_rows(xp, xp.empty((each.size, *rows.shape[1:]), rows.dtype), numbers, rows)
    return xp.array(xp.moveaxis(total, 0, each.dim), order="C")
