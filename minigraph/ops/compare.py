"""Comparisons and logic, element by element; and whether everything is finite. Their results are booleans.

Y of a comparison is laid over X as in `minigraph.ops.elementwise`. Nothing equals NaN. `force_cpu` changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from minigraph.opdef import op
from minigraph.ops.tensor import require_bool
from minigraph.types import (
    DType,
    TensorType,
    broadcast_shapes,
    merge_shapes,
    require_number,
    require_same_dtype,
)


def _compared(x: TensorType, y: TensorType, *, axis: int = -1, force_cpu: bool = False) -> TensorType:
    require_same_dtype("X and Y", x, y)
    return TensorType(DType.BOOL, broadcast_shapes(x.shape, y.shape, axis))


def _ordered(x: TensorType, y: TensorType, *, axis: int = -1, force_cpu: bool = False) -> TensorType:
    require_number(x)
    return _compared(x, y, axis=axis)


def _define(type: str, infer: Callable[..., TensorType], doc: str, inputs: str = "X Y", lod: str = "X") -> None:
    """Define an operator whose types `infer` infers, as it does for others."""
    op(type, inputs=inputs, outputs="Out", lod=lod, grad=None, doc=doc)(infer)


_define(
    "equal", _compared,
    "``Out = X == Y``, exactly; in fluid floating-point numbers that differ by less than 1e-8 are equal.",
)  # fmt: skip
_define("not_equal", _compared, "``Out = X != Y``, exactly; see ``equal``.")
_define("less_than", _ordered, "``Out = X < Y``.")
_define("less_equal", _ordered, "``Out = X <= Y``.")
_define("greater_than", _ordered, "``Out = X > Y``.")
_define("greater_equal", _ordered, "``Out = X >= Y``.")


def _logical(x: TensorType, y: TensorType) -> TensorType:
    for slot, given in (("X", x), ("Y", y)):
        require_bool(given, slot)
    return x.with_shape(merge_shapes(x.shape, y.shape, "X and Y"))


_define("logical_and", _logical, "Whether X and Y are both true; they have one shape.")
_define("logical_or", _logical, "Whether X or Y is true, or both; they have one shape.")
_define("logical_xor", _logical, "Whether one of X and Y is true and the other not; they have one shape.")


@op("logical_not", inputs="X", outputs="Out", lod="X", grad=None)
def logical_not(x: TensorType) -> TensorType:
    """Whether X is false."""
    require_bool(x, "X")
    return x


@op("isfinite", inputs="X", outputs="Out", rows="X", grad=None)
def isfinite(x: TensorType) -> TensorType:
    """Whether every element of X is finite, one boolean of shape [1]; True when there are none."""
    require_number(x)
    return TensorType(DType.BOOL, (1,))


def _one_boolean(x: TensorType) -> TensorType:
    return TensorType(DType.BOOL, (1,))


_define("isnan", _one_boolean, "Whether any element of X is NaN, bool[1].", inputs="X", lod="")
_define("isinf", _one_boolean, "Whether any element of X is infinite, bool[1].", inputs="X", lod="")
_define("is_empty", _one_boolean, "Whether X has no elements, bool[1].", inputs="X", lod="")


@op("allclose", inputs="Input Other", outputs="Out", grad=None)
def allclose(
    x: TensorType, y: TensorType, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TensorType:
    """Whether ``|Input - Other| <= atol + rtol * |Other|`` everywhere, bool[1]; they broadcast as in NumPy.

    Equal infinities are close, and with `equal_nan` so are NaN.

    Notes
    -----
    In fluid equal infinities are not close, and tensors of one size are compared in order whatever their shapes.
    """
    require_same_dtype("Input and Other", x, y)
    require_number(x, "Input")
    broadcast_shapes(x.shape, y.shape)
    return TensorType(DType.BOOL, (1,))
