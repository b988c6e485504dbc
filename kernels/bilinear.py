"""Operators that are linear in each of two inputs, as matrix products. float16 is computed in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minigraph.kernels.cuda import gemm
from minigraph.kernels.indexing import require_inside
from minigraph.kernels.rank_table import on_host
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


@kernel("tree_conv")
def tree_conv(xp, nodes, edges, filter, *, max_depth):
    patches = _patches(xp, nodes, _shares(xp, nodes, edges, max_depth))
    out = gemm.dot(xp, patches, _by_place(xp, filter))
    return narrow(xp, out.reshape(*nodes.shape[:2], *filter.shape[2:]), nodes.dtype)


@kernel("tree_conv_grad")
def tree_conv_grad(xp, nodes, edges, filter, d_out, *, max_depth, wanted):
    (batch, count, features), columns = nodes.shape, filter.shape[2] * filter.shape[3]
    shares = _shares(xp, nodes, edges, max_depth)
    d = widen(d_out).reshape(batch * count, columns)
    d_nodes = d_filter = None
    if wanted[0]:
        d_patches = gemm.dot(xp, d, _by_place(xp, filter).T).reshape(batch, 3 * count, features)
        d_nodes = narrow(xp, gemm.matmul(xp, shares.swapaxes(1, 2), d_patches), nodes.dtype)
    if wanted[1]:
        by_place = gemm.dot(xp, _patches(xp, nodes, shares).T, d).reshape(3, features, *filter.shape[2:])
        d_filter = narrow(xp, xp.ascontiguousarray(by_place.swapaxes(0, 1)), filter.dtype)
    return d_nodes, d_filter


def _patches(xp, nodes, shares) -> Any:
    """The nodes below each node, added up by their places: [batch * nodes, 3 * features]."""
    batch, count, features = nodes.shape
    return gemm.matmul(xp, shares, widen(nodes)).reshape(batch * count, 3 * features)


def _by_place(xp, filter) -> Any:
    """The filter as a matrix [3 * features, size * filters]."""
    features, places, size, filters = filter.shape
    return xp.ascontiguousarray(widen(filter).swapaxes(0, 1)).reshape(places * features, size * filters)


def _shares(xp, nodes, edges, max_depth) -> Any:
    """Weights of the nodes in the patch of each, for each of its places: [batch, nodes * 3, nodes]."""
    batch, count = nodes.shape[:2]
    require_inside(xp, edges, count + 1, "EdgeSet")
    shares = np.zeros((batch, count, 3, count), widen(nodes).dtype)
    for share, tree in zip(shares, on_host(edges).tolist(), strict=True):
        children: dict[int, list[int]] = {}
        for parent, child in tree:
            if not parent or not child:
                break
            children.setdefault(parent, []).append(child)
        for root in range(1, min(count, 1 + sum(map(len, children.values()))) + 1):
            for node, places in _patch(children, root, max_depth):
                share[root - 1, :, node - 1] += places
    return xp.asarray(shares.reshape(batch, 3 * count, count))


def _patch(children, root, max_depth) -> Iterator[tuple[int, tuple[float, float, float]]]:
    """Each node below `root`, with how far it lies at the left, at the right and at the top."""
    pending, seen = [(root, 0.5, 0)], {root}
    while pending:
        node, offset, depth = pending.pop()
        top = (max_depth - depth) / max_depth
        left = (1 - top) * offset
        yield node, (left, (1 - top) * (1 - left), top)
        below = children.get(node, []) if depth + 1 < max_depth else []
        for i, child in enumerate(below):
            if child not in seen:
                seen.add(child)
                pending.append((child, i / (len(below) - 1) if len(below) > 1 else 0.5, depth + 1))


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
