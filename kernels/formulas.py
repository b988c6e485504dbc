"""Operators on elements as formulas for one element, from which single loops and GPU kernels are generated.

A formula is an expression that Python and C++ read alike: what the kernel computes, found by running it on names
of operands. ``T(...)`` is a number in the type of the elements, a comparison within it is 0 or 1. The functions are
``where``, ``maximum`` and ``minimum`` (which keep NaN), ``sign``, ``absolute``, ``floor``, ``ceil``, ``exp``,
``expm1``, ``log``, ``log1p``, ``tanh``, ``sqrt``, and in float32 ``erf`` and ``erfc``; ``LOWEST_EXPONENT`` is -87 in
float32 and -708 in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minigraph.kernels.activation import LOWEST_EXPONENT
from minigraph.kernels.registry import find_kernel
from minigraph.kernels.tracing import ErrorFunctions, Traced, TracingModule
from minigraph.support.fused_calls import FusedCall, literal

OF_ONE = frozenset({
    "abs", "abs_grad", "assign", "ceil", "clip", "clip_grad", "elu", "elu_grad", "erf_grad", "exp", "exp_grad", "floor",
    "hard_sigmoid", "hard_sigmoid_grad", "leaky_relu", "leaky_relu_grad", "log", "log_grad", "logsigmoid",
    "logsigmoid_grad", "reciprocal", "reciprocal_grad", "relu", "relu6", "relu6_grad", "relu_grad", "rsqrt",
    "rsqrt_grad", "scale", "sigmoid", "sigmoid_grad", "softplus", "softplus_grad", "softsign", "softsign_grad", "sqrt",
    "sqrt_grad", "square", "square_grad", "swish", "swish_grad", "tanh", "tanh_grad",
})  # fmt: skip
"""Operators that have one operand, and their gradients."""

OF_TWO = frozenset({
    "elementwise_add", "elementwise_div", "elementwise_max", "elementwise_min", "elementwise_mul", "elementwise_sub",
})  # fmt: skip

_GRADIENTS_OF_TWO = frozenset({
    "elementwise_div_grad", "elementwise_max_grad", "elementwise_min_grad", "elementwise_mul_grad",
    "elementwise_sub_grad",
})  # fmt: skip
"""Their formulas hold as long as nothing was broadcast to where a gradient is wanted."""

_WHERE: dict[str, Callable[[Mapping[str, Any], Any], bool]] = {
    "gelu": lambda attrs, dtype: attrs["approximate"] or dtype == np.float32,  # of an error function
    "sigmoid_cross_entropy_with_logits": lambda attrs, dtype: not attrs["normalize"],  # by a count of all labels
}
_WHERE |= {f"{type}_grad": has_one for type, has_one in _WHERE.items()}
_WHERE["erf"] = lambda attrs, dtype: dtype == np.float32
"""Operators that have formulas for some attributes or types only."""

TYPES = OF_ONE | OF_TWO | _GRADIENTS_OF_TWO | _WHERE.keys() | {"sum"}
"""Operators that have formulas."""


def has_formula(type: str, attrs: Mapping[str, Any], dtype: Any) -> bool:
    """Whether an operator has a formula, with these attributes, for elements of this type."""
    return type in TYPES and (type not in _WHERE or _WHERE[type](attrs, dtype))


def takes_error_function(type: str, attrs: Mapping[str, Any]) -> bool:
    """Whether the formula of an operator calls ``erf`` or ``erfc``, each of which takes NumPy some 40 calls."""
    return type == "erf" or (type in ("gelu", "gelu_grad") and not attrs["approximate"])


def written(call: FusedCall, values: Mapping[str, str]) -> tuple[str, ...]:
    """One formula for each result of a call, with `values` in the place of its operands."""
    if call.type == "sum":
        (parts,) = call.inputs
        return (" + ".join(values[name] for name in parts or ()),)
    kernel = find_kernel(call.type, "cpu")
    assert kernel is not None
    operands = [None if name is None else _Text(values[str(name)]) for name in call.inputs]
    wanted = {"wanted": (True,) * len(call.outputs)} if kernel.takes_wanted else {}
    found = kernel.function(_Module(), *operands, **call.attrs, **wanted)
    return tuple(result.value for result in (found if isinstance(found, tuple) else (found,)))


class _Module(TracingModule, ErrorFunctions):
    def erf(self, x: Any) -> Any:
        return x.apply("erf", x)

    def erfc(self, x: Any) -> Any:
        return x.apply("erfc", x)


class _Element:
    """The dtype of an element, whichever it is."""

    kind = "f"
    type = float


class _Text(Traced):
    """An expression where a kernel expects an array of a floating type."""

    dtype, shape, ndim = _Element, (), 0

    def __init__(self, value: str) -> None:
        self.value = value

    def apply(self, function: str, *operands: Any, **options: Any) -> _Text:
        texts = [x.value if isinstance(x, _Text) else f"T({literal(x)})" for x in operands]
        if function == "multiply":  # by what a comparison gives
            texts = [
                f"T({x.value})" if isinstance(x, _Truth) else text for x, text in zip(operands, texts, strict=True)
            ]
        if function not in _WRITTEN:
            return _Text(f"{function}({', '.join(texts)})")
        kind = _Truth if function in _TRUTHS else _Text
        return kind(_WRITTEN[function].format(*texts))

    def reshape(self, *shape: Any) -> _Text:
        return self


class _Truth(_Text):
    """A comparison."""


_TRUTHS = {
    "greater": "({} > {})", "greater_equal": "({} >= {})", "less": "({} < {})", "less_equal": "({} <= {})",
    "bitwise_and": "({} & {})", "bitwise_or": "({} | {})", "equal": "({} == {})", "not_equal": "({} != {})",
}  # fmt: skip

_WRITTEN = _TRUTHS | {
    "add": "({} + {})", "subtract": "({} - {})", "multiply": "({} * {})", "divide": "({} / {})", "negative": "(-{})",
    "positive": "{}", "reciprocal": "(T(1) / {})", "square": "({0} * {0})",
}  # fmt: skip
"""Texts of the NumPy functions that a formula does not call by name."""

LOWEST_EXPONENT[_Element] = _Text("LOWEST_EXPONENT")
