"""Images sampled at places between their elements, and encodings of positions. float16 is computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.cuda import gemm
from minigraph.kernels.indexing import combine_rows
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_windows import offsets_of_rows
from minigraph.kernels.upcast import narrow, widen


@kernel("affine_grid")
def affine_grid(xp, theta, shape, *, output_shape):
    height, width = _sizes(shape, output_shape)
    grid = _base(xp, height, width, widen(theta).dtype)
    places = gemm.matmul(xp, grid, widen(theta).swapaxes(1, 2))
    return narrow(xp, places.reshape(len(theta), height, width, 2), theta.dtype)


@kernel("affine_grid_grad")
def affine_grid_grad(xp, shape, d_out, *, output_shape):
    batch, height, width, _ = d_out.shape
    d = widen(d_out).reshape(batch, height * width, 2)
    return narrow(xp, gemm.matmul(xp, d.swapaxes(1, 2), _base(xp, height, width, d.dtype)), d_out.dtype)


def _sizes(shape, output_shape) -> list[int]:
    return [int(n) for n in (output_shape if shape is None else shape.tolist())][2:]


def _base(xp, height, width, dtype) -> Any:
    """The places (x, y, 1) of a regular grid, row by row."""
    y, x = xp.meshgrid(xp.linspace(-1, 1, height), xp.linspace(-1, 1, width), indexing="ij")
    return xp.stack([x.ravel(), y.ravel(), xp.ones(height * width)], axis=1).astype(dtype)


@kernel("grid_sampler")
def grid_sampler(xp, x, grid):
    images = widen(x)
    total = xp.zeros((*x.shape[:2], *grid.shape[1:3]), images.dtype)
    for rows, columns, inside, weight, _ in _corners(xp, x.shape, widen(grid)):
        total += _picked(xp, images, rows, columns, inside) * weight[:, None]
    return narrow(xp, total, x.dtype)


@kernel("grid_sampler_grad")
def grid_sampler_grad(xp, x, grid, d_out, *, wanted):
    images, d = widen(x), widen(d_out)
    batch, channels, height, width = x.shape
    d_x = xp.zeros((batch * height * width, channels), images.dtype)
    d_grid = xp.zeros(grid.shape, images.dtype)
    samples = xp.arange(batch)[:, None, None]
    for rows, columns, inside, weight, slopes in _corners(xp, x.shape, widen(grid)):
        if wanted[0]:
            parts = (d * (weight * inside)[:, None]).transpose(0, 2, 3, 1)
            places = (samples * height + rows) * width + columns
            combine_rows(xp, "add", d_x, places.reshape(-1), parts.reshape(-1, channels))
        if wanted[1]:
            flowing = (d * _picked(xp, images, rows, columns, inside)).sum(axis=1)
            for axis, slope in enumerate(slopes):
                d_grid[..., axis] += flowing * slope
    if wanted[0]:
        d_x = xp.ascontiguousarray(d_x.reshape(batch, height * width, channels).swapaxes(1, 2)).reshape(x.shape)
    return (narrow(xp, d_x, x.dtype) if wanted[0] else None), (narrow(xp, d_grid, x.dtype) if wanted[1] else None)


def _corners(xp, shape, grid) -> Any:
    """The four elements around each place: row, column, whether it is inside, its weight and the slopes.

    The slopes are those of the weight by the coordinates x and y of the place.
    """
    sizes = shape[3], shape[2]
    places = [(grid[..., i] + 1) * ((size - 1) / 2) for i, size in enumerate(sizes)]
    first = [xp.floor(place) for place in places]
    behind = [place - start for place, start in zip(places, first, strict=True)]
    for down in (0, 1):
        for right in (0, 1):
            column, row = first[0] + right, first[1] + down
            inside = (column >= 0) & (column < sizes[0]) & (row >= 0) & (row < sizes[1])
            x_weight, y_weight = (part if far else 1 - part for part, far in zip(behind, (right, down), strict=True))
            slopes = (
                (2 * right - 1) * ((sizes[0] - 1) / 2) * y_weight, (2 * down - 1) * ((sizes[1] - 1) / 2) * x_weight,
            )  # fmt: skip
            at = [xp.where(inside, each, 0).astype(np.int64) for each in (row, column)]
            yield *at, inside, x_weight * y_weight, slopes


def _picked(xp, images, rows, columns, inside) -> Any:
    """The elements of all channels, [batch, channels, rows, columns]; 0 outside."""
    found = images[xp.arange(len(images))[:, None, None], :, rows, columns]
    return found.transpose(0, 3, 1, 2) * inside[:, None]


@kernel("add_position_encoding")
def add_position_encoding(xp, x, x_lod=None, *, alpha, beta):
    if beta == 0:
        return narrow(xp, widen(x) * alpha, x.dtype)
    positions = np.arange(x.shape[1])
    if x.ndim == 2:
        offsets = offsets_of_rows(x, x_lod)
        positions = np.arange(len(x)) - np.repeat(offsets[:-1], np.diff(offsets))
    half = x.shape[-1] // 2
    exponents = xp.arange(half) / (half - 1) if half > 1 else xp.ones(half)
    angles = xp.asarray(positions)[:, None] / 10000.0**exponents
    encoding = xp.concatenate([xp.sin(angles), xp.cos(angles)], axis=1) * beta
    return narrow(xp, widen(x) * alpha + encoding.astype(widen(x).dtype), x.dtype)


@kernel("add_position_encoding_grad")
def add_position_encoding_grad(xp, d_out, *, alpha):
    return narrow(xp, widen(d_out) * alpha, d_out.dtype)
