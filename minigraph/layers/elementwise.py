"""Binary functions of elements, with fluid's broadcasting: `y` lies over `x` from dimension `axis` on."""

from __future__ import annotations

from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, layer


@layer
def elementwise_add(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """``x + y``."""
    return _elementwise("elementwise_add", x, y, axis, act, name)


@layer
def elementwise_sub(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """``x - y``."""
    return _elementwise("elementwise_sub", x, y, axis, act, name)


@layer
def elementwise_mul(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """``x * y``."""
    return _elementwise("elementwise_mul", x, y, axis, act, name)


@layer
def elementwise_div(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """``x / y``; integers are divided toward zero."""
    return _elementwise("elementwise_div", x, y, axis, act, name)


@layer
def elementwise_max(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """``max(x, y)``; the gradient of a tie goes to `y`."""
    return _elementwise("elementwise_max", x, y, axis, act, name)


@layer
def elementwise_min(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """``min(x, y)``; the gradient of a tie goes to `y`."""
    return _elementwise("elementwise_min", x, y, axis, act, name)


@layer
def elementwise_pow(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """``x ** y``."""
    return _elementwise("elementwise_pow", x, y, axis, act, name)


@layer
def elementwise_mod(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """The rest of `x` divided by `y`: of floating-point numbers with the sign of `y`, of integers with that of `x`."""
    return _elementwise("elementwise_mod", x, y, axis, act, name)


@layer
def elementwise_floordiv(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Integers divided toward zero, as in fluid, whatever the name says."""
    return _elementwise("elementwise_floordiv", x, y, axis, act, name)


def _elementwise(op_type: str, x: Variable, y: Variable, axis: int, act: str | None, name: str | None) -> Variable:
    helper = LayerHelper(op_type, name)
    inputs = {"X": check_variable(x, f"{op_type}: x"), "Y": check_variable(y, f"{op_type}: y")}
    return helper.activation(helper.unary(op_type, inputs, axis=axis), act)


@layer
def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """``scale * x + bias``, or ``scale * (x + bias)`` when `bias_after_scale` is False."""
    helper = LayerHelper("scale", name)
    inputs = {"X": check_variable(x, "scale: x")}
    attrs: dict[str, Any] = {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = scale
    else:
        attrs["scale"] = float(scale)
    return helper.activation(helper.unary("scale", inputs, **attrs), act)
