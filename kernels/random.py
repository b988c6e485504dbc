"""Random numbers, drawn from the generator of the run, or from a new one if a seed is fixed.

The generators draw float32 and float64; float16 is rounded from float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.tensor import copied, given_shape, like_batch, number_in, times
from minigraph.support.communicator import current
from minigraph.types import as_dtype


def _seeded(xp, seed) -> Any:
    return xp.random.default_rng(seed % 2**32)


def _drawing(dtype) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Element type of the result, and that of the numbers drawn for it."""
    element = as_dtype(dtype).numpy
    return element, np.dtype(np.float64 if element == np.float64 else np.float32)


@kernel("uniform_random")
def uniform_random(
    xp, shape_tensor, shape_tensor_list, *, shape, min, max, seed, diag_num, diag_step, diag_val, dtype, rng=None
):
    element, drawn = _drawing(dtype)
    generator = _seeded(xp, seed) if seed else rng
    x = generator.random(given_shape(shape, shape_tensor, shape_tensor_list), dtype=drawn)
    xp.multiply(x, max - min, out=x)
    xp.add(x, min, out=x)
    x = x.astype(element, copy=False)
    # Rounding may have reached the upper bound, or passed the lower one where that is no number of the type.
    low, high = element.type(min), element.type(max)
    low = low if float(low) >= min else np.nextafter(low, high)
    high = high if float(high) < max else np.nextafter(high, low)
    x = x.clip(low, high, out=x)
    if diag_num:
        step = diag_step + 1
        if (diag_num - 1) * step >= x.size:
            raise ExecutionError(f"diag_num={diag_num} and diag_step={diag_step} reach beyond {x.size} elements")
        x.reshape(-1)[: diag_num * step : step] = diag_val
    return x


@kernel("gaussian_random")
def gaussian_random(xp, shape_tensor, shape_tensor_list, *, shape, mean, std, seed, dtype, rng=None):
    element, drawn = _drawing(dtype)
    generator = _seeded(xp, seed) if seed else rng
    x = generator.standard_normal(given_shape(shape, shape_tensor, shape_tensor_list), dtype=drawn)
    return _moved(xp, x, mean, std, element)


@kernel("truncated_gaussian_random")
def truncated_gaussian_random(xp, *, shape, mean, std, seed, dtype, rng=None):
    element, drawn = _drawing(dtype)
    generator = _seeded(xp, seed) if seed else rng
    x = generator.standard_normal(shape, dtype=drawn)
    flat = x.reshape(-1)
    outside = xp.flatnonzero(xp.abs(flat) > 2)
    while outside.size:  # one in 22 of those drawn
        again = generator.standard_normal(outside.size, dtype=drawn)
        flat[outside] = again
        outside = outside[xp.abs(again) > 2]
    return _moved(xp, x, mean, std, element)


def _moved(xp, x, mean, std, element) -> Any:
    xp.multiply(x, std, out=x)
    xp.add(x, mean, out=x)
    return x.astype(element, copy=False)


@kernel("randint")
def randint(xp, shape_tensor, shape_tensor_list, *, shape, low, high, dtype, seed, rng=None):
    generator = _seeded(xp, seed) if seed else rng
    dims = given_shape(shape, shape_tensor, shape_tensor_list)
    return generator.integers(low, high, dims, dtype=as_dtype(dtype).numpy)


@kernel("uniform_random_batch_size_like")
def uniform_random_batch_size_like(
    xp, x, *, shape, input_dim_idx, output_dim_idx, min, max, seed, diag_num, diag_step, diag_val, dtype, rng=None
):
    return uniform_random(
        xp, None, None, shape=like_batch(x, shape, input_dim_idx, output_dim_idx), min=min, max=max, seed=seed,
        diag_num=diag_num, diag_step=diag_step, diag_val=diag_val, dtype=dtype, rng=rng,
    )  # fmt: skip


@kernel("gaussian_random_batch_size_like")
def gaussian_random_batch_size_like(
    xp, x, *, shape, input_dim_idx, output_dim_idx, mean, std, seed, dtype, rng=None
):  # fmt: skip
    dims = like_batch(x, shape, input_dim_idx, output_dim_idx)
    return gaussian_random(xp, None, None, shape=dims, mean=mean, std=std, seed=seed, dtype=dtype, rng=rng)


