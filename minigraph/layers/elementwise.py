"""Binary functions of elements, with fluid's broadcasting: `y` is aligned with `x` from dimension `axis` on."""

from __future__ import annotations

from typing import Protocol

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, input_or_attr, layer, layer_called
from minigraph.support.arguments import as_float

__all__ = [
    "elementwise_add", "elementwise_div", "elementwise_floordiv", "elementwise_max", "elementwise_min",
    "elementwise_mod", "elementwise_mul", "elementwise_pow", "elementwise_sub", "scale",
]  # fmt: skip


class Elementwise(Protocol):
    def __call__(
        self, x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
    ) -> Variable: ...


def _elementwise(op_type: str, formula: str) -> Elementwise:
    @layer_called(op_type, formula)
    def elementwise(
        x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
    ) -> Variable:
        helper = LayerHelper(op_type, name)
        return helper.activation(helper.emit(op_type, X=x, Y=y, axis=axis), act)

    return elementwise


elementwise_add = _elementwise("elementwise_add", "``x + y``.")
elementwise_sub = _elementwise("elementwise_sub", "``x - y``.")
elementwise_mul = _elementwise("elementwise_mul", "``x * y``.")
elementwise_div = _elementwise("elementwise_div", "``x / y``; integers are divided toward zero.")
elementwise_max = _elementwise("elementwise_max", "``max(x, y)``; the gradient of a tie goes to `y`.")
elementwise_min = _elementwise("elementwise_min", "``min(x, y)``; the gradient of a tie goes to `y`.")
elementwise_pow = _elementwise("elementwise_pow", "``x ** y``.")
elementwise_mod = _elementwise(
    "elementwise_mod",
    "The rest of `x` divided by `y`: of floating-point numbers with the sign of `y`, of integers with that of `x`.",
)
elementwise_floordiv = _elementwise(
    "elementwise_floordiv", "Integers divided toward zero, as in fluid, whatever the name says."
)


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
    factor = input_or_attr(scale if isinstance(scale, Variable) else as_float(scale), "ScaleTensor", "scale")
    result = helper.emit("scale", X=x, **factor, bias=as_float(bias), bias_after_scale=bias_after_scale)
    return helper.activation(result, act)
