"""Random numbers: drawn from the executor's generator, or from one of their own when a seed is set."""

from __future__ import annotations

import numpy as np

from minigraph.kernels.registry import kernel
from minigraph.types import DType


def _generator(xp, rng, seed):
    return xp.random.default_rng(seed) if seed else rng


def _shape(shape, shape_tensor, shape_tensor_list):
    if shape_tensor_list is not None:
        return tuple(int(part.reshape(())) for part in shape_tensor_list)
    if shape_tensor is not None:
        return tuple(int(dim) for dim in shape_tensor)
    return tuple(shape)


def _working_dtype(element):
    """The generators draw float32 and float64."""
    return element if element in (np.float32, np.float64) else np.dtype("float32")


@kernel("uniform_random")
def uniform_random(
    xp, shape_tensor, shape_tensor_list, *, shape, min, max, seed, diag_num, diag_step, diag_val, dtype, rng
):
    element = DType(dtype).numpy
    working = _working_dtype(element)
    dims = _shape(shape, shape_tensor, shape_tensor_list)
    values = _generator(xp, rng, seed).random(dims, dtype=working)
    values *= working.type(max) - working.type(min)
    values += working.type(min)
    # Rounding may reach the upper bound, which is not part of the interval.
    xp.minimum(values, np.nextafter(working.type(max), working.type(min)), out=values) if min < max else None
    if diag_num:
        values.reshape(-1)[xp.arange(diag_num) * (diag_step + 1)] = diag_val
    return values.astype(element, copy=False)


@kernel("gaussian_random")
def gaussian_random(xp, shape_tensor, shape_tensor_list, *, shape, mean, std, seed, dtype, rng):
    element = DType(dtype).numpy
    working = _working_dtype(element)
    values = _generator(xp, rng, seed).standard_normal(_shape(shape, shape_tensor, shape_tensor_list), dtype=working)
    values *= working.type(std)
    values += working.type(mean)
    return values.astype(element, copy=False)


@kernel("truncated_gaussian_random")
def truncated_gaussian_random(xp, *, shape, mean, std, seed, dtype, rng):
    element = DType(dtype).numpy
    working = _working_dtype(element)
    generator = _generator(xp, rng, seed)
    values = generator.standard_normal(tuple(shape), dtype=working)
    outside = xp.abs(values) > 2
    while count := int(outside.sum()):
        values[outside] = generator.standard_normal(count, dtype=working)
        outside = xp.abs(values) > 2
    values *= working.type(std)
    values += working.type(mean)
    return values.astype(element, copy=False)


@kernel("dropout")
def dropout(xp, x, seed_tensor, *, dropout_prob, is_test, fix_seed, seed, dropout_implementation, rng):
    upscale = dropout_implementation == "upscale_in_train"
    keep = 1.0 - dropout_prob
    if is_test:
        return (x.copy() if upscale else x * x.dtype.type(keep)), xp.ones(x.shape, "uint8")
    if fix_seed:
        rng = xp.random.default_rng(int(seed_tensor.reshape(())) if seed_tensor is not None else seed)
    mask = rng.random(x.shape, dtype=np.float32) >= dropout_prob
    result = x * mask
    if upscale and keep > 0:
        result *= x.dtype.type(1.0 / keep)
    return result, mask.astype("uint8")


@kernel("dropout_grad")
def dropout_grad(xp, mask, d_out, *, dropout_prob, is_test, dropout_implementation):
    upscale = dropout_implementation == "upscale_in_train"
    keep = 1.0 - dropout_prob
    if is_test:
        return d_out.copy() if upscale else d_out * d_out.dtype.type(keep)
    result = d_out * mask.astype(d_out.dtype)
    if upscale and keep > 0:
        result *= d_out.dtype.type(1.0 / keep)
    return result
