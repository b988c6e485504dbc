"""Random tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper
from minigraph.layers.tensor import shape_arguments
from minigraph.types import as_dtype


def uniform_random(
    shape: Sequence[int | Variable] | Variable,
    dtype: Any = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Uniform on [`min`, `max`); a `seed` other than 0 gives the same numbers in each run."""
    helper = LayerHelper("uniform_random")
    inputs, attrs = shape_arguments(shape)
    return helper.unary("uniform_random", inputs, **attrs, dtype=int(as_dtype(dtype)), min=min, max=max, seed=seed)


def gaussian_random(
    shape: Sequence[int | Variable] | Variable,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Normal with `mean` and `std`; a `seed` other than 0 gives the same numbers in each run."""
    helper = LayerHelper("gaussian_random")
    inputs, attrs = shape_arguments(shape)
    return helper.unary("gaussian_random", inputs, **attrs, dtype=int(as_dtype(dtype)), mean=mean, std=std, seed=seed)


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
    helper = LayerHelper("randint")
    low, high = (0, low) if high is None else (low, high)
    inputs, attrs = shape_arguments([1] if shape is None else shape)
    if out is None:
        out = helper.temporary() if name is None else helper.block.create_var(name=name)
    attrs |= {"low": low, "high": high, "dtype": int(as_dtype(dtype or "int64")), "seed": seed}
    helper.append("randint", inputs, {"Out": out}, attrs if device is None else {**attrs, "op_device": device})
    out.stop_gradient = stop_gradient
    return out
