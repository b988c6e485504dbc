"""Random tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, emit, layer
from minigraph.layers.tensor import numbers_of, shape_given
from minigraph.types import as_dtype

__all__ = [
    "gaussian_random", "gaussian_random_batch_size_like", "randint", "randn", "randperm", "sampling_id",
    "uniform_random", "uniform_random_batch_size_like",
]  # fmt: skip


@layer
def uniform_random(
    shape: Sequence[int | Variable] | Variable,
    dtype: Any = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Uniform on [`min`, `max`); a `seed` other than 0 gives the same numbers in each run."""
    helper = LayerHelper("uniform_random")
    given = shape_given(shape, numbers=numbers_of(helper, "int64"))
    return helper.emit("uniform_random", **given, dtype=int(as_dtype(dtype)), min=min, max=max, seed=seed)


@layer
def gaussian_random(
    shape: Sequence[int | Variable] | Variable,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Normal with `mean` and `std`; a `seed` other than 0 gives the same numbers in each run."""
    return emit("gaussian_random", **shape_given(shape), dtype=int(as_dtype(dtype)), mean=mean, std=std, seed=seed)


@layer
def randint(
    low: int,
    high: int | None = None,
    shape: Sequence[int | Variable] | Variable | None = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Uniform on the integers from `low` up to but not including `high`, or with one of them from 0 up to it.

    Parameters
    ----------
    shape : sequence of int or Variable, optional
        Default: [1].
    out : Variable, optional
        Written to, instead of a variable called `name`.
    dtype : {'int64', 'int32'}
    device : str, optional
        Kept as an attribute; the numbers are drawn where the program runs.
    seed : int
        One other than 0 gives the same numbers in each run.
    """
    helper = LayerHelper("randint", name)
    low, high = (0, low) if high is None else (low, high)
    given = shape_given([1] if shape is None else shape, numbers=numbers_of(helper, "int64"))
    # As in fluid, the name is that of the result, not of a layer.
    if out is None and name is not None:
        out = helper.block.create_var(name=name)
    given |= {"low": low, "high": high, "dtype": int(as_dtype(dtype or "int64")), "seed": seed}
    return _stopped(helper.emit("randint", into=out, **given, op_device=device), stop_gradient)


@layer
def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """`uniform_random`, dimension `output_dim_idx` being that of `input` at `input_dim_idx`."""
    attrs = {"min": min, "max": max, "seed": seed}
    return _batch_size_like("uniform", input, shape, dtype, input_dim_idx, output_dim_idx, attrs)


@layer
def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """`gaussian_random`, dimension `output_dim_idx` being that of `input` at `input_dim_idx`."""
    attrs = {"mean": mean, "std": std, "seed": seed}
    return _batch_size_like("gaussian", input, shape, dtype, input_dim_idx, output_dim_idx, attrs)


def _batch_size_like(
    kind: str,
    x: Variable,
    shape: Sequence[int],
    dtype: Any,
    input_dim_idx: int,
    output_dim_idx: int,
    attrs: dict[str, Any],
) -> Variable:
    op_type = f"{kind}_random_batch_size_like"
    dims: dict[str, Any] = {"input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx}
    return emit(op_type, Input=x, shape=shape, dtype=int(as_dtype(dtype)), **dims, **attrs)


@layer
def randn(
    shape: Sequence[int | Variable] | Variable,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Normal with mean 0 and standard deviation 1, float32 by default; `device` is kept as an attribute."""
    attrs = {"mean": 0.0, "std": 1.0, "dtype": int(as_dtype(dtype or "float32")), "seed": 0, "op_device": device}
    result = LayerHelper("randn", name).emit("gaussian_random", into=out, **shape_given(shape), **attrs)
    return _stopped(result, stop_gradient)


@layer
def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """The integers below `n` in random order; a `seed` other than 0 gives the same order in each run."""
    result = emit("randperm", into=out, n=n, dtype=int(as_dtype(dtype)), seed=seed, op_device=device)
    return _stopped(result, stop_gradient)


def _stopped(result: Variable, stop_gradient: bool) -> Variable:
    result.stop_gradient = bool(stop_gradient)
    return result


@layer
def sampling_id(
    x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Variable:  # fmt: skip
    """Draw a column for each row, with the probabilities in the row; the columns' numbers, int64[rows].

    `min` and `max` bound the number that is looked up in the sums of the probabilities. `dtype` changes nothing, as in
    fluid.
    """
    return emit("sampling_id", X=check_floating(x, "sampling_id: x"), min=min, max=max, seed=seed)
