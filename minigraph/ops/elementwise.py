"""Binary operators on elements, with fluid's broadcasting.

Y is laid over X from dimension ``axis`` on (-1: right-aligned); see `minigraph.types.broadcast_shapes`.
"""

from __future__ import annotations

from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import DoubleGrad, FusedGrad, fused
from minigraph.ops.tensor import require_integers
from minigraph.types import TensorType, broadcast_shapes, product, require, require_number, require_same_dtype

_ONEDNN = {
    "scale_x": 1.0, "scale_y": 1.0, "scale_out": 1.0, "Scale_x": 1.0, "Scale_y": 1.0, "Scale_out": 1.0,
    "x_data_format": "", "y_data_format": "",
}  # fmt: skip


def _binary(x: TensorType, y: TensorType, axis: int) -> TensorType:
    require_same_dtype("X and Y", x, y)
    require_number(x)
    return x.with_shape(broadcast_shapes(x.shape, y.shape, axis))


def _of_sum() -> FusedGrad:
    return fused("X", "Y", grad=DoubleGrad(), linear=True)


@op("elementwise_add", inputs="X Y", outputs="Out", lod="X", grad=_of_sum(), backend_attrs=_ONEDNN)
def elementwise_add(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X + Y``."""
    return _binary(x, y, axis)


@op("elementwise_sub", inputs="X Y", outputs="Out", lod="X", grad=_of_sum(), backend_attrs=_ONEDNN)
def elementwise_sub(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X - Y``."""
    return _binary(x, y, axis)


@op(
    "elementwise_mul", inputs="X Y", outputs="Out", rows="X", lod="X", grad=fused("X", "Y", grad=DoubleGrad()),
    backend_attrs=_ONEDNN,
)  # fmt: skip
def elementwise_mul(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X * Y``. Selected rows can be multiplied by one number."""
    if x.is_rows:
        require_same_dtype("X and Y", x, y)
        require(product(y.shape) == 1, f"Y must hold one number where X is selected rows, got {y}")
        return x
    return _binary(x, y, axis)


@op(
    "elementwise_div",
    inputs="X Y",
    outputs="Out",
    lod="X",
    grad=fused("X", "Y", "Out", grad=DoubleGrad()),
    backend_attrs=_ONEDNN,
)
def elementwise_div(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X / Y``; integers are divided toward zero."""
    return _binary(x, y, axis)


@op("elementwise_max", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y"), backend_attrs=_ONEDNN)
def elementwise_max(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = max(X, Y)``; the gradient of a tie goes to Y."""
    return _binary(x, y, axis)


@op("elementwise_min", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y"), backend_attrs=_ONEDNN)
def elementwise_min(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = min(X, Y)``; the gradient of a tie goes to Y."""
    return _binary(x, y, axis)


@op("elementwise_pow", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y"))
def elementwise_pow(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X ** Y``; of integers a fraction is cut to an integer, and 0 has no negative power.

    The gradient for X is 0 where Y is 0. The gradient for Y is 0 where X is 0 and Y positive.

    Notes
    -----
    Fluid has the gradient NaN at these places, and takes powers of integers by way of float64.
    """
    return _binary(x, y, axis)


@op("elementwise_mod", inputs="X Y", outputs="Out", lod="X", grad=None)
def elementwise_mod(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """Remainder of X divided by Y: with the sign of Y for floating-point numbers, with that of X for integers."""
    return _binary(x, y, axis)


@op("elementwise_floordiv", inputs="X Y", outputs="Out", lod="X", grad=None)
def elementwise_floordiv(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """Quotient of integers, rounded toward zero as in fluid, in spite of the name."""
    require_integers(x, "X")
    return _binary(x, y, axis)
