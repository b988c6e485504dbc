"""Binary operators on elements, with fluid's broadcasting.

Y is laid over X from dimension ``axis`` on (-1: right-aligned); see `minigraph.types.broadcast_shapes`.
"""

from __future__ import annotations

from typing import Any

from minigraph.opdef import fused, op
from minigraph.types import TensorType, broadcast_shapes, require_same_dtype

_ONEDNN = {
    "scale_x": 1.0, "scale_y": 1.0, "scale_out": 1.0, "Scale_x": 1.0, "Scale_y": 1.0, "Scale_out": 1.0,
    "x_data_format": "", "y_data_format": "",
}  # fmt: skip


def _binary(x: TensorType, y: TensorType, axis: int) -> TensorType:
    require_same_dtype("X and Y", x, y)
    return x.with_shape(broadcast_shapes(x.shape, y.shape, axis))


@op("elementwise_add", inputs="X Y", outputs="Out", grad=fused("X", "Y"), backend_attrs=_ONEDNN)
def elementwise_add(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X + Y``."""
    return _binary(x, y, axis)


@op("elementwise_sub", inputs="X Y", outputs="Out", grad=fused("X", "Y"), backend_attrs=_ONEDNN)
def elementwise_sub(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X - Y``."""
    return _binary(x, y, axis)


@op("elementwise_mul", inputs="X Y", outputs="Out", grad=fused("X", "Y"), backend_attrs=_ONEDNN)
def elementwise_mul(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X * Y``."""
    return _binary(x, y, axis)


@op("elementwise_div", inputs="X Y", outputs="Out", grad=fused("X", "Y", "Out"), backend_attrs=_ONEDNN)
def elementwise_div(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = X / Y``; integers are divided toward zero."""
    return _binary(x, y, axis)


@op("elementwise_max", inputs="X Y", outputs="Out", grad=fused("X", "Y"), backend_attrs=_ONEDNN)
def elementwise_max(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = max(X, Y)``; the gradient of a tie goes to Y."""
    return _binary(x, y, axis)


@op("elementwise_min", inputs="X Y", outputs="Out", grad=fused("X", "Y"), backend_attrs=_ONEDNN)
def elementwise_min(x: TensorType, y: TensorType, *, axis: int = -1) -> Any:
    """``Out = min(X, Y)``; the gradient of a tie goes to Y."""
    return _binary(x, y, axis)
