"""Parts of tensors that are chosen at random or by their values, and centers of classes."""

from __future__ import annotations

from math import prod

import numpy as np

from minigraph.kernels.indexing import added_rows, require_inside
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import narrow, widen


@kernel("random_crop")
def random_crop(xp, x, seed, *, shape):
    generator = np.random.default_rng(int(seed.reshape(-1)[0]) % 2**32)
    kept, cropped = x.shape[: -len(shape)], x.shape[-len(shape) :]
    count, flat = prod(kept), x.reshape(-1, *cropped) if prod(kept) else x.reshape(0, *cropped)
    index = [xp.arange(count).reshape(count, *[1] * len(shape))]
    for i, (length, size) in enumerate(zip(cropped, shape, strict=True)):
        places = generator.integers(0, length - size + 1, count)[:, None] + np.arange(size)
        index.append(xp.asarray(places.reshape(count, *(size if j == i else 1 for j in range(len(shape))))))
    following = xp.asarray(generator.integers(-(2**31), 2**31, seed.shape))
    return flat[tuple(index)].reshape(*kept, *shape), following


@kernel("similarity_focus")
def similarity_focus(xp, x, *, axis, indexes):
    moved = xp.moveaxis(x, axis, 1)
    matrices = moved[:, list(indexes)].reshape(len(x) * len(indexes), *moved.shape[2:])
    count, rows, columns = matrices.shape
    left, chosen = widen(matrices).copy(), xp.zeros((count, rows * columns), bool)
    each = xp.arange(count)
    for _ in range(min(rows, columns)):
        greatest = left.reshape(count, rows * columns).argmax(axis=1)
        chosen[each, greatest] = True
        left[each, greatest // columns] = -np.inf
        left[each, :, greatest % columns] = -np.inf
    focus = chosen.reshape(len(x), len(indexes), 1, rows, columns).any(axis=1)
    spread = xp.broadcast_to(focus, (len(x), moved.shape[1], rows, columns))
    return xp.ascontiguousarray(xp.moveaxis(spread, 1, axis).astype(x.dtype))


@kernel("center_loss")
def center_loss(xp, x, label, centers, rate, *, need_update):
    classes = label.reshape(-1)
    require_inside(xp, classes, len(centers), "Label")
    differences = widen(x) - widen(centers)[classes]
    losses = add_over(xp, differences * differences, (1,), keepdims=True) / 2
    moved = centers.copy()
    if need_update:
        counts = 1 + xp.bincount(classes, minlength=len(centers))[:, None].astype(differences.dtype)
        total = added_rows(xp, widen(centers), classes, differences)
        moved = narrow(xp, widen(centers) + total * rate.astype(differences.dtype) / counts, centers.dtype)
    return moved, narrow(xp, differences, x.dtype), narrow(xp, losses, x.dtype)


@kernel("center_loss_grad")
def center_loss_grad(xp, x, differences, d_loss):
    return differences * d_loss
