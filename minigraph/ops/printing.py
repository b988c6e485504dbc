"""Showing values while a program runs."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.types import TensorType, require

PHASES = ("FORWARD", "BACKWARD", "BOTH")


def _print_grad(ctx: GradContext) -> Iterator[OpSpec]:
    attrs = {**ctx.op.attrs, "is_forward": False}
    yield OpSpec("print", {"In": ctx.d_output("Out")}, {"Out": ctx.d_input("In")}, attrs)


@op("print", inputs="In", outputs="Out", grad=_print_grad, has_effect=True)
def print_(
    x: TensorType,
    *,
    first_n: int,
    message: str,
    summarize: int,
    print_tensor_name: bool,
    print_tensor_type: bool,
    print_tensor_shape: bool,
    print_tensor_lod: bool,
    print_phase: str = "BOTH",
    is_forward: bool = True,
) -> TensorType:
    """``Out = In``, which is printed; in the phase BACKWARD or BOTH the gradient of Out is printed too.

    At most `first_n` times (any number if negative), at most `summarize` elements (all if negative).
    """
    require(print_phase in PHASES, f"print_phase must be one of {', '.join(PHASES)}, got {print_phase!r}")
    return x
