"""Operators on elements as formulas for one element, from which single loops and GPU kernels are generated.

A formula is an expression that Python and C++ read alike. It names the kernel's arrays and attributes. ``T(...)`` is a
number in the type of the elements, a comparison within it is 0 or 1. The functions are ``where``, ``maximum`` and
``minimum`` (which keep NaN), ``sign``, ``absolute``, ``floor``, ``ceil``, ``trunc``, ``copysign``, ``exp``, ``expm1``,
``log``, ``log1p``, ``tanh`` and ``sqrt``.

Sums, products, quotients and roots are rounded as the kernels round them, in their order.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from minigraph.kernels.registry import find_kernel
from minigraph.support.fused_calls import Call, literal

Formula = str | Callable[[Mapping[str, Any]], str]

_SHARE = "T(1) / (T(1) + exp(-({0})))"
_LOG_SUM = "log1p(exp(-absolute({0}))) + maximum({0}, T(0))"
"""``log(1 + exp(x))``, without overflow."""


def _scale(attrs: Mapping[str, Any]) -> str:
    if not attrs["bias_after_scale"]:
        return "(x + T(bias)) * T(scale)"
    return "x * T(scale) + T(bias)" if attrs["bias"] else "x * T(scale)"


def _leaky_relu(attrs: Mapping[str, Any]) -> str:
    if attrs["alpha"] == 0:
        return "maximum(x, T(0))"  # infinity times 0 is no number
    return f"{'maximum' if attrs['alpha'] <= 1 else 'minimum'}(x, T(alpha) * x)"


ONE_RESULT: dict[str, Formula] = {
    "abs": "absolute(x)",
    "abs_grad": "d_out * sign(x)",
    "assign": "x",
    "ceil": "ceil(x)",
    "clip": "minimum(maximum(x, T(min)), T(max))",
    "clip_grad": "d_out * T((x > T(min)) & (x < T(max)))",
    "elementwise_add": "x + y",
    "elementwise_div": "x / y",
    "elementwise_max": "maximum(x, y)",
    "elementwise_min": "minimum(x, y)",
    "elementwise_mul": "x * y",
    "elementwise_sub": "x - y",
    "elu": "where(x > T(0), x, T(alpha) * expm1(minimum(x, T(0))))",
    "elu_grad": "where(x > T(0), T(1), T(alpha) * exp(minimum(x, T(0)))) * d_out",
    "exp": "exp(x)",
    "exp_grad": "d_out * result",
    "floor": "floor(x)",
    "hard_sigmoid": "minimum(maximum(T(slope) * x + T(offset), T(0)), T(1))",
    "hard_sigmoid_grad": "T(slope) * d_out * T((result > T(0)) & (result < T(1)))",
    "leaky_relu": _leaky_relu,
    "leaky_relu_grad": "where(result > T(0), d_out, T(alpha) * d_out)",
    "log": "log(x)",
    "log_grad": "d_out / x",
    "logsigmoid": f"-({_LOG_SUM.format('(-x)')})",
    "logsigmoid_grad": f"d_out * ({_SHARE.format('-x')})",
    "reciprocal": "T(1) / x",
    "reciprocal_grad": "d_out * (-(result * result))",
    "relu": "maximum(x, T(0))",
    "relu6": "minimum(maximum(x, T(0)), T(threshold))",
    "relu6_grad": "d_out * T((result > T(0)) & (result < T(threshold)))",
    "relu_grad": "d_out * T(result > T(0))",
    "rsqrt_grad": "d_out * (T(-0.5) * result * result * result)",
    "scale": _scale,
    "sigmoid": _SHARE.format("maximum(x, LOWEST_EXPONENT)"),
    "sigmoid_grad": "(T(1) - result) * result * d_out",
    "softplus": _LOG_SUM.format("x"),
    "softplus_grad": f"d_out * ({_SHARE.format('x')})",
    "softsign_grad": "d_out * ((T(1) / (T(1) + absolute(x))) * (T(1) / (T(1) + absolute(x))))",
    "sqrt": "sqrt(x)",
    "sqrt_grad": "d_out * T(0.5) / result",
    "square": "x * x",
    "square_grad": "x * d_out * T(2)",
    "tanh": "tanh(x)",
    "tanh_grad": "(T(1) - result * result) * d_out",
}
"""By type. ``LOWEST_EXPONENT`` is -87 in float32 and -708 in float64."""

TWO_RESULTS: dict[str, tuple[str, str]] = {
    "elementwise_div_grad": ("d_out / y", "-(d_out * result) / y"),
    "elementwise_max_grad": ("d_out * T(x > y)", "d_out * T(x <= y)"),
    "elementwise_min_grad": ("d_out * T(x < y)", "d_out * T(x >= y)"),
    "elementwise_mul_grad": ("d_out * y", "d_out * x"),
}
"""The gradients of both operands, as long as nothing was broadcast to where it is wanted."""

TYPES = frozenset({*ONE_RESULT, *TWO_RESULTS, "sum"})
"""Operators that have formulas."""


def formulas(type: str, attrs: Mapping[str, Any], arrays: Sequence[Any]) -> tuple[str, ...]:
    """One formula for each result; of ``sum`` by what its `arrays` are called."""
    if type == "sum":
        return (" + ".join(arrays[0]),)
    found = ONE_RESULT.get(type)
    if found is None:
        return TWO_RESULTS[type]
    return (found if isinstance(found, str) else found(attrs),)


def written(call: Call, values: Mapping[str, str]) -> tuple[str, ...]:
    """The formulas of a call, with `values` in the place of its operands and numbers in that of its attributes."""
    operands = [[values[n] for n in x] if isinstance(x, tuple) else x and values[x] for x in call.inputs]
    words = dict(zip(_parameters(call.type), operands, strict=True)) | {n: literal(v) for n, v in call.attrs.items()}

    def word(match: re.Match[str]) -> str:
        return str(words.get(match[0], match[0]))

    return tuple(re.sub(r"[A-Za-z_]\w*", word, formula) for formula in formulas(call.type, call.attrs, operands))


@cache
def _parameters(type: str) -> list[str]:
    """What the kernel of an operator calls its arrays."""
    kernel = find_kernel(type, "cpu")
    assert kernel is not None
    parameters = list(inspect.signature(kernel.function).parameters.values())[1:]
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
