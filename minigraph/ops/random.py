"""Operators that draw random numbers.

A seed other than 0 gives the same numbers in each run; with seed 0 they come from the executor's generator.
"""

from __future__ import annotations

from minigraph.opdef import fused, op
from minigraph.types import DType, TensorType, require, require_floating


def _filled(
    shape: list[int], dtype: int, shape_tensor: TensorType | None, shape_tensor_list: list[TensorType] | None
) -> TensorType:
    element = DType(dtype)
    require(element.is_floating, f"dtype must be floating point, got {element}")
    dims = tuple(shape)
    if shape_tensor is not None and not dims and shape_tensor.shape[0] >= 0:
        dims = (-1,) * shape_tensor.shape[0]
    require(shape_tensor is not None or shape_tensor_list is not None or -1 not in dims, f"shape {list(dims)} is not known")
    return TensorType(element, dims)


@op("uniform_random", inputs="ShapeTensor ShapeTensorList", outputs="Out", grad=None)
def uniform_random(
    shape_tensor: TensorType | None = None,
    shape_tensor_list: list[TensorType] | None = None,
    *,
    shape: list[int] = (),
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    dtype: int = 5,
) -> TensorType:
    """Uniform on [`min`, `max`); element ``i * diag_step + i`` is `diag_val` for the first `diag_num` i."""
    require(min <= max, f"min must not exceed max, got min={min:g} and max={max:g}")
    return _filled(shape, dtype, shape_tensor, shape_tensor_list)


@op("gaussian_random", inputs="ShapeTensor ShapeTensorList", outputs="Out", grad=None)
def gaussian_random(
    shape_tensor: TensorType | None = None,
    shape_tensor_list: list[TensorType] | None = None,
    *,
    shape: list[int] = (),
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = 5,
) -> TensorType:
    """Normal with `mean` and standard deviation `std`."""
    require(std >= 0, f"std must not be negative, got {std:g}")
    return _filled(shape, dtype, shape_tensor, shape_tensor_list)


@op("truncated_gaussian_random", outputs="Out", grad=None)
def truncated_gaussian_random(
    *, shape: list[int], mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: int = 5
) -> TensorType:
    """Normal with `mean` and `std`, drawn again until within two `std` of the mean."""
    require(std >= 0, f"std must not be negative, got {std:g}")
    return _filled(shape, dtype, None, None)


@op("dropout", inputs="X Seed", outputs="Out Mask~", grad=fused("Mask", to="X"))
def dropout(
    x: TensorType,
    seed_tensor: TensorType | None = None,
    *,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    fix_seed: bool = False,
    seed: int = 0,
    dropout_implementation: str = "downgrade_in_infer",
) -> tuple[TensorType, TensorType]:
    """Each element zeroed with probability `dropout_prob`; Mask is 1 where it stays.

    With ``downgrade_in_infer`` the test multiplies by ``1 - dropout_prob``, with ``upscale_in_train`` the training
    divides by it. `fix_seed` takes `seed`, or the number in Seed, in each run.

    References
    ----------
    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", JMLR 2014.
    """
    require_floating(x)
    require(0 <= dropout_prob <= 1, f"dropout_prob must be in [0, 1], got {dropout_prob:g}")
    known = ("downgrade_in_infer", "upscale_in_train")
    require(dropout_implementation in known, f"dropout_implementation must be one of {known}, got {dropout_implementation!r}")
    return x, x.with_dtype(DType.UINT8)
