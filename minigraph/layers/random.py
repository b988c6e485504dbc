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
