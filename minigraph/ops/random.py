"""Operators that draw random numbers.

With a `seed` other than 0 they draw the same numbers in every run, with seed 0 from the executor's generator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import as_index_dtype, batch_shape, constant_shape, require_one_element
from minigraph.types import DType, TensorType, as_dtype, product, require, require_floating

_NONE: Any = ()


def _drawn(
    dtype: int,
    shape: list[int],
    shape_tensor: TensorType | None = None,
    shape_tensor_list: list[TensorType] | None = None,
) -> TensorType:
    out = TensorType(as_dtype(dtype), constant_shape(shape, shape_tensor, shape_tensor_list))
    require_floating(out, "Out")
    return out


@op("uniform_random", inputs="ShapeTensor ShapeTensorList", outputs="Out", grad=None)
def uniform_random(
    shape_tensor: TensorType | None,
    shape_tensor_list: list[TensorType] | None,
    *,
    shape: list[int] = _NONE,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    dtype: int = 5,
) -> TensorType:
    """``Out`` is uniform on [`min`, `max`); the shape is given as for ``fill_constant``.

    Of the elements, counted row by row, every ``diag_step + 1``-th from the first is `diag_val`, `diag_num` in all.
    """
    require(min < max, f"min must be less than max, got min={min:g} and max={max:g}")
    require(diag_num >= 0 and diag_step >= 0, f"diag_num={diag_num} and diag_step={diag_step} must not be negative")
    out = _drawn(dtype, shape, shape_tensor, shape_tensor_list)
    size = product(out.shape)
    last = (diag_num - 1) * (diag_step + 1)
    require(size == -1 or last < size, f"diag_num={diag_num} and diag_step={diag_step} reach beyond {size} elements")
    return out


@op("gaussian_random", inputs="ShapeTensor ShapeTensorList", outputs="Out", grad=None)
def gaussian_random(
    shape_tensor: TensorType | None,
    shape_tensor_list: list[TensorType] | None,
    *,
    shape: list[int] = _NONE,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = 5,
) -> TensorType:
    """``Out`` is normal with this mean and standard deviation; the shape is given as for ``fill_constant``."""
    require(std >= 0, f"std must not be negative, got {std:g}")
    return _drawn(dtype, shape, shape_tensor, shape_tensor_list)


@op("truncated_gaussian_random", outputs="Out", grad=None)
def truncated_gaussian_random(
    *, shape: list[int], mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: int = 5
) -> TensorType:
    """``Out`` is normal, but within ``2 * std`` of `mean`; its standard deviation then is ``0.8796 * std``."""
    require(std >= 0, f"std must not be negative, got {std:g}")
    return _drawn(dtype, shape)


@op("randint", inputs="ShapeTensor ShapeTensorList", outputs="Out", grad=None)
def randint(
    shape_tensor: TensorType | None,
    shape_tensor_list: list[TensorType] | None,
    *,
    shape: list[int] = _NONE,
    low: int,
    high: int,
    dtype: int = 3,
    seed: int = 0,
) -> TensorType:
    """``Out`` is uniform on the integers from `low` up to but not including `high`.

    The shape is given as for ``fill_constant``; `dtype` is that of int32 or int64.
    """
    require(low < high, f"low must be less than high, got low={low} and high={high}")
    element = as_index_dtype(dtype)
    limits = np.iinfo(element.numpy)
    require(limits.min <= low and high - 1 <= limits.max, f"low={low} and high={high} do not fit {element}")
    return TensorType(element, constant_shape(shape, shape_tensor, shape_tensor_list))


@op("uniform_random_batch_size_like", inputs="Input", outputs="Out", grad=None)
def uniform_random_batch_size_like(
    x: TensorType,
    *,
    shape: list[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    dtype: int = 5,
) -> TensorType:
    """``uniform_random`` in the shape `shape`, where dimension `output_dim_idx` is `input_dim_idx` of Input."""
    dims = batch_shape(x, shape, input_dim_idx, output_dim_idx)
    known = [0 if dim == -1 else dim for dim in dims]
    drawn = uniform_random(
        None, None, shape=known, min=min, max=max, seed=seed, diag_num=0 if -1 in dims else diag_num,
        diag_step=diag_step, diag_val=diag_val, dtype=dtype,
    )  # fmt: skip
    return drawn.with_shape(dims)


@op("gaussian_random_batch_size_like", inputs="Input", outputs="Out", grad=None)
def gaussian_random_batch_size_like(
    x: TensorType,
    *,
    shape: list[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = 5,
) -> TensorType:
    """``gaussian_random`` in the shape `shape`, where dimension `output_dim_idx` is `input_dim_idx` of Input."""
    dims = batch_shape(x, shape, input_dim_idx, output_dim_idx)
    return gaussian_random(None, None, shape=[1], mean=mean, std=std, seed=seed, dtype=dtype).with_shape(dims)


@op("randperm", outputs="Out", grad=None)
def randperm(*, n: int, dtype: int = 3, seed: int = 0) -> TensorType:
    """``Out`` is the integers below `n` in random order, each order being equally likely."""
    require(n > 0, f"n must be positive, got {n}")
    return TensorType(as_index_dtype(dtype), (n,))


@op("sampling_id", inputs="X", outputs="Out", lod="X", grad=None)
def sampling_id(x: TensorType, *, min: float = 0.0, max: float = 1.0, seed: int = 0) -> TensorType:
    """A column number drawn for each row of X, which holds the probabilities of the columns, int64[rows].

    A number uniform on [`min`, `max`) is drawn for each row; the column is the first up to which the probabilities add
    up to more.
    """
    require_floating(x)
    require(x.rank == 2 and x.shape[1] != 0, f"X must be a matrix with columns, got {x}")
    require(0 <= min < max, f"min must not be negative and less than max, got min={min:g} and max={max:g}")
    return TensorType(DType.INT64, x.shape[:1])


@op("seed", outputs="Out", grad=None)
def seed(*, seed: int = 0) -> TensorType:
    """``Out``, int32[1], is `seed`, or if that is 0 another positive number in each run: a Seed for ``dropout``."""
    return TensorType(DType.INT32, (1,))


@op("shard_seed", inputs="Step", outputs="Out", grad=None)
def shard_seed(
    step: TensorType | None, *, seed: int = 0, number: int, shard: int, shards: int, dtype: int = 2
) -> TensorType:
    """``Out``, int32[1] or int64[1], is a Seed for ``dropout`` that follows from the arguments and the rank alone.

    `number` tells the draws of a program apart, `shard` the parts of the batch, of which this rank has `shards`.
    Without Step it is the same in every run.
    """
    require(0 <= shard < shards, f"shard must be from 0 to {shards - 1}, got {shard}")
    return TensorType(as_index_dtype(dtype), (1,))


@op("seed_draws", inputs="Step", outputs="", grad=None, has_effect=True)
def seed_draws(step: TensorType | None, *, seed: int = 0, number: int, shard: int = 0, shards: int = 0) -> tuple[()]:
    """Let the generator of the run draw from here on what follows from the arguments and the rank alone.

    Arguments are those of ``shard_seed``. Without `shards` the rank does not matter: all ranks draw the same.
    """
    if step is not None:
        require_one_element(step, "Step")
    require(shard in range(max(shards, 1)), f"shard must be from 0 to {max(shards, 1) - 1}, got {shard}")
    return ()


@op("dropout", inputs="X Seed", outputs="Out Mask~", lod="X", grad=fused("Mask"))
def dropout(
    x: TensorType,
    seed_tensor: TensorType | None,
    *,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    fix_seed: bool = False,
    seed: int = 0,
    dropout_implementation: str = "downgrade_in_infer",
) -> tuple[TensorType, TensorType]:
    """``Out = X * Mask``: each element is 0 with probability `dropout_prob`.

    `dropout_implementation` says how the expected value stays the same in training and in the test:
    ``upscale_in_train`` divides by ``1 - dropout_prob`` in training, ``downgrade_in_infer`` multiplies by it in the
    test, where nothing is dropped and Mask is 1. What is dropped is 0 even where X is infinite or NaN.

    With `fix_seed` the mask is the same in every run and made from `seed`, and so it is with Seed, of one element;
    otherwise it comes from the executor's generator.

    References
    ----------
    N. Srivastava et al., Dropout: a simple way to prevent neural networks from overfitting, JMLR 15, 2014.
    """
    require_floating(x)
    require(0 <= dropout_prob <= 1, f"dropout_prob must be in [0, 1], got {dropout_prob:g}")
    require(
        dropout_implementation in ("downgrade_in_infer", "upscale_in_train"),
        f"dropout_implementation must be downgrade_in_infer or upscale_in_train, got {dropout_implementation!r}",
    )
    if seed_tensor is not None:
        require(seed_tensor.dtype.numpy.kind in "iu", f"Seed must hold an integer, got {seed_tensor.dtype}")
        require_one_element(seed_tensor, "Seed")
    return x, x.with_dtype(DType.UINT8)
