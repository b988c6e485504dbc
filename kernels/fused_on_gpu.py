"""Several operators on elements as one CUDA kernel, generated from their formulas.

Each formula is computed in the type of the elements, for float16 in float32, and rounded to it, as by the single
kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from minigraph.kernels.formulas import written
from minigraph.support.fused_calls import parse_calls

PREAMBLE = """
namespace minigraph {
template <typename T> struct wide { typedef T type; };
template <> struct wide<float16> { typedef float type; };
template <typename W> __device__ W where(bool condition, W x, W y) { return condition ? x : y; }
template <typename W> __device__ W maximum(W x, W y) { return x >= y || x != x ? x : y; }
template <typename W> __device__ W minimum(W x, W y) { return x <= y || x != x ? x : y; }
template <typename W> __device__ W sign(W x) { return x != x ? x : W(x > W(0)) - W(x < W(0)); }
__device__ inline float absolute(float x) { return fabsf(x); }
__device__ inline double absolute(double x) { return fabs(x); }
__device__ inline float lowest_exponent(float) { return -87.0f; }
__device__ inline double lowest_exponent(double) { return -708.0; }
template <typename W> __device__ W infinity(W zero) { return W(1) / zero; }
"""
PREAMBLE += "".join(
    f"__device__ inline float {name}(float x) {{ return ::{name}f(x); }}\n"
    f"__device__ inline double {name}(double x) {{ return ::{name}(x); }}\n"
    for name in ("exp", "expm1", "log", "log1p", "tanh", "erf", "erfc", "sqrt", "floor", "ceil")
)
PREAMBLE += "}\n"

_FUNCTION = re.compile(r"\b([a-z]\w*)\(")


def operation(steps: Sequence[str], views: Sequence[str], results: Sequence[str]) -> str:
    """The body of the kernel for one element, of `steps` on operands called `views`."""
    lines = ["typedef typename minigraph::wide<T>::type W;"]
    lines += [f"W w_{view} = (W)({view});" for view in views]
    values = {view: f"w_{view}" for view in views}
    for call in parse_calls(tuple(steps)):
        for name, formula in zip(call.outputs, written(call, values), strict=True):
            if name is not None:
                text = formula.replace("LOWEST_EXPONENT", "lowest_exponent(W(0))")
                text = re.sub(r"\bT\(", "W(", _FUNCTION.sub(r"minigraph::\1(", text))
                text = text.replace("1e999", "minigraph::infinity(W(0))")
                lines.append(f"W w_{name} = (W)(T)({text});")
        values.update({name: f"w_{name}" for name in call.writes})
    return "\n".join([*lines, *(f"{y} = (T)w_{y};" for y in results)])


def one_launch(xp, layout: Any, results: Sequence[str]) -> Callable[..., None]:
    """A function of the operands and of arrays for the results, which are contiguous, that launches one kernel."""
    kernel = _kernel(xp, tuple(map(str, layout.calls)), tuple(layout.views), tuple(results))

    def launch(xs: Sequence[Any], made: Sequence[Any]) -> None:
        kernel(*layout.views_of(xs), *(y.reshape(layout.flat) for y in made))

    return launch


@lru_cache(maxsize=256)
def _kernel(xp, steps: tuple[str, ...], views: tuple[str, ...], results: tuple[str, ...]) -> Any:
    inputs, outputs = (", ".join(f"T {name}" for name in names) for names in (views, results))
    return xp.ElementwiseKernel(
        inputs, outputs, operation(steps, views, results), "minigraph_fused", preamble=PREAMBLE,
        options=("--fmad=false",),  # a product and the sum after it are rounded one after the other
    )  # fmt: skip