@kernel("randperm")
def randperm(xp, *, n, dtype, seed, rng=None):
    generator = _seeded(xp, seed) if seed else rng
    # Sorted random numbers: CuPy's generators have no permutations. Two of 64 bits are hardly ever alike.
    keys = generator.integers(0, 2**63, n, dtype=np.uint64)
    return xp.argsort(keys, kind="stable").astype(as_dtype(dtype).numpy)


@kernel("sampling_id")
def sampling_id(xp, x, *, min, max, seed, rng=None):
    generator = _seeded(xp, seed) if seed else rng
    drawn = min + (max - min) * generator.random(len(x), dtype=np.float64)
    reached = xp.cumsum(x, axis=1, dtype=np.float64) > drawn[:, None]
    # Rounding may keep the sum of all below 1: the last column that has a chance is left then.
    last = x.shape[1] - 1 - xp.argmax(x[:, ::-1] > 0, axis=1)
    return xp.where(reached[:, -1], xp.argmax(reached, axis=1), last).astype(np.int64)


@kernel("seed")
def seed(xp, *, seed, rng=None):
    return xp.full(1, seed, np.int32) if seed else rng.integers(1, 2**31 - 1, 1, dtype=np.int32)


@kernel("shard_seed")
def shard_seed(xp, step, *, seed, number, shard, shards, dtype):
    # Of 31 bits, and not 0, which would mean no seed.
    drawn = int(_of_shard(step, seed, number, shard, shards).generate_state(1)[0]) >> 1
    return xp.full(1, drawn or 1, as_dtype(dtype).numpy)


@kernel("seed_draws")
def seed_draws(xp, step, *, seed, number, shard, shards, rng=None):
    fresh = xp.random.default_rng(_of_shard(step, seed, number, shard, shards)).bit_generator
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = fresh.state
    else:  # CuPy's cannot be given a state
        rng.bit_generator = fresh
    return ()


def _of_shard(step, seed, number, shard, shards) -> np.random.SeedSequence:
    """The source of the seeds of one shard; without `shards` one that is no shard's."""
    place = [current().rank * shards + shard] if shards else [0, 1]
    at = 0 if step is None else int(step[0]) % 2**64  # steps are counted from 1
    return np.random.SeedSequence([seed % 2**32, number, at, *place])


@kernel("dropout")
def dropout(
    xp, x, seed_tensor, *, dropout_prob, is_test, fix_seed, seed, dropout_implementation, rng=None, out=None
):  # fmt: skip
    result_out, mask_out = out or (None, None)
    if is_test:
        return _at_rest(xp, x, dropout_prob, dropout_implementation, result_out), _ones(xp, x.shape, mask_out)
    if seed_tensor is not None:
        rng = _seeded(xp, number_in(seed_tensor))
    elif fix_seed:
        rng = _seeded(xp, seed)
    dropped = rng.random(x.shape, dtype=np.float32) < dropout_prob
    result = times(xp, x, _upscaling(dropout_prob, dropout_implementation), result_out)
    xp.copyto(result, 0, where=dropped)
    mask = xp.logical_not(dropped, out=dropped).view(np.uint8)
    return result, deliver(xp, mask, mask_out)


@kernel("dropout_grad")
def dropout_grad(xp, mask, d_out, *, dropout_prob, is_test, dropout_implementation, out=None):
    if is_test:
        return _at_rest(xp, d_out, dropout_prob, dropout_implementation, out)
    d_x = times(xp, d_out, _upscaling(dropout_prob, dropout_implementation), out)
    return xp.multiply(d_x, mask, out=d_x)


def _upscaling(dropout_prob, implementation) -> float:
    """Scale of what dropout keeps; unused when everything is dropped."""
    kept = _kept(dropout_prob)
    return 1 / kept if implementation == "upscale_in_train" and kept else 1.0


def _at_rest(xp, x, dropout_prob, implementation, out) -> Any:
    """Result of dropout in a test."""
    return copied(xp, x, out) if implementation == "upscale_in_train" else times(xp, x, _kept(dropout_prob), out)


def _kept(dropout_prob) -> float:
    """The share that is not dropped: rounded to float32, as attributes are, also for wider elements."""
    return float(np.float32(1) - np.float32(dropout_prob))


def _ones(xp, shape, out) -> Any:
    if out is None:
        return xp.ones(shape, np.uint8)
    out.fill(1)
    return out
