"""Operators that are linear in each of two inputs, as matrix products. float16 is computed in float32."""

from __future__ import annotations

from typing import Any

from minigraph.kernels.cuda import gemm
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_windows import lookahead, lookahead_grad, offsets_of_rows
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import narrow, widen


@kernel("bilinear_tensor_product")
def bilinear_tensor_product(xp, x, y, weight, bias):
    result = add_over(xp, _x_times_weight(xp, widen(x), widen(weight)) * widen(y)[:, None, :], (2,))
    if bias is not None:
        result += widen(bias)
    return narrow(xp, result, x.dtype)


@kernel("bilinear_tensor_product_grad")
def bilinear_tensor_product_grad(xp, x, y, weight, d_out, *, wanted):
    wide_x, wide_y, wide_weight, d = (widen(array) for array in (x, y, weight, d_out))
    (batch, size), rows = d.shape, x.shape[1]
    d_x = d_y = d_weight = d_bias = None
    if wanted[0]:
        by_y = gemm.dot(xp, wide_y, wide_weight.reshape(size * rows, y.shape[1]).T)
        d_x = narrow(xp, _weighted(xp, d, by_y.reshape(batch, size, rows)), x.dtype)
    if wanted[1]:
        d_y = narrow(xp, _weighted(xp, d, _x_times_weight(xp, wide_x, wide_weight)), y.dtype)
    if wanted[2]:
        pairs = (d[:, :, None] * wide_x[:, None, :]).reshape(batch, size * rows)
        d_weight = narrow(xp, gemm.dot(xp, pairs.T, wide_y).reshape(weight.shape), weight.dtype)
    if wanted[3]:
        d_bias = narrow(xp, add_over(xp, d, (0,), keepdims=True), x.dtype)
    return d_x, d_y, d_weight, d_bias


def _x_times_weight(xp, x, weight) -> Any:
    """``x @ weight[i]`` for each `i`, [batch, size, columns of the weight]."""
    size, rows, columns = weight.shape
    side_by_side = xp.ascontiguousarray(weight.swapaxes(0, 1)).reshape(rows, size * columns)
    return gemm.dot(xp, x, side_by_side).reshape(len(x), size, columns)


def _weighted(xp, weights, x) -> Any:
    """The sum over dimension 1 of `x`, times its weights, for each sample."""
    return gemm.matmul(xp, weights[:, None, :], x)[:, 0]


@kernel("fsp")
def fsp(xp, x, y):
    places = x.shape[2] * x.shape[3]
    product = gemm.matmul(xp, _flat(widen(x)), _flat(widen(y)).swapaxes(1, 2))
    return narrow(xp, product / places, x.dtype)


@kernel("fsp_grad")
def fsp_grad(xp, x, y, d_out, *, wanted):
    d = widen(d_out) / (x.shape[2] * x.shape[3])
    d_x = d_y = None
    if wanted[0]:
        d_x = narrow(xp, gemm.matmul(xp, d, _flat(widen(y))).reshape(x.shape), x.dtype)
    if wanted[1]:
        d_y = narrow(xp, gemm.matmul(xp, d.swapaxes(1, 2), _flat(widen(x))).reshape(y.shape), y.dtype)
    return d_x, d_y


def _flat(images) -> Any:
    batch, channels, height, width = images.shape
    return images.reshape(batch, channels, height * width)


@kernel("row_conv")
def row_conv(xp, x, filter, x_lod=None):
    if x.ndim == 2:
        return lookahead(xp, x, filter, offsets_of_rows(x, x_lod))
    wide, weights = widen(x), widen(filter)
    total = wide * weights[0]
    for i in range(1, min(len(filter), x.shape[1])):
        total[:, :-i] += wide[:, i:] * weights[i]
    return narrow(xp, total, x.dtype)


@kernel("row_conv_grad")
def row_conv_grad(xp, x, filter, d_out, x_lod=None, *, wanted):
    if x.ndim == 2:
        d_x, d_filter = lookahead_grad(xp, x, filter, d_out, offsets_of_rows(x, x_lod))
        return (d_x if wanted[0] else None), (d_filter if wanted[1] else None)
    wide, weights, d = widen(x), widen(filter), widen(d_out)
    steps = x.shape[1]
    d_x, d_filter = d * weights[0], xp.zeros(filter.shape, wide.dtype)
    for i in range(min(len(filter), steps)):
        ahead = d[:, : steps - i]
        if i and wanted[0]:
            d_x[:, i:] += ahead * weights[i]
        if wanted[1]:
            d_filter[i] = add_over(xp, ahead * wide[:, i:], (0, 1))
    return (narrow(xp, d_x, x.dtype) if wanted[0] else None), (narrow(xp, d_filter, x.dtype) if wanted[1] else None)
