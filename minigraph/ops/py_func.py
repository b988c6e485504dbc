"""Operators whose arithmetic is a function of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.types import TensorType, parse_type, require

_NONE: Any = ()


def _py_func_grad(ctx: GradContext) -> Iterator[OpSpec]:
    number, names = ctx.attr("backward_callable_id"), ctx.attr("functions")
    if number < 0:
        return
    skipped = ctx.attr("backward_skip_vars")
    seen = [name for name in ctx.input("X") + ctx.output("Out") if name not in skipped]
    types = [str(ctx.op.block.find_var(name).tensor_type) for name in ctx.input("X")]
    attrs = {"forward_callable_id": number, "functions": names[1:], "out_types": types}
    yield OpSpec("py_func", {"X": [*seen, *ctx.d_output("Out")]}, {"Out": ctx.d_input("X")}, attrs)


@op("py_func", inputs="X", outputs="Out*?", grad=_py_func_grad, has_effect=True)
def py_func(
    x: list[TensorType] | None,
    *,
    forward_callable_id: int,
    backward_callable_id: int = -1,
    backward_skip_vars: list[str] = _NONE,
    functions: list[str],
    out_types: list[str] = _NONE,
) -> list[TensorType]:
    """``Out = f(X...)`` where ``f`` is the registered function `forward_callable_id`.

    Its gradient is the same operator with the function `backward_callable_id`, none if that is -1. It is called with X,
    Out and the gradients of Out, without those of X and Out that `backward_skip_vars` names.

    Notes
    -----
    `functions`, the names of both, and `out_types`, such as ``float32[-1, 4]``, are minigraph's own. Fluid reads
    the types off the variables.
    """
    require(len(functions) == 1 + (backward_callable_id >= 0), f"functions must name each function, got {functions}")
    return [parse_type(text) for text in out_types]
