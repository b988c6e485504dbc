"""Parts of features, features normalized over all data, shuffled rows, samples with some tags.

float16 is computed in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.kernels.sequence_rows import chosen, lengths_of, offsets_of, ranges
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import narrow, widen

NEVER_SHOWN = 1e-7
"""Greatest absolute count that stands for a slot that was never shown."""


@kernel("partial_concat")
def partial_concat(xp, xs, *, start_index, length):
    return xp.concatenate([_part(x, start_index, length) for x in xs], axis=1)


@kernel("partial_concat_grad")
def partial_concat_grad(xp, xs, d_out, *, start_index, length, wanted):
    width = d_out.shape[1] // len(xs)
    parts = (d_out[:, i * width : (i + 1) * width] for i in range(len(xs)))
    return _laid_back(xp, xs, parts, start_index, wanted[0])


@kernel("partial_sum")
def partial_sum(xp, xs, *, start_index, length):
    total = _part(xs[0], start_index, length).copy()
    for x in xs[1:]:
        total += _part(x, start_index, length)
    return total


@kernel("partial_sum_grad")
def partial_sum_grad(xp, xs, d_out, *, start_index, wanted):
    return _laid_back(xp, xs, (d_out for _ in xs), start_index, wanted[0])


def _part(x, start_index, length) -> Any:
    """The columns from `start_index`, `length` of them or the rest."""
    start = start_index % x.shape[1]
    return x[:, start : x.shape[1] if length < 0 else start + length]


def _laid_back(xp, xs, parts, start_index, wanted) -> list[Any]:
    """Each part at its columns in zeros of the shape of its matrix; None where no gradient is wanted."""
    found: list[Any] = []
    for x, part, is_wanted in zip(xs, parts, wanted, strict=True):
        found.append(xp.zeros(x.shape, part.dtype) if is_wanted else None)
        if is_wanted:
            start = start_index % x.shape[1]
            found[-1][:, start : start + part.shape[1]] = part
    return found


@kernel("shuffle_batch")
def shuffle_batch(xp, x, seed):
    generator = np.random.default_rng(int(seed.reshape(-1)[0]) % 2**32)
    rows = _rows(x)
    order = xp.asarray(generator.permutation(len(rows)))
    return rows[order].reshape(x.shape), order, xp.asarray(generator.integers(-(2**31), 2**31, seed.shape))


@kernel("shuffle_batch_grad")
def shuffle_batch_grad(xp, order, d_out):
    d_x = xp.empty_like(_rows(d_out))
    d_x[order] = _rows(d_out)
    return d_x.reshape(d_out.shape)


@kernel("filter_by_instag")
def filter_by_instag(xp, x, tags, wanted, x_lod, tags_lod, *, is_lod, out_val_if_empty):
    if is_lod and not x_lod:
        raise ExecutionError("Ins has no sequences", hint="Feed it as a LoDTensor, or say is_lod=False.")
    offsets = x_lod[-1] if is_lod else np.arange(len(x) + 1)
    count, tagged = len(offsets) - 1, lengths_of(tags_lod[-1])
    if len(tagged) != count:
        raise ExecutionError(f"Ins has {count} samples, but Ins_tag has {len(tagged)} sequences")
    # Tags are compared on the host, because the number of samples that stay decides shapes.
    found = np.isin(np.array(tags.reshape(-1).tolist(), np.int64), wanted.reshape(-1).tolist())
    stay = np.add.reduceat(np.append(found, False), tags_lod[-1][:-1]).astype(bool) & (tagged > 0)
    (which,) = stay.nonzero()
    if not len(which):
        row = xp.full((1, x.shape[1]), out_val_if_empty, x.dtype)
        return row, xp.zeros((1, 1), xp.float32), xp.asarray([[0, 1, 1]], np.int64), [offsets_of([1])]
    rows, (kept,) = chosen(which, [offsets])
    index_map = np.stack([kept[:-1], offsets[which], lengths_of(kept)], 1)
    return x[xp.asarray(rows)], xp.ones((len(which), 1), xp.float32), xp.asarray(index_map), [kept]


@kernel("filter_by_instag_grad")
def filter_by_instag_grad(xp, index_map, weights, x, d_out, x_lod=None, *, is_lod, out_val_if_empty):
    d_x = xp.zeros_like(x)
    if float(weights[0, 0]):  # else Out is the row that stands for no sample
        _, starts, lengths = np.array(index_map.tolist(), np.int64).T
        d_x[xp.asarray(ranges(starts, lengths))] = d_out
    return d_x


def _rows(x) -> Any:
    return x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])


@kernel("cvm")
def cvm(xp, x, shown, x_lod=None, *, use_cvm):
    if not use_cvm:
        return x[:, 2:].copy()
    y = x.copy()
    counts = xp.log(widen(x[:, :2]) + 1)
    y[:, 0] = counts[:, 0]
    y[:, 1] = counts[:, 1] - counts[:, 0]
    return y


@kernel("cvm_grad")
def cvm_grad(xp, x, shown, d_y, x_lod=None, *, use_cvm):
    d_x = xp.empty(x.shape, d_y.dtype)
    d_x[:, :2] = shown if x_lod is None else shown[xp.asarray(np.repeat(*_numbered(x_lod[0])))]
    d_x[:, 2:] = d_y[:, 2:] if use_cvm else d_y
    return d_x


def _numbered(offsets) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(len(offsets) - 1), np.diff(offsets)


@kernel("data_norm")
def data_norm(xp, scale_w, bias, x, size, total, square_total, *, slot_dim, enable_scale_and_shift):
    means = widen(total) / widen(size)
    scales = xp.sqrt(widen(size) / widen(square_total))
    y = (widen(x) - means) * scales
    if enable_scale_and_shift:
        y = y * widen(scale_w) + widen(bias)
    if slot_dim > 0:
        y *= _is_shown(xp, x, slot_dim)
    return narrow(xp, y, x.dtype), narrow(xp, means, size.dtype), narrow(xp, scales, size.dtype)


@kernel("data_norm_grad")
def data_norm_grad(xp, scale_w, x, means, scales, d_y, *, epsilon, slot_dim, enable_scale_and_shift, wanted):
    d, differences = widen(d_y), widen(x) - widen(means)
    counts = xp.full(means.shape, x.shape[0], d.dtype)
    values = widen(x)
    if slot_dim > 0:
        shown = _is_shown(xp, x, slot_dim)
        d = d * shown
        counts = shown.sum(axis=0, dtype=d.dtype)
        values, differences = values * shown, differences * shown
    total = add_over(xp, values, (0,))
    square_total = add_over(xp, differences * differences, (0,))
    if slot_dim > 0:
        total, square_total = (sums / xp.maximum(counts, 1) for sums in (total, square_total))
    square_total = square_total + counts * epsilon
    if slot_dim > 0:
        counts = xp.minimum(counts, 1)
    d_x = d * widen(scales)
    learned: list[Any] = [None, None]
    if enable_scale_and_shift:
        learned = [add_over(xp, d * differences * widen(scales), (0,)), add_over(xp, d, (0,))]
        d_x = d_x * widen(scale_w)
    sizes = xp.zeros(means.shape, d.dtype) + counts
    found = [d_x, sizes, total, square_total, *learned]
    return tuple(
        narrow(xp, each, x.dtype) if is_wanted and each is not None else None
        for each, is_wanted in zip(found, wanted, strict=True)
    )


def _is_shown(xp, x, slot_dim) -> Any:
    """Whether the slot of each element was shown."""
    counts = x.reshape(x.shape[0], -1, slot_dim)[:, :, :1]
    return xp.repeat(xp.abs(counts) >= NEVER_SHOWN, slot_dim, axis=2).reshape(x.shape)
